package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/server/internal/lab/accesslog"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/topk"
)

// A Result has the decisions that the limits would have made.
type Result struct {
	Totals Totals
	Log    accesslog.Stats
	Limits []LimitResult
	// Shared is how many charges had to share a budget because there was no
	// memory for their keys.
	Shared int64

	charts []report.Chart
}

// A LimitResult has the decisions that one limit would have made.
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
	// Suggestion is nil where none was asked for, or none can be made. Limits of one Budget
	// have the same.
	Suggestion *Suggestion
	// Unsuggested says that there is none because of alternatives.
	Unsuggested bool
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

// A Key has the data about one budget.
type Key struct {
	Key          string
	Count, Error int64
	// Refused, and Closest, the largest part of the limit that was in use, cover the time
	// in which the key was among the busiest.
	Refused int64
	Closest float64
}

// Result returns the result so far.
func (r *Replay) Result(log accesslog.Stats) *Result {
	result := &Result{Totals: r.total, Log: log, charts: r.charts()}
	result.Shared = r.store.Stats().Overflowed
	budgets := make(map[*ladder]*Suggestion)
	for i, t := range r.limits {
		l := LimitResult{Limit: r.options.Limits[i], Matched: t.matched, Refused: t.refused, Used: t.used}
		if t.refused > 0 {
			l.First, l.Last = time.UnixMicro(t.first).UTC(), time.UnixMicro(t.last).UTC()
		}
		l.Clients, l.RefusedClients = distinct(t.busy), distinct(t.denied)
		l.Busiest = keys(t.busy, r.options.Top)
		l.Denied = keys(t.denied, r.options.Top)
		if t.ladder != nil {
			if _, known := budgets[t.ladder]; !known {
				budgets[t.ladder] = t.ladder.suggest(r.options.Suggest)
				result.Shared += t.ladder.shared()
			}
			l.Suggestion = budgets[t.ladder]
			l.Steps = t.ladder.around(l.Suggestion)
		}
		l.Unsuggested = t.ladder == nil && r.options.Suggest >= 0
		result.Limits = append(result.Limits, l)
	}
	return result
}

// distinct returns the number of different keys.
func distinct(c *topk.Counter[seen]) Distinct { return Distinct{int64(len(c.Keys())), c.Dropped()} }

// keys returns the keys that came most often.
func keys(c *topk.Counter[seen], most int) []Key {
	list := make([]Key, 0, len(c.Keys()))
	for _, k := range c.Keys() {
		list = append(list, Key{Key: k.Name, Count: int64(k.Count), Error: int64(k.Error), Refused: k.Value.refused, Closest: k.Value.closest})
	}
	slices.SortFunc(list, func(a, b Key) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return list[:min(most, len(list))]
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
