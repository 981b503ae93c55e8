package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/server/internal/accesslog"
	"github.com/weirlimit/weir/server/internal/report"
)

// A Result is what the limits would have done.
type Result struct {
	Totals Totals
	Log    accesslog.Stats
	Limits []LimitResult
	// Shared is how many charges had to share a budget because there was no
	// memory for their keys.
	Shared int64

	charts []report.Chart
}

// A LimitResult is what one limit would have done.
type LimitResult struct {
	Limit
	Matched, Refused int64
	// First and Last are the instants of its first and its last refusal.
	First, Last time.Time
	// Used has, for each tenth of the limit, the grants after which so much of
	// it was in use.
	Used [levels]int64
	// Busiest are the keys that asked most, Denied those refused most. Counts
	// are too high by at most their Error.
	Busiest, Denied []Key
	// Clients counts the keys that asked, and RefusedClients those that were refused.
	Clients, RefusedClients Distinct
	// Suggestion is nil where none was asked for, or none can be made.
	Suggestion *Suggestion
	// Steps are the limits that were tried around the suggestion.
	Steps []Step
}

// A Distinct counts distinct keys. If More is set, there may be more than N.
type Distinct struct {
	N    int64
	More bool
}

// String returns the count, with a plus sign if there are more.
func (d Distinct) String() string {
	if d.More {
		return report.Count(d.N) + "+"
	}
	return report.Count(d.N)
}

// A Key is what is known about one budget.
type Key struct {
	Key          string
	Count, Error int64
	// Refused and Closest, the largest part of the limit that was in use, are
	// told of the busiest keys, since they are among those counted.
	Refused int64
	Closest float64
}

// Result returns what was found so far.
func (r *Replay) Result(log accesslog.Stats) *Result {
	result := &Result{Totals: r.total, Log: log, charts: r.charts()}
	result.Shared = r.store.Stats().Overflowed
	for i, t := range r.limits {
		l := LimitResult{Limit: r.options.Limits[i], Matched: t.matched, Refused: t.refused, Used: t.used}
		if t.refused > 0 {
			l.First, l.Last = time.UnixMicro(t.first).UTC(), time.UnixMicro(t.last).UTC()
		}
		l.Clients, l.RefusedClients = t.busy.distinct(), t.denied.distinct()
		l.Busiest = keys(t.busy.top(r.options.Top, byCount))
		l.Denied = keys(t.denied.top(r.options.Top, byCount))
		if t.ladder != nil {
			l.Suggestion = t.ladder.suggest(r.options.Suggest, t.matched)
			l.Steps = t.ladder.around(l.Suggestion)
			result.Shared += t.ladder.shared()
		}
		result.Limits = append(result.Limits, l)
	}
	return result
}

func keys(all []*counted) []Key {
	list := make([]Key, 0, len(all))
	for _, c := range all {
		list = append(list, Key{Key: c.key, Count: c.count, Error: c.err, Refused: c.refused, Closest: c.closest})
	}
	return list
}

// charts draws the course of the log.
func (r *Replay) charts() []report.Chart {
	all := report.Chart{Title: "Requests a second", X: r.axis.instants(), Clock: true}
	all.Series = []report.Series{
		{Name: "requests", Values: r.requests.perSecond(&r.axis), Background: true},
		{Name: "refused", Values: r.refused.perSecond(&r.axis)},
	}
	order := make([]int, 0, len(r.limits))
	for i, t := range r.limits {
		if t.refused > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.limits[b].refused, r.limits[a].refused) })
	each := report.Chart{Title: "Refusals a second, by limit", X: all.X, Clock: true}
	for _, i := range order[:min(largestLine, len(order))] {
		each.Series = append(each.Series, report.Series{Name: r.options.Limits[i].Name, Values: r.limits[i].course.perSecond(&r.axis)})
	}
	if len(each.Series) == 0 {
		return []report.Chart{all}
	}
	return []report.Chart{all, each}
}

func (x *axis) instants() []float64 {
	at := make([]float64, x.points)
	for i := range at {
		at[i] = float64(x.start+int64(i)*x.width) / 1e6
	}
	return at
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

func upTo(k Key) string {
	if k.Error > 0 {
		return fmt.Sprintf("≤%s", report.Count(k.Count))
	}
	return report.Count(k.Count)
}
