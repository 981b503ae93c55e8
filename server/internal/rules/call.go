package rules

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/config"
)

// The bounds of limits in a call.
const (
	// MaxCallLimitBytes is the length of the longest text form, its name included.
	MaxCallLimitBytes = 128
)

// DefaultDomain is the domain of limits in a call that names none.
const DefaultDomain = "default"

// A Call is a limit that comes with a request, and what is asked of it. Its budget is that of
// the domain, the Key and the limit's name, or its algorithm and period if it has none:
// another count or burst is still the same budget.
type Call struct {
	// Key names who or what is limited: any bytes, at least one. The front end bounds them.
	Key string
	// Limit is the text form of the limit, as [weir.ParseLimit] reads it, with an optional
	// name before it: "login=5/min".
	Limit string
	// Name is the name of a Limit that has none in its text. A limit of the domain's file
	// with this name holds in its place. Empty: none.
	Name string
	// Cost is the number of units; 0 peeks. A concurrency limit has slots instead, as in
	// [Request.Cost].
	Cost int64
	// Keep is how many units the request leaves to others.
	Keep int64
}

// callMark is what follows the domain in the keys of limits in calls. The entries in keys of
// rules have "=", or come from a pattern with "*".
const callMark = "/call;"

// calls says what a domain lets programs do with limits of their own.
type calls struct {
	domain    string
	path      string // what the keys of all limits in calls begin with
	forbidden bool
	rls       *weir.Algorithm        // of limits in descriptors; nil for envoyproxy/ratelimit's window
	names     map[string]*namedCalls // that the domain's file has
	unnamed   namedCalls
}

// namedCalls are the settings of the limits in calls that have one name.
type namedCalls struct {
	// rule decides them; nil for none. One without Limits leaves the numbers to the calls.
	rule    *Rule
	maxKeys int // 0: not said
	// overflow are the keys that further keys share, by algorithm: states of different ones
	// differ.
	overflow [len(algo.Steps)]string
	failure  config.StoreFailure
}

func newNamed(path, name string, maxKeys int, failure config.StoreFailure) namedCalls {
	n := namedCalls{maxKeys: maxKeys, failure: failure}
	for i := range n.overflow {
		n.overflow[i] = path + "#further;" + algo.Steps[i].Name + "#" + name
	}
	return n
}

// CallPath is what the keys of all limits in calls to a domain begin with.
func CallPath(domain string) string {
	text := appendEscaped(nil, domain, "")
	if len(text) > config.MaxTextBytes {
		text = appendDigest([]byte("#"), text)
	}
	return string(append(text, callMark...))
}

// readCalls makes the settings of a domain.
func (s *Set) readCalls(name string, c *config.Calls) (*calls, error) {
	in := &calls{domain: name, path: CallPath(name), forbidden: c.Forbidden, rls: c.RLSAlgorithm, names: make(map[string]*namedCalls, len(c.Names))}
	in.unnamed = newNamed(in.path, "", c.MaxKeys, c.OnStoreFailure)
	s.bounded = s.bounded || c.MaxKeys > 0
	s.calls[in.path] = in
	for i := range c.Names {
		l := &c.Names[i]
		n := newNamed(in.path, l.Limit.Name, l.Limit.MaxKeys, l.Limit.OnStoreFailure)
		n.rule = in.newRule(l.Limit.Name)
		n.rule.At, n.rule.Shadow = l.Limit.At, l.Shadow
		if l.Limit.Grouped {
			if err := s.fix(n.rule, &n, l.Limit.Limit); err != nil {
				return nil, err
			}
		}
		if l.Trial != nil {
			trial := in.newRule(l.Limit.Name)
			trial.At, trial.Shadow, trial.OnTrial = l.Trial.At, true, true
			own := newNamed(in.path, l.Limit.Name+"#trial", l.Trial.MaxKeys, config.FailLocal)
			if err := s.fix(trial, &own, l.Trial.Limit); err != nil {
				return nil, err
			}
			trial.all[0].suffix += "#trial"
			n.rule.Trial = trial
		}
		s.bounded = s.bounded || n.maxKeys > 0
		in.names[l.Limit.Name] = &n
		s.callRules = append(s.callRules, n.rule)
	}
	return in, nil
}

// newRule returns a rule, without limits, for limits in calls.
func (in *calls) newRule(name string) *Rule {
	return &Rule{Domain: in.domain, Path: in.path + name, Name: name, Grouped: true}
}

