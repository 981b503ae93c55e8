package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// A Set holds all rules that are in force. It is immutable and safe for
// concurrent use.
type Set struct {
	domains map[string]*domain
	names   []string
	rules   []*Rule
	leased  map[*weir.Limit]bool
	watched map[*weir.Limit]*Rule
	keys    map[*weir.Limit]keyBudget
	bounded bool // some rule says how many keys it has
	missing bool // there are no rules yet
	onFail  failures
}

type domain struct {
	prefix string // what the keys of the domain begin with
	top    level
}

// Compile makes a set of what config read. It returns an error only for domains
// that config would have refused.
func Compile(domains []*config.Domain) (*Set, error) {
	s := &Set{
		domains: make(map[string]*domain, len(domains)), leased: make(map[*weir.Limit]bool),
		watched: make(map[*weir.Limit]*Rule), keys: make(map[*weir.Limit]keyBudget),
	}
	for _, d := range domains {
		if _, taken := s.domains[d.Name]; taken {
			return nil, outside("domain", strconv.Quote(d.Name), "each domain once")
		}
		prefix := string(append(appendEscaped(nil, d.Name, ""), '/'))
		c := compiler{set: s, domain: d.Name, prefix: prefix}
		top, err := c.level(d.Descriptors, nil)
		if err != nil {
			return nil, err
		}
		s.domains[d.Name] = &domain{prefix, top}
		s.names = append(s.names, d.Name)
	}
	for _, r := range s.rules {
		for _, form := range r.Forms() {
			s.note(form)
			s.budget(form)
		}
	}
	return s, nil
}

// ErrNotLoaded is the error of requests before the first rules have arrived.
var ErrNotLoaded = errors.New("no rate limit configuration loaded")

// NotLoaded returns the set to use until the first rules arrive. It answers every
// request with [ErrNotLoaded], so that the caller's own policy decides.
func NotLoaded() *Set { return &Set{missing: true} }

// note notes which of the rule's limits may be spent from memory, and which only
// watch.
func (s *Set) note(r *Rule) {
	for i, l := range r.Limits {
		if r.Lease[i] {
			s.leased[l] = true
		}
		if r.Shadow {
			s.watched[l] = r
		}
	}
}

// Leased reports whether instances may spend shares of one of the set's limits
// from memory.
func (s *Set) Leased(l *weir.Limit) bool { return s.leased[l] }

// Watched returns the shadow rule or trial that one of the set's limits belongs to,
// nil for a limit that refuses.
func (s *Set) Watched(l *weir.Limit) *Rule { return s.watched[l] }

// Rules returns the rules in the order of the files. They are the set's own and
// must not be changed.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Domains returns the names of the domains in the order of the files.
func (s *Set) Domains() []string { return slices.Clone(s.names) }

type compiler struct {
	set    *Set
	domain string
	prefix string
	levels []Level // of the descriptors above
}

// level compiles a list of descriptors below the entries above it.
func (c *compiler) level(list []*config.Descriptor, above []Entry) (level, error) {
	if len(above) == config.MaxDepth {
		return level{}, outside("descriptors", "deeper", fmt.Sprintf("at most %d levels", config.MaxDepth))
	}
	l := newLevel(len(list))
	for i, d := range list {
		n, err := c.node(d, above)
		if err != nil {
			return level{}, err
		}
		n.order = i
		l.add(n)
	}
	return l, nil
}

func (c *compiler) node(d *config.Descriptor, above []Entry) (*node, error) {
	n := newNode(Entry{d.Key, d.Value})
	n.at = d.At
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
		c.set.rules = append(c.set.rules, rule)
		c.set.onFail.note(c.prefix, rule)
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
	patterns := make([]string, len(entries))
	for i, e := range entries {
		patterns[i] = pattern(e)
	}
	path := strings.Join(patterns, ",")
	r := &Rule{
		At: d.At, Domain: c.domain, Path: c.prefix + path, Entries: entries,
		Grouped: d.Limits[0].Grouped, Unlimited: d.Limits[0].Unlimited, Unit: d.Limits[0].Unit,
		Shadow: d.ShadowMode, Quota: d.QuotaMode,
		DetailedMetric: d.DetailedMetric, ValueToMetric: d.ValueToMetric, ShareThreshold: d.ShareThreshold,
		Metadata: d.Metadata, Levels: slices.Clone(c.levels), hashTag: hashTagOf(d.HashTag, entries),
	}
	if len(d.Limits) == 1 {
		r.Name = d.Limits[0].Name
		r.Overlay, r.Sent = d.Limits[0].Overlay, d.Limits[0].Sent
	}
	for i := range d.Limits {
		if err := r.add(&d.Limits[i], i+1, path, len(d.Limits)); err != nil {
			return nil, err
		}
	}
	return r, r.rollOut(d, path)
}

// add compiles one limit of the rule, the place-th of several, and settles what
// its keys end in.
func (r *Rule) add(l *config.RateLimit, place int, path string, several int) error {
	r.names = append(r.names, l.Name)
	r.Replaces = append(r.Replaces, l.Replaces...)
	if l.Unlimited {
		return nil
	}
	limit := l.Limit
	limit.Name = path
	if several > 1 {
		limit.Name = fmt.Sprintf("%s#%d", path, place)
	}
	if l.Name != "" {
		limit.Name = l.Name
	}
	compiled, err := limit.Compile()
	if err != nil {
		return fmt.Errorf("%s: %w", r.Path, err)
	}
	r.Limits = append(r.Limits, compiled)
	if !l.Grouped {
		r.counter = widest(compiled)
	}
	r.OnStoreFailure = append(r.OnStoreFailure, l.OnStoreFailure)
	r.Lease = append(r.Lease, l.Lease)
	r.MaxKeys = append(r.MaxKeys, l.MaxKeys)
	r.suffixes = append(r.suffixes, suffix(l, place, path))
	return nil
}

// suffix is what tells the keys of a rule's limits apart from those of others
// with the same entries. It never holds what a reload may change.
func suffix(l *config.RateLimit, place int, path string) string {
	switch {
	case !l.Grouped:
		return ";" + l.Unit
	case l.Name == "":
		return fmt.Sprintf(";%s#%d", path, place)
	default:
		return string(appendEscaped([]byte(";"+path+";"), l.Name, ""))
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
