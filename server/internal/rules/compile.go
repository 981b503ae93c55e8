package rules

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// A Set holds all rules that are in force. It is immutable and safe for
// concurrent use.
type Set struct {
	domains map[string]*domain
	names   []string
	rules   []*Rule
	budgets []*Rule // each charges one budget alone
	limits  map[*weir.Limit]facts
	// compiled are limits in calls; the only part that changes.
	compiled *compiledCalls
	// calls are the settings of limits in calls by what their keys begin with, and callRules
	// the rules for named ones.
	calls     map[string]*calls
	callRules []*Rule
	// failures are the policies by name, for limits that replace a rule's limits for some
	// keys.
	failures map[limitName]config.StoreFailure
	bounded  bool // some rule has max_keys
	missing  bool // there are no rules yet
}

// facts describe one of a set's limits. The zero value is for limits that are not in the
// set.
type facts struct {
	leased   bool
	watched  *Rule  // the shadow rule or trial of the limit; nil if it refuses
	maxKeys  int    // 0: its rule does not say
	overflow string // the key that all further keys share
	grouped  bool   // the limit is a rule's that names an algorithm, with the failure
	failure  config.StoreFailure
}

// A limitName is a limit's name and the prefix of the keys of its domain.
type limitName struct{ prefix, name string }

type domain struct {
	prefix  string // what the keys of the domain begin with
	calls   *calls
	budgets []*Rule
	models  []config.Model
	asOf    time.Time // of the models; zero: not said
	classes []string
	top     level
	quotas  map[string][]string // the keys of rules that Envoys lease from, in order, by [config.QuotaKeys]
}

// Compile makes a set of domains that config has read. It returns an error only for
// domains that config would have refused.
func Compile(domains []*config.Domain) (*Set, error) {
	s := &Set{
		domains: make(map[string]*domain, len(domains)),
		limits:  make(map[*weir.Limit]facts), failures: make(map[limitName]config.StoreFailure),
		compiled: new(compiledCalls), calls: make(map[string]*calls, len(domains)),
	}
	for _, d := range domains {
		if _, taken := s.domains[d.Name]; taken {
			return nil, invalid("domain", strconv.Quote(d.Name), "each domain once")
		}
		prefix := string(append(appendEscaped(nil, d.Name, ""), '/'))
		c := compiler{set: s, domain: d.Name, prefix: prefix, quotas: map[string][]string{}}
		budgets, err := c.budgets(d.Budgets, nil)
		if err != nil {
			return nil, err
		}
		top, err := c.level(d.Descriptors, nil)
		if err != nil {
			return nil, err
		}
		in, err := s.readCalls(d.Name, &d.Calls)
		if err != nil {
			return nil, err
		}
		s.domains[d.Name] = &domain{prefix, in, budgets, d.Models, d.AsOf, d.Classes, top, c.quotas}
		s.names = append(s.names, d.Name)
	}
	for _, r := range slices.Concat(s.rules, s.budgets) {
		for _, form := range r.Forms() {
			s.note(form, form == r && r.Grouped)
		}
	}
	return s, nil
}

// Load reads rules files and folders of them, see [config.Source], and compiles their
// rules. The mistakes of all files are returned as [config.Problems].
func Load(paths ...string) (*Set, error) { return LoadFrom(config.Source{Paths: paths}.Read()) }

// LoadFrom is Load for files that were read.
func LoadFrom(r *config.Reading) (*Set, error) {
	domains, err := r.Domains()
	if err != nil {
		return nil, err
	}
	return Compile(domains)
}

// Parse is Load for one file in memory. The name stands in messages.
func Parse(name string, text []byte) (*Set, error) {
	domain, err := config.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return Compile([]*config.Domain{domain})
}

// MustParse is Parse for rules that are compiled in. It panics if they have mistakes.
func MustParse(name, text string) *Set {
	set, err := Parse(name, []byte(text))
	if err != nil {
		panic(err)
	}
	return set
}

//go:embed demo.yaml
var demoYAML string

//go:embed models.yaml
var modelsYAML string

var (
	// Demo returns the rules of the domain "demo", to try a server without a file.
	Demo = sync.OnceValue(func() *Set { return MustParse("demo.yaml", demoYAML) })
	// DemoModels returns the rules of the domain "llm", to try a proxy for language models
	// without a file.
	DemoModels = sync.OnceValue(func() *Set { return MustParse("models.yaml", modelsYAML) })
)

// ErrNotLoaded is the error of requests before the first rules have arrived.
var ErrNotLoaded = errors.New("no rate limit configuration loaded")

// NotLoaded returns the set to use until the first rules arrive. It answers every
// request with [ErrNotLoaded], so that the caller's own policy decides.
func NotLoaded() *Set { return &Set{missing: true} }