// fix gives a rule the limit that the file has for it.
func (s *Set) fix(r *Rule, n *namedCalls, limit weir.Limit) error {
	if err := r.decidedBy(r.Name, limit); err != nil {
		return fmt.Errorf("%s: %w", r.Path, err)
	}
	l := r.all[0]
	l.MaxKeys, l.OnStoreFailure = n.maxKeys, n.failure
	f := facts{maxKeys: n.maxKeys, overflow: n.overflow[l.Algorithm], grouped: !r.OnTrial, failure: n.failure}
	if r.Shadow {
		f.watched = r
	}
	s.limits[l.Limit], s.limits[l.Limit.WithoutBlock()] = f, f
	return nil
}

// decidedBy gives a rule its limit; name is the one that was given, empty for none.
func (r *Rule) decidedBy(name string, limit weir.Limit) error {
	limit.Name = name
	if name == "" {
		limit.Name = unnamed(&limit)
	}
	compiled, err := limit.Compile()
	if err != nil {
		return err
	}
	r.all = []*Limit{{Limit: compiled, suffix: callSuffix(name, compiled)}}
	r.Limits = r.all
	return nil
}

// callMistake is the error of a field of the i-th limit in a call; empty for the limit itself.
func callMistake(i int, field, value, want string) error {
	if field == "" {
		return invalid("limits["+strconv.Itoa(i)+"]", value, want)
	}
	return &weir.InvalidError{List: "limits", Index: i, Field: field, Value: value, Want: want}
}

// maxShownBytes bounds what an error repeats of a limit.
const maxShownBytes = MaxCallLimitBytes

func shortened(text string) string {
	if len(text) <= maxShownBytes {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:maxShownBytes], "")) + "…"
}

// checkCalls checks everything about the limits in a call except for their text.
func (r *Request) checkCalls() error {
	if len(r.Calls) > weir.MaxCharges {
		return invalid("limits", len(r.Calls), fmt.Sprintf("at most %d limits", weir.MaxCharges))
	}
	if len(r.Domain) > config.MaxTextBytes {
		return tooLong("domain", r.Domain, config.MaxTextBytes)
	}
	for i := range r.Calls {
		switch c := &r.Calls[i]; {
		case c.Key == "":
			return callMistake(i, "key", "0 bytes", "at least 1 byte")
		case len(c.Limit)+len(c.Name) > MaxCallLimitBytes:
			return callMistake(i, "limit", shortened(c.Limit), fmt.Sprintf("at most %d bytes", MaxCallLimitBytes))
		case c.Cost < 0 || c.Cost > algo.MaxCount:
			return callMistake(i, "cost", strconv.FormatInt(c.Cost, 10), fmt.Sprintf("0 … %d", weir.MaxCost))
		case r.UpTo != 0 && (c.Cost == 0 || r.UpTo < c.Cost || r.UpTo > weir.MaxCost):
			return invalid("up_to", r.UpTo, fmt.Sprintf("the cost … %d, with a cost of at least 1", weir.MaxCost))
		}
	}
	return nil
}

// named returns the given name of a limit in a call, empty if it has none, and the rest of its
// text form.
func (c *Call) named(i int) (name, text string, err error) {
	text = c.Limit
	if before, after, found := strings.Cut(text, "="); found {
		name, text = before, after
		switch {
		case c.Name != "":
			return "", "", callMistake(i, "name", shortened(c.Name), "none beside the name "+shortened(name)+" in the limit")
		case !config.IsCallName(name):
			return "", "", callMistake(i, "limit", shortened(c.Limit), config.CallNameForm+" before its =")
		}
	}
	if c.Name != "" {
		name = c.Name
		if !config.IsCallName(name) {
			return "", "", callMistake(i, "name", shortened(name), config.CallNameForm)
		}
	}
	return name, text, nil
}

// callRule returns the rule that the i-th limit in a call is decided by, as if it stood in a
// file.
func (s *Set) callRule(in *calls, c *Call, i int) (*Rule, error) {
	text := callText{in.domain, c.Limit, c.Name}
	if r := s.compiled.get(&text); r != nil {
		return r, nil
	}
	name, limit, err := c.named(i)
	if err != nil {
		return nil, err
	}
	parsed, err := weir.ParseLimit(limit)
	if err != nil {
		return nil, callMistake(i, "limit", shortened(c.Limit), wanted(err))
	}
	r := in.newRule(name)
	if n := in.names[name]; n != nil {
		*r = *n.rule
	}
	if r.Limits == nil {
		if err := r.decidedBy(name, parsed); err != nil {
			return nil, callMistake(i, "limit", shortened(c.Limit), wanted(err))
		}
		r.Path = in.path + r.all[0].Limit.Name
	}
	s.compiled.put(&text, r)
	return r, nil
}

// wanted says what was expected of the text form of a limit.
func wanted(err error) string {
	mistake := new(weir.InvalidError)
	switch {
	case !errors.As(err, &mistake):
		return err.Error()
	case mistake.Field == "limit":
		return mistake.Want
	}
	return "its " + mistake.Field + " to be " + mistake.Want
}

