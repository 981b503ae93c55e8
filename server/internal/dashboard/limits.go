package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const (
	maxLimits = 100
	// recent is the time that a limit's sparkline covers.
	recent = time.Minute
)

// results has something for each result of a charge: a count, or counts over time.
type results[T any] struct {
	Granted       T `json:"granted"`
	Refused       T `json:"refused"`
	NotCharged    T `json:"not_charged"`
	ShadowRefused T `json:"shadow_refused"`
	Failed        T `json:"failed"` // without a decision: their callers got an error
}

func (r *results[T]) of(d traffic.Decision) *T {
	switch d {
	case traffic.Refused:
		return &r.Refused
	case traffic.NotCharged:
		return &r.NotCharged
	case traffic.ShadowRefused:
		return &r.ShadowRefused
	case traffic.Failed:
		return &r.Failed
	}
	return &r.Granted
}

// limitState counts the charges of one limit since it came into force, and second by
// second in the last minute.
type limitState struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Budget string `json:"budget,omitempty"` // that it charges; empty: one of its own
	Mode   string `json:"mode,omitempty"`   // empty: it refuses all keys
	results[uint64]
	Passed   []uint32 `json:"passed"`   // granted or not charged, each second
	Stopped  []uint32 `json:"stopped"`  // refused, each second
	Shadowed []uint32 `json:"shadowed"` // would have been refused, each second
	Errors   []uint32 `json:"errors"`   // without a decision, each second
	// P50 and P99 are the recent latency of calls that charged it, in nanoseconds; 0
	// without any.
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	// Sources counts decisions by source since it came into force; errors are
	// [undecided].
	Sources map[string]uint64 `json:"sources"`
}

// limitStates are the states of limits by name.
type limitStates struct {
	all []limitState
	at  map[[2]string]int
}

// of returns the state of a limit. It adds one if there is none.
func (s *limitStates) of(domain, rule string, trial bool) *limitState {
	name := [2]string{domain, shown(rule, trial)}
	i, known := s.at[name]
	if !known {
		i = len(s.all)
		s.at[name] = i
		s.all = append(s.all, limitState{Domain: domain, Rule: name[1], Sources: map[string]uint64{}})
	}
	return &s.all[i]
}

// shown returns the name of a rule's limit, or of its limit on trial.
func shown(rule string, trial bool) string {
	if trial {
		return rule + " (on trial)"
	}
	return rule
}

// limits returns the states of all limits, with the last minute. If there are too many, it returns those with
// the most traffic in the last minute.
func (d *Dashboard) limits(lately traffic.Window) (all []limitState, left int) {
	states := &limitStates{all: []limitState{}, at: map[[2]string]int{}}
	for _, t := range d.Traffic.Totals() {
		l := states.of(t.Domain, t.Rule, t.Trial)
		l.Budget = t.Budget
		*l.of(t.Decision) += t.Count
		if t.Count > 0 {
			l.Sources[decider(t.Decision, t.Source)] += t.Count
		}
	}
	states.addRecent(lately)
	all = states.all
	if len(all) > maxLimits {
		slices.SortStableFunc(all, func(a, b limitState) int { return cmp.Compare(b.lately(), a.lately()) })
		all, left = all[:maxLimits], len(all)-maxLimits
	}
	modes := modesOf(d.Rules())
	for i := range all {
		all[i].Mode = modes[[2]string{all[i].Domain, all[i].Rule}]
	}
	return all, left
}

// addRecent adds the last minute.
func (s *limitStates) addRecent(w traffic.Window) {
	for i := range w.Series {
		series := &w.Series[i]
		l := s.of(series.Domain, series.Rule, series.Trial)
		to := &l.Passed
		switch series.Decision {
		case traffic.Refused:
			to = &l.Stopped
		case traffic.ShadowRefused:
			to = &l.Shadowed
		case traffic.Failed:
			to = &l.Errors
		}
		*to = sum(*to, series.Counts)
	}
	for i := range w.Timings {
		t := &w.Timings[i]
		l := s.of(t.Domain, t.Rule, t.Trial)
		l.P50, l.P99 = t.Lately.P50.Nanoseconds(), t.Lately.P99.Nanoseconds()
	}
}

// modesOf returns the modes of the limits that do not refuse all keys, by name.
func modesOf(set *rules.Set) map[[2]string]string {
	modes := map[[2]string]string{}
	for _, r := range set.Rules() {
		if mode := modeOf(r); mode != "" {
			for _, l := range r.Limits {
				modes[[2]string{r.Domain, l.Name}] = mode
			}
		}
	}
	return modes
}

// modeOf returns the mode of a rule that does not refuse all keys, or "".
func modeOf(r *rules.Rule) string {
	switch {
	case r.Shadow:
		return "shadow"
	case r.Unenforced > 0:
		return "enforced for " + r.Enforce()
	}
	return ""
}

func (l *limitState) lately() (n uint64) {
	for _, counts := range [][]uint32{l.Passed, l.Stopped, l.Shadowed, l.Errors} {
		for _, c := range counts {
			n += uint64(c)
		}
	}
	return n
}

// sum adds counts to others of the same length, or copies them if there are none yet.
func sum(to, counts []uint32) []uint32 {
	if to == nil {
		return slices.Clone(counts)
	}
	for i, n := range counts {
		to[i] += n
	}
	return to
}