// note records the facts about a rule's limits, and their policies if they are in force and
// name an algorithm. The key that further keys share is the rule's path where others have
// entries: some level of a path lacks its value, unless the rule has only one key.
func (s *Set) note(r *Rule, grouped bool) {
	for _, l := range r.Limits {
		suffix := l.suffix
		if r.Shadow && r.Unenforced > 0 {
			// Keys that are only watched must not use up the budget that other keys
			// share.
			suffix += "#outside"
		}
		path := r.Path
		if b := l.Budget; b != nil {
			path, suffix = b.path, b.suffix
		}
		f := facts{maxKeys: l.MaxKeys, overflow: bounded(path, suffix, weir.MaxKeyBytes)}
		s.bounded = s.bounded || f.maxKeys > 0
		if r.counter != nil {
			s.limits[r.counter] = f
		}
		if f.leased = l.Lease; r.Shadow {
			f.watched = r
		}
		if grouped {
			f.grouped, f.failure = true, l.OnStoreFailure
			s.failures[limitName{s.domains[r.Domain].prefix, l.Name}] = f.failure
		}
		s.limits[l.Limit], s.limits[l.Limit.WithoutBlock()] = f, f
	}
}

// Alerts reports whether some limit of the set has alerts.
func (s *Set) Alerts() bool {
	for _, r := range s.rules {
		for _, l := range r.Limits {
			if len(l.Alerts) > 0 {
				return true
			}
		}
	}
	return false
}

// Leased reports whether instances may spend leased units of one of the set's limits
// from memory.
func (s *Set) Leased(l *weir.Limit) bool { return s.limits[l].leased }

// Watched returns the shadow rule or trial that one of the set's limits belongs to,
// nil for a limit that refuses.
func (s *Set) Watched(l *weir.Limit) *Rule { return s.limits[l].watched }

// MaxKeys returns how many keys of the limit of a charge are tracked, and the key that all
// others share. It returns otherwise if the rule does not say how many. 0 is any number, as
// for limits that are not the set's.
//
// Of limits in calls, each name that the domain's file has is bounded, and so are all others
// together: names, and domains without a file, can be made up.
func (s *Set) MaxKeys(c *weir.Charge, otherwise int) (maxKeys int, overflow string) {
	if !s.bounded && otherwise == 0 {
		return 0, ""
	}
	f := s.limits[c.Limit]
	if f.overflow == "" {
		if n := s.callsIn(c); n != nil {
			return cmp.Or(n.maxKeys, otherwise), n.overflow[c.Limit.Algorithm]
		}
	}
	if f.maxKeys == 0 && f.overflow != "" {
		return otherwise, f.overflow
	}
	return f.maxKeys, f.overflow
}

// OnStoreFailure returns the policy of a charge during a store outage; false if no rule
// that names an algorithm has its limit. A limit that a key has at run time in place of
// its rule's is found by the name that both have.
func (s *Set) OnStoreFailure(c *weir.Charge) (config.StoreFailure, bool) {
	if f := s.limits[c.Limit]; f.grouped {
		return f.failure, true
	}
	if n := s.callsIn(c); n != nil {
		return n.failure, true
	}
	end := strings.IndexByte(c.Key, '/')
	if end < 0 || len(s.failures) == 0 {
		return config.FailError, false
	}
	failure, ok := s.failures[limitName{c.Key[:end+1], c.Limit.Name}]
	return failure, ok
}

// Rules returns the rules in the order of the files. They are the set's own and
// must not be changed.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// CallRules returns the rules for limits in calls that have a name. One without Limits leaves
// the numbers to the calls. They must not be changed.
func (s *Set) CallRules() []*Rule { return slices.Clone(s.callRules) }

// Domains returns the names of the domains in the order of the files.
func (s *Set) Domains() []string { return slices.Clone(s.names) }

// Models returns the price table of a domain. It is the set's own and must not be
// changed.
func (s *Set) Models(name string) []config.Model {
	if d := s.domains[name]; d != nil {
		return d.models
	}
	return nil
}

// PricesAsOf returns the day on which the price table of a domain was right; zero if it has no
// price file.
func (s *Set) PricesAsOf(name string) time.Time {
	if d := s.domains[name]; d != nil {
		return d.asOf
	}
	return time.Time{}
}

// Classes returns the classes of the callers of a domain, the highest first; none if it has no
// classes. They are the set's own and must not be changed.
func (s *Set) Classes(name string) []string {
	if d := s.domains[name]; d != nil {
		return d.classes
	}
	return nil
}

type compiler struct {
	set    *Set
	domain string
	prefix string
	levels []Level // of the descriptors above
	quotas map[string][]string
}