// unnamed is the name of a limit without one: everything that its state depends on besides
// its numbers. The slash keeps it apart from given names.
func unnamed(l *weir.Limit) string {
	name := l.Algorithm.String() + "/" + l.Period.String()
	if l.TimeZone != "" {
		name += "/" + l.TimeZone
	}
	if l.AnchorDay > 1 {
		name += "/" + strconv.Itoa(l.AnchorDay)
	}
	return name
}

// callSuffix ends the keys of a limit in a call. States of different algorithms differ, so
// that the algorithm is a part of it.
func callSuffix(name string, l *weir.Limit) string {
	if name == "" {
		return string(appendEscaped([]byte(";"), l.Name, "/"))
	}
	return ";" + l.Algorithm.String() + "#" + name
}

// writeCall writes what the keys of a limit in a call begin with, and their hash tag: the key
// or, as in a Redis Cluster, the part of it in the first braces.
func (b *builder) writeCall(in *calls, key string) (base, tag span) {
	base = b.writeCallText(in, key)
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			return base, b.writeCallText(in, key[open+1:open+1+n])
		}
	}
	return base, base
}

func (b *builder) writeCallText(in *calls, key string) span {
	from := len(b.text)
	b.text = append(b.text, in.path...)
	start := len(b.text)
	if b.text = appendEscaped(b.text, key, "/=,"); len(b.text)-start > maxPlainBytes {
		b.text = appendDigest(append(b.text[:start], '#'), []byte(key))
	}
	return span{from, len(b.text)}
}

// findCalls compiles the limits in the call.
func (b *builder) findCalls(s *Set) error {
	in := s.callsOf(b.req.Domain)
	if in.forbidden {
		return ErrCallsForbidden
	}
	for i := range b.req.Calls {
		c := &b.req.Calls[i]
		rule, err := s.callRule(in, c, i)
		if err != nil {
			return err
		}
		own := rule.all[0]
		for j := range b.found {
			other := &b.found[j]
			if other.call != nil && !other.rule.OnTrial && other.call.Key == c.Key && other.rule.all[0].suffix == own.suffix {
				return callMistake(i, "", shortened(c.Limit)+" for the same key and budget as "+shortened(other.call.Limit), `a name of its own, as in "name=100/min"`)
			}
		}
		m := matched{descriptor: i, call: c, rule: rule, budgets: len(b.budgets), ask: Ask{Cost: c.Cost}, alone: rule.alone()}
		if slots := algo.TraitsOf(own.Algorithm).HoldsSlots; b.req.Kind == acts.KindRefund && b.req.ID == "" || b.req.Kind == acts.KindRecord {
			if slots {
				return callMistake(i, "limit", shortened(c.Limit), "a limit that counts units: a slot of concurrency has a holder, and is released by its id")
			}
			m.ask.Anonymous = b.req.Kind == acts.KindRefund
			m.alone = m.alone || m.ask.Anonymous
		}
		m.base, m.tag = b.writeCall(in, c.Key)
		b.found = append(b.found, m)
		if m.rule = rule.Trial; m.rule != nil {
			m.alone = true
			b.found = append(b.found, m)
		}
	}
	return nil
}

// Charges reports whether a take of the request may charge anything.
func (r *Request) Charges() bool {
	return (len(r.Descriptors) > 0 || len(r.Calls) == 0) && (r.Cost > 0 || r.UpTo > 0 || r.Costs != nil) || slices.ContainsFunc(r.Calls, func(c Call) bool { return c.Cost > 0 })
}

// OverrideAlgorithm returns how limits in descriptors count in a domain; nil for
// envoyproxy/ratelimit's window.
func (s *Set) OverrideAlgorithm(domain string) *weir.Algorithm {
	if d := s.domains[domain]; d != nil {
		return d.calls.rls
	}
	return nil
}

// callsOf returns the settings of a domain.
func (s *Set) callsOf(domain string) *calls {
	if d := s.domains[domain]; d != nil {
		return d.calls
	}
	if domain == DefaultDomain {
		return defaultCalls
	}
	return newCalls(domain)
}

// newCalls returns the settings of a domain that no file has.
func newCalls(domain string) *calls { return &calls{domain: domain, path: CallPath(domain)} }

var defaultCalls = newCalls(DefaultDomain)

// A callsError is the error of a limit in a call to a domain that forbids them.
type callsError struct{}

// ErrCallsForbidden is the error of a request with limits to a domain that forbids them.
// Nothing was charged.
var ErrCallsForbidden error = callsError{}

// Error says so.
func (callsError) Error() string {
	return "limits in a call are forbidden in this domain: only its rules count"
}

