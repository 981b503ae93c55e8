package traffic

import (
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A Decision is the outcome of a charge, as operators see it.
type Decision uint8

const (
	// Granted charges passed.
	Granted Decision = iota
	// Refused charges had no room.
	Refused
	// NotCharged charges had room, but another one of their act was refused.
	NotCharged
	// ShadowRefused charges would have been refused, but their rule is only
	// watched, or is not enforced for their key. Those on trial are Refused.
	ShadowRefused
	// Failed charges have no decision: their caller got an error.
	Failed
	decisions
)

var decisionNames = [decisions]string{"granted", "refused", "not_charged", "shadow_refused", "error"}

// String returns the decision as it stands in metrics and JSON.
func (d Decision) String() string {
	if d < decisions {
		return decisionNames[d]
	}
	return "unknown"
}

const sources = acts.SourceFailClosed + 1

// A tally counts for one limit.
type tally struct {
	name
	counts    [decisions][sources]atomic.Uint64
	units     atomic.Uint64 // used: charged without a hold, or by a settlement
	held      atomic.Uint64 // granted to holds
	nearLimit atomic.Uint64
	sample    atomic.Pointer[string] // a key that was refused, for the log
	shadowed  atomic.Pointer[string] // one that would have been refused
	steps     [decisions][sources]*steps
	latency   atomic.Pointer[latency] // of calls that charge it; nil before the first
	timing    *timing
}

// sampleOf returns the sample of refusals, or of those that are not enforced.
func (t *tally) sampleOf(shadow bool) *atomic.Pointer[string] {
	if shadow {
		return &t.shadowed
	}
	return &t.sample
}

// A part counts the units of a budget that one alternative of a rule used.
type part struct {
	partName
	units atomic.Uint64
	held  atomic.Uint64
	steps *steps
}

type partName struct {
	name
	alternative string // see [rules.Limit.AlternativeName]
}

// counted is what counting needs to know about a limit.
type counted struct {
	*tally
	part   *part // nil for a limit that charges no budget, and on trial
	shadow bool
	// near is the number of remaining units below which a limit is nearly used up.
	near int64
}

// A table finds the tally of a limit. It is immutable.
type table struct {
	limits  map[*weir.Limit]counted
	current map[*weir.Limit]counted // of the rules in force, without those before
	tallies []*tally
	byName  map[name]*tally
	parts   []*part
	part    map[partName]*part
	request *tally                 // of limits that are nobody's rule
	calls   map[string]*callDomain // by what the keys of limits in calls begin with
}

// A name identifies a limit to readers. A trial has the name of its rule, and a limit that
// charges a budget has its label beside it.
type name struct {
	domain, rule, budget string
	trial                bool
}

// Follow counts by new rules from now on. Limits that keep their domain and name keep
// their counts. Counts of removed limits are dropped.
func (r *Recorder) Follow(set *rules.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.table.Load()
	if before == nil {
		before = &table{request: &tally{name: name{domain: RequestDomain, rule: "*"}}}
	}
	t := &table{
		limits: map[*weir.Limit]counted{}, current: map[*weir.Limit]counted{}, byName: map[name]*tally{}, part: map[partName]*part{},
		tallies: []*tally{before.request}, request: before.request,
	}
	for _, rule := range set.Rules() {
		for _, form := range rule.Forms() {
			for _, limit := range form.Limits {
				t.add(form, limit, name{form.Domain, limit.Name, limit.Budget.String(), form.OnTrial}, before, r.ratio)
			}
		}
	}
	t.followCalls(set, before, r.ratio)
	t.adopt(before)
	r.table.Store(t)
	r.history.keepOnly(t)
}

// add finds a place for a limit of a rule. Limits of one name share a tally.
func (t *table) add(rule *rules.Rule, limit *rules.Limit, n name, before *table, ratio float32) {
	found := t.tallyOf(n, before)
	most := limit.Capacity()
	p := counted{tally: found, shadow: rule.Shadow, near: most - int64(float32(most)*ratio)}
	if n.budget != "" && !n.trial {
		p.part = t.partOf(partName{n, limit.AlternativeName()}, before)
	}
	t.limits[limit.Limit], t.current[limit.Limit] = p, p
}

// tallyOf returns the tally of a name, with the counts that it had before.
func (t *table) tallyOf(n name, before *table) *tally {
	if found := t.byName[n]; found != nil {
		return found
	}
	found := before.byName[n]
	if found == nil {
		found = &tally{name: n}
	}
	t.list(found)
	return found
}

func (t *table) list(own *tally) {
	if t.byName[own.name] == nil {
		t.byName[own.name] = own
		t.tallies = append(t.tallies, own)
	}
}

// partOf finds the place for the units of a budget. Limits of one name and alternative share
// it.
func (t *table) partOf(n partName, before *table) *part {
	found := t.part[n]
	if found == nil {
		if found = before.part[n]; found == nil {
			found = &part{partName: n}
		}
		t.part[n], t.parts = found, append(t.parts, found)
	}
	return found
}

// adopt lets the limits of the previous rules count under their new tallies: acts under
// them may be in flight.
func (t *table) adopt(before *table) {
	for limit, p := range before.current {
		if still := t.byName[p.name]; still != nil {
			if _, known := t.limits[limit]; !known {
				t.limits[limit] = p
			}
		}
	}
}

// find returns the place of a charge's limit.
func (r *Recorder) find(t *table, l *weir.Limit, c *weir.Charge) counted {
	if p, known := t.limits[l]; known {
		return p
	}
	return r.findCall(t, l, c)
}