// level compiles a list of descriptors below the entries above it.
func (c *compiler) level(list []*config.Descriptor, above []Entry) (level, error) {
	if len(above) == config.MaxDepth {
		return level{}, invalid("descriptors", "deeper", fmt.Sprintf("at most %d levels", config.MaxDepth))
	}
	l := newLevel(len(list))
	for i, d := range list {
		n, err := c.node(d, above)
		if err != nil {
			return level{}, err
		}
		n.order = i
		l.add(n)
		if d.Shares != nil && d.Value == "" {
			budgets, err := c.budgets(d.Budgets, above)
			if err != nil {
				return level{}, err
			}
			l.budgets = append(l.budgets, budgets...)
		}
	}
	return l, nil
}

func (c *compiler) node(d *config.Descriptor, above []Entry) (*node, error) {
	n := newNode(Entry{d.Key, d.Value})
	n.at = d.At
	var err error
	if n.budgets, err = c.budgets(d.Budgets, append(slices.Clone(above), n.entry)); err != nil {
		return nil, err
	}
	c.levels = append(c.levels, Level{d.ValueToMetric, d.ShareThreshold})
	defer func() { c.levels = c.levels[:len(above)] }()
	entries := append(slices.Clone(above), n.entry)
	if d.ShareThreshold {
		n.shared = pattern(n.entry)
	}
	if len(d.Limits) > 0 {
		rule, err := c.rule(d, entries)
		if err != nil {
			return nil, err
		}
		n.rule = rule
		if rule.RLQS {
			c.noteQuota(entries)
		}
		c.set.rules = append(c.set.rules, rule)
	}
	if len(d.Descriptors) > 0 {
		next, err := c.level(d.Descriptors, entries)
		if err != nil {
			return nil, err
		}
		n.next = &next
	}
	return n, nil
}

func (c *compiler) rule(d *config.Descriptor, entries []Entry) (*Rule, error) {
	path := pathOf(entries)
	r := &Rule{
		At: d.At, Domain: c.domain, Path: c.prefix + path, Entries: entries,
		Grouped: d.Limits[0].Grouped, Unlimited: d.Limits[0].Unlimited, Unit: d.Limits[0].Unit,
		RLQS:     d.Limits[0].RLQS,
		Settings: d.Settings, Levels: slices.Clone(c.levels), hashTag: hashTagOf(d.HashTag, entries),
	}
	if len(d.Limits) == 1 {
		r.Name = d.Limits[0].Name
		r.Overlay, r.Sent = d.Limits[0].Overlay, d.Limits[0].Sent
	}
	if err := r.compile(d.Limits, path); err != nil {
		return nil, err
	}
	return r, r.rollOut(d, path)
}

// compile compiles the limits of the rule, and settles what their keys end in.
func (r *Rule) compile(limits []config.RateLimit, path string) error {
	if last := limits[len(limits)-1].Alternative; last > 0 {
		r.Alternatives = 1 + last
	}
	for i := range limits {
		l := &limits[i]
		r.Replaces = append(r.Replaces, l.Replaces...)
		own := &Limit{name: l.Name, OnStoreFailure: l.OnStoreFailure, Lease: l.Lease, MaxKeys: l.MaxKeys, Keep: l.Keep, Show: l.Show, Instead: l.Instead, Part: l.Part, Alerts: l.Alerts}
		r.all = append(r.all, own)
		if l.Unlimited {
			continue
		}
		limit := l.Limit
		switch {
		case l.Name != "":
			limit.Name = l.Name
		case len(limits) > 1:
			limit.Name = fmt.Sprintf("%s#%d", path, i+1)
		default:
			limit.Name = path
		}
		var err error
		if own.Limit, err = limit.Compile(); err != nil {
			return fmt.Errorf("%s: %w", r.Path, err)
		}
		if !l.Grouped {
			r.counter = widest(own.Limit)
		}
		if r.Alternatives > 0 {
			own.Alternative = 1 + l.Alternative
		}
		r.owned = r.owned || l.Budget != nil || l.Alternative > 0
		if own.suffix = suffix(l, i+1, path); l.Budget != nil {
			own.Budget = newBudget(strings.TrimSuffix(r.Path, path), r.Entries, l.Budget)
			own.suffix = own.Budget.suffix
		}
		r.Limits = append(r.Limits, own)
	}
	return nil
}

// suffix distinguishes the keys of a rule's limits from those of other rules with the
// same entries. It contains nothing that a reload may change.
func suffix(l *config.RateLimit, place int, path string) string {
	switch {
	case !l.Grouped:
		return ";" + l.Unit
	case l.Name == "":
		return fmt.Sprintf(";%s#%d", path, place)
	default:
		return string(appendEscaped([]byte(";"+path+";"), cmp.Or(l.Was, l.Name), ""))
	}
}

// hashTagOf marks the levels whose entries choose a rule's hash slot; nil for all.
func hashTagOf(keys []string, entries []Entry) []bool {
	if len(keys) == 0 {
		return nil
	}
	levels := make([]bool, len(entries))
	for i, e := range entries {
		levels[i] = slices.Contains(keys, e.Key)
	}
	return levels
}