// Problem describes the error to the caller.
func (e callsError) Problem() *problem.Document {
	return &problem.Document{Status: http.StatusForbidden, Code: "forbidden", Field: "limits", Detail: e.Error()}
}

// CallPathOf returns what the key of a limit in a call begins with, see [CallPath]; empty for
// any other key.
func CallPathOf(key string) string {
	end := strings.IndexByte(key, '/')
	if end < 0 || !strings.HasPrefix(key[end:], callMark) {
		return ""
	}
	return key[:end+len(callMark)]
}

// callsIn returns the settings of a limit in a call by its key; nil if it is none.
func (s *Set) callsIn(c *weir.Charge) *namedCalls {
	path := CallPathOf(c.Key)
	if path == "" {
		return nil
	}
	in := s.calls[path]
	if in == nil {
		return &unknownCalls
	}
	if n := in.names[c.Limit.Name]; n != nil {
		return n
	}
	return &in.unnamed
}

// unknownCalls are the settings of all domains that no file has. Their keys share one bound,
// because anybody may make up domains.
var unknownCalls = newNamed("#"+callMark, "", 0, config.FailLocal)

// PlanCall returns the plan of a peek at the limit in calls that has a key and a name: a given
// name, behind its algorithm and "#" unless that is the file's or gcra, or the name that
// answers have for a limit without one, such as gcra/1m0s. It also reports whether the numbers
// of the limit are those of the file; otherwise they mean nothing. The error is a
// [*weir.InvalidError].
func (s *Set) PlanCall(domain, key, name string) (p *Plan, numbered bool, err error) {
	text := name + "=1/s"
	if algorithm, given, found := strings.Cut(name, "#"); found {
		text = given + "=1/s " + algorithm
	} else if parts := strings.SplitN(name, "/", 3); len(parts) > 1 {
		text = "1/" + parts[1] + " " + parts[0]
		if len(parts) > 2 {
			text += " time_zone " + parts[2]
			if zone, day, found := cutLast(parts[2]); found {
				text = "1/" + parts[1] + " " + parts[0] + " time_zone " + zone + " anchor_day " + day
			}
		}
	}
	p, err = s.Plan(&Request{Domain: domain, Calls: []Call{{Key: key, Limit: text}}})
	if mistake := new(weir.InvalidError); errors.As(err, &mistake) && mistake.Field == "limit" {
		return nil, false, invalid("name", strconv.Quote(name), `the name of a limit in calls, such as login, sliding_log#login or gcra/1m0s`)
	}
	if err != nil {
		return nil, false, err
	}
	_, numbered = s.limits[p.Applied[0].Limit]
	return p, numbered, nil
}

// cutLast cuts the number off that ends the name of a limit with an anchor day.
func cutLast(text string) (zone, day string, found bool) {
	end := strings.LastIndexByte(text, '/')
	if end < 0 {
		return text, "", false
	}
	_, err := strconv.Atoi(text[end+1:])
	return text[:end], text[end+1:], err == nil
}

// A callText is what identifies a limit in a call, before it is compiled.
type callText struct{ domain, limit, name string }

// maxCompiled is the number of compiled limits in calls that are kept. Programs use few; one
// that makes up many has them compiled each time.
const maxCompiled = 1024

// A compiledCalls keeps compiled limits in calls. When it is full, a new one replaces one that
// was not used lately. The zero value is empty.
type compiledCalls struct {
	mu    sync.RWMutex
	rules map[callText]*compiledCall
	ring  []*compiledCall
	hand  int // index in ring of the next one that may have to go
}

type compiledCall struct {
	text callText
	rule *Rule
	used atomic.Bool // since the hand passed
}

func (c *compiledCalls) get(text *callText) *Rule {
	c.mu.RLock()
	found := c.rules[*text]
	c.mu.RUnlock()
	if found == nil {
		return nil
	}
	if !found.used.Load() {
		found.used.Store(true)
	}
	return found.rule
}

func (c *compiledCalls) put(text *callText, r *Rule) {
	own := &compiledCall{text: callText{strings.Clone(text.domain), strings.Clone(text.limit), strings.Clone(text.name)}, rule: r}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.rules == nil:
		c.rules = make(map[callText]*compiledCall)
	case c.rules[own.text] != nil:
		return // compiled twice at the same time
	}
	c.rules[own.text] = own
	if len(c.ring) < maxCompiled {
		c.ring = append(c.ring, own)
		return
	}
	for c.ring[c.hand].used.Swap(false) {
		c.hand = (c.hand + 1) % maxCompiled
	}
	delete(c.rules, c.ring[c.hand].text)
	c.ring[c.hand] = own
	c.hand = (c.hand + 1) % maxCompiled
}
