// Package replay decides the requests of an access log by rules, at the times in the log.
// The caller describes the requests. Memory is bounded for logs of any length.
package replay

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/lab/accesslog"
	"github.com/weirlimit/weir/server/internal/topk"
)

const (
	// DefaultBytes bounds the memory of all keys of the limits by default.
	DefaultBytes = 512 << 20
	// DefaultTop is how many keys are named by default.
	DefaultTop = 10
	// kept is how many keys of a limit are counted one by one.
	kept = 10_000
	// levels is the number of steps for the use of a limit.
	levels = 10
)

// A Limit is one of the limits that requests may meet.
type Limit struct {
	// Name tells it apart from the others.
	Name string
	// Limit is the rule, compiled.
	Limit *weir.Limit
	// Shadow limits are counted, but refuse nobody.
	Shadow bool
	// Budget names the budget that the limit charges together with others; empty for one of
	// its own. A suggestion is for the budget and all charges of it.
	Budget string
	// Keep is how many units each request leaves to others.
	Keep int64
	// Alternative limits belong to a rule with alternatives: other limits decide which
	// requests they get, so nothing is suggested for them or for their budgets.
	Alternative bool
}

// An Asked charge is one that a request makes, and of which limit.
type Asked struct {
	Limit  int // index into the Options' Limits
	Act    *weir.Act
	Charge int // index into the act's charges
}

// A Question has the acts of one request, which are taken in order, and their charges.
type Question struct {
	Acts  []*weir.Act
	Asked []Asked
	// Matched says that a rule is for the request, even if it asks nothing.
	Matched bool
}

// Options say what is replayed. Limits and Ask have to be set.
type Options struct {
	Limits []Limit
	// Ask turns a record into a question. The question is used before Ask is called
	// again.
	Ask func(*accesslog.Record) (Question, error)
	// Suggest is the share of requests, 0 … 1, that a suggested limit may
	// refuse. Negative: suggest nothing.
	Suggest float64
	// MaxBytes bounds the memory of the keys; suggestions take up to twice as
	// much again. Zero: [DefaultBytes].
	MaxBytes int64
	// Top is how many keys are named. Zero: [DefaultTop].
	Top int
}

// A Replay goes through a log. It is for one goroutine. Create it with New.
type Replay struct {
	options  Options
	now      int64
	store    *memengine.Store
	axis     axis
	requests *course
	refused  *course
	limits   []*tally
	total    Totals
}

// Totals count requests, not charges.
type Totals struct {
	Requests int64
	Matched  int64 // that any rule is for
	Refused  int64 // by any limit that is not shadowed
	Invalid  int64 // that no rule could be asked, such as with a value that is too long
	// First and Last are the instants of the first and the last request.
	First, Last time.Time
	// Fractions says that some instant has a part of a second.
	Fractions bool
}

// tally has the counts of one limit.
type tally struct {
	matched, refused int64
	first, last      int64 // refusals, µs
	course           *course
	busy, denied     *topk.Counter[seen]
	used             [levels]int64 // grants, by the part of the limit in use after them
	ladder           *ladder
}

// seen has the data about a key since it is tracked.
type seen struct {
	refused int64
	closest float64 // the largest part of the limit in use
}

// New returns a replay that has seen nothing yet.
func New(o Options) *Replay {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.Top <= 0 {
		o.Top = DefaultTop
	}
	r := &Replay{options: o}
	r.requests, r.refused = r.axis.add(), r.axis.add()
	r.store = memengine.New(memengine.Options{MaxBytes: o.MaxBytes, Now: func() time.Time { return time.UnixMicro(r.now) }})
	budgets := make(map[string]*ladder)
	for _, l := range o.Limits {
		t := &tally{course: r.axis.add(), busy: topk.New[seen](kept), denied: topk.New[seen](kept)}
		if t.ladder = budgets[l.Budget]; t.ladder == nil && o.suggests(&l) {
			// All steps of all limits together have twice the memory of the rules.
			share := 2 * o.MaxBytes / int64(len(o.Limits)*len(tried(max(1, l.Limit.Count))))
			t.ladder = newLadder(l.Limit, share)
			if l.Budget != "" {
				budgets[l.Budget] = t.ladder
			}
		}
		r.limits = append(r.limits, t)
	}
	return r
}

// suggests reports whether a suggestion is made for the limit.
func (o *Options) suggests(l *Limit) bool {
	return o.Suggest >= 0 && !algo.TraitsOf(l.Limit.Algorithm).HoldsSlots && !slices.ContainsFunc(o.Limits, func(other Limit) bool {
		return other.Alternative && (other.Name == l.Name || l.Budget != "" && other.Budget == l.Budget)
	})
}

// Add asks for one record. Records come in the order of their time.
func (r *Replay) Add(record *accesslog.Record) {
	r.now = record.Micros
	if r.total.Requests == 0 {
		r.total.First = time.UnixMicro(r.now).UTC()
	}
	r.total.Requests++
	r.total.Last = time.UnixMicro(r.now).UTC()
	r.total.Fractions = r.total.Fractions || r.now%1_000_000 != 0
	point := r.axis.index(r.now)
	r.requests.count(point)
	q, err := r.options.Ask(record)
	if err != nil {
		r.total.Invalid++
		return
	}
	if q.Matched {
		r.total.Matched++
	}
	if len(q.Acts) > 0 {
		r.store.Take(context.Background(), q.Acts)
	}
	refused := false
	for _, asked := range q.Asked {
		granted := r.count(asked, point)
		refused = refused || !granted && !r.options.Limits[asked.Limit].Shadow
	}
	if refused {
		r.total.Refused++
		r.refused.count(point)
	}
}

// count notes the answer to one charge and reports whether the limit had room.
func (r *Replay) count(a Asked, point int) bool {
	t, charge, d := r.limits[a.Limit], &a.Act.Charges[a.Charge], a.Act.Decisions[a.Charge]
	if d.Outcome == weir.NotEvaluated && a.Act.Allowed() {
		return true // another alternative was granted
	}
	t.matched++
	busy := new(seen)
	if kept := t.busy.Add(charge.Key, 1); kept != nil {
		busy = &kept.Value
	}
	if t.ladder != nil {
		t.ladder.take(a.Act, a.Charge, r.now)
	}
	refused := a.Act.Err != nil || d.Outcome == weir.Refused
	if !refused {
		t.use(busy, charge.Limit, d)
		return true
	}
	if t.refused == 0 {
		t.first = r.now
	}
	t.refused++
	t.last = r.now
	busy.refused++
	busy.closest = 1
	t.denied.Add(charge.Key, 1)
	t.course.count(point)
	return false
}

// use notes how much of the limit is in use after a grant.
func (t *tally) use(busy *seen, l *weir.Limit, d weir.Decision) {
	capacity := l.Capacity()
	if capacity == 0 {
		return
	}
	used := max(0, capacity-d.Remaining)
	busy.closest = max(busy.closest, float64(used)/float64(capacity))
	t.used[max(0, (used*levels+capacity-1)/capacity-1)]++
}
