package traffic

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// maxSeries bounds the memory of the history: at most this many counts over time, of
// 4 KB each.
const maxSeries = 4096

// resolutions are the steps of the history, in seconds: seconds for the last five
// minutes, ten seconds for the last hour, minutes for the last six hours.
var resolutions = [...]struct{ step, points int64 }{{1, 300}, {10, 360}, {60, 360}}

// history is the clock of all steps.
type history struct {
	last   int64 // the second that was kept last, since 1970; 0 before the first
	series int
	called *timing // all calls
}

// rings keep the latest values over time, in each resolution.
type rings[T any] [len(resolutions)][]T

func newRings[T any]() (r rings[T]) {
	for i, of := range resolutions {
		r[i] = make([]T, of.points)
	}
	return r
}

// advance makes room for the steps after that of last, up to and with that of now, and
// reports whether there are any.
func (r *rings[T]) advance(resolution int, last, now int64) bool {
	of := resolutions[resolution]
	from, to := last/of.step+1, now/of.step
	for at := max(from, to-of.points+1); at <= to; at++ {
		var none T
		r[resolution][at%of.points] = none
	}
	return from <= to
}

// at returns the value of the step that now is in.
func (r *rings[T]) at(resolution int, now int64) *T {
	of := resolutions[resolution]
	return &r[resolution][now/of.step%of.points]
}

// read returns the values of one resolution up to the last whole step before end.
func (r *rings[T]) read(resolution int, points, end int64) []T {
	out := make([]T, points)
	for i := range out {
		out[i] = r[resolution][(end-points+int64(i))%resolutions[resolution].points]
	}
	return out
}

// steps are a count over time.
type steps struct {
	rings[uint32]
	seen uint64 // the total at the last second that was kept
}

// add adds the growth of a total.
func (s *steps) add(total uint64, now int64) {
	grown := uint32(min(total-s.seen, 1<<32-1))
	s.seen = total
	for i := range resolutions {
		*s.at(i, now) += grown
	}
}

// keep adds the counts since its last call to the history.
func (r *Recorder) keep(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := at.Unix()
	h := &r.history
	if now <= h.last {
		// The clock went back: the counts wait until it has caught up.
		if now > h.last-resolutions[0].points {
			return
		}
		r.forget()
	}
	h.time(&h.called, &r.latency, now)
	for _, t := range r.table.Load().tallies {
		t.keep(h, now)
	}
	for _, p := range r.table.Load().parts {
		h.keep(&p.steps, &p.units, now)
	}
	h.last = now
	r.used.turn(at)
	r.refused.turn(at)
}

// forget starts the history again with the counts from now on.
func (r *Recorder) forget() {
	r.history.last = 0
	for _, kept := range r.history.kept(r.table.Load()) {
		kept.forget()
	}
}

func (s *steps) forget() { s.rings = newRings[uint32]() }

func (t *tally) keep(h *history, now int64) {
	for d := range t.counts {
		for s := range t.counts[d] {
			h.keep(&t.steps[d][s], &t.counts[d][s], now)
		}
	}
	h.time(&t.timing, t.latency.Load(), now)
}

// keep adds one count to the history, if it was ever above 0 and there is room for it.
func (h *history) keep(to **steps, count *atomic.Uint64, now int64) {
	total := count.Load()
	if *to == nil {
		if total == 0 || h.series >= maxSeries {
			return
		}
		*to = &steps{rings: newRings[uint32]()}
		h.series++
	} else {
		for i := range resolutions {
			(*to).advance(i, h.last, now)
		}
	}
	(*to).add(total, now)
}

// keepOnly counts the series again, once some are gone.
func (h *history) keepOnly(t *table) { h.series = len(h.kept(t)) }

// kept returns the series of a table that have begun.
func (h *history) kept(t *table) (all []interface{ forget() }) {
	if h.called != nil {
		all = append(all, h.called)
	}
	for _, tally := range t.tallies {
		if tally.timing != nil {
			all = append(all, tally.timing)
		}
		for d := range tally.steps {
			for _, s := range tally.steps[d] {
				if s != nil {
					all = append(all, s)
				}
			}
		}
	}
	for _, p := range t.parts {
		if p.steps != nil {
			all = append(all, p.steps)
		}
	}
	return all
}

// A Series is how often a limit reached one decision, over time.
type Series struct {
	Domain, Rule string
	Trial        bool // of the rule, not the rule itself
	Decision     Decision
	Source       weir.Source // of no meaning where the Decision is Failed
	Counts       []uint32    // one for each point of the [Window]
}

// A Class is how many units a rule was granted of a budget, over time.
type Class struct {
	Domain, Budget, Rule string
	// Alternative names the one of the rule's that was charged, see
	// [rules.Limit.AlternativeName].
	Alternative string
	Units       []uint32 // one for each point of the [Window]
}

// A Window is a part of the history in equal steps.
type Window struct {
	Start time.Time // of the first step
	Step  time.Duration
	// Points is how many steps there are.
	Points int
	// Series has one element for each decision that was ever reached, Timings one for
	// each limit that was ever charged, and Classes one for each alternative of a rule that
	// was ever granted units of a budget. Beyond 4096 together, new ones are left out.
	Series  []Series
	Timings []Timing
	Classes []Class
	// Latency has one element for each step, of all calls.
	Latency []Latency
}

// History returns the last span of time, at most six hours, in the finest steps that
// cover it: seconds up to five minutes, ten seconds up to an hour, else minutes. The
// current step is left out.
func (r *Recorder) History(span time.Duration) Window {
	resolution := 0
	seconds := max(1, int64(span/time.Second))
	for resolution < len(resolutions)-1 && seconds >= resolutions[resolution].step*resolutions[resolution].points {
		resolution++
	}
	kept := resolutions[resolution]
	// One point of the ring is the one that has not ended.
	points := min((seconds+kept.step-1)/kept.step, kept.points-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.history.last / kept.step
	w := Window{Start: time.Unix((end-points)*kept.step, 0), Step: time.Duration(kept.step) * time.Second, Points: int(points)}
	if r.history.last == 0 {
		return w
	}
	for _, t := range r.table.Load().tallies {
		for d := range t.steps {
			for s, kept := range t.steps[d] {
				if kept != nil {
					w.Series = append(w.Series, Series{t.domain, t.rule, t.trial, Decision(d), weir.Source(s), kept.read(resolution, points, end)})
				}
			}
		}
		if t.timing != nil {
			w.Timings = append(w.Timings, Timing{t.domain, t.rule, t.trial, t.timing.latencies(resolution, points, end), t.timing.lately(r.history.last)})
		}
	}
	for _, p := range r.table.Load().parts {
		if p.steps != nil {
			w.Classes = append(w.Classes, Class{p.domain, p.budget, p.rule, p.alternative, p.steps.read(resolution, points, end)})
		}
	}
	w.Latency = r.history.called.latencies(resolution, points, end)
	return w
}

// A Total is how often a limit has reached one decision since it came into force.
type Total struct {
	Domain, Rule string
	Budget       string // that the limit charges; empty: one of its own
	Trial        bool   // of the rule, not the rule itself
	Decision     Decision
	Source       weir.Source // of no meaning where the Decision is Failed
	Count        uint64
}

// A Usage counts the grants under a limit since it came into force.
type Usage struct {
	Domain, Rule string
	// Units is the number of units that were used: granted without a hold, or charged by a
	// settlement. Held is that of units granted to holds, and NearLimit that of grants when
	// the limit was nearly used up.
	Units, Held, NearLimit uint64
}

// Totals returns every decision that was reached, limit by limit in the order of
// the files, after those of limits that came with requests. The store's grants and
// refusals are included from the start, even if they are 0.
func (r *Recorder) Totals() []Total {
	var all []Total
	for _, t := range r.table.Load().tallies {
		for d := range t.counts {
			for s := range t.counts[d] {
				n, usual := t.counts[d][s].Load(), weir.Source(s) == acts.SourceStore && Decision(d) <= Refused
				if n > 0 || usual && t.domain != RequestDomain {
					all = append(all, Total{t.domain, t.rule, t.budget, t.trial, Decision(d), weir.Source(s), n})
				}
			}
		}
	}
	return all
}

// Usage returns the grants under each limit, in the order of Totals. Limits on trial
// grant nothing.
func (r *Recorder) Usage() []Usage {
	var all []Usage
	for _, t := range r.table.Load().tallies {
		if !t.trial {
			all = append(all, Usage{t.domain, t.rule, t.units.Load(), t.held.Load(), t.nearLimit.Load()})
		}
	}
	return all
}

// A BudgetUsage counts the units of a budget that one alternative of a rule used since it
// came into force, as a [Usage] does. The alternative is empty for a rule that has one.
type BudgetUsage struct {
	Domain, Budget, Rule, Alternative string
	Units, Held                       uint64
}

// BudgetUsage returns the units that were used of budgets, in the order of the files.
// Limits on trial grant nothing.
func (r *Recorder) BudgetUsage() []BudgetUsage {
	var all []BudgetUsage
	for _, p := range r.table.Load().parts {
		all = append(all, BudgetUsage{p.domain, p.budget, p.rule, p.alternative, p.units.Load(), p.held.Load()})
	}
	return all
}
