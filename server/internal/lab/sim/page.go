package sim

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/lab/report"
)

// Page shows the result.
func (r *Result) Page() *report.Page {
	s := &r.Scenario
	p := &report.Page{
		Title:  s.title(),
		Lead:   s.lead(),
		Tables: []report.Table{r.table()},
		Charts: []report.Chart{
			r.chart("Most granted to one key within "+period(&s.Limit), func(run *Run) []int64 { return run.Held }, false),
			r.chart("Requests and grants a second", func(run *Run) []int64 { return run.Grants }, true),
		},
	}
	p.Charts[0].Limit = float64(s.Limit.Count)
	p.Notes = r.notes()
	return p
}

func (s *Scenario) title() string {
	if s.Name == "" {
		return "weir simulate: " + s.Limit.String()
	}
	return "weir simulate " + s.Name + ": " + s.Summary
}

// lead describes the scenario.
func (s *Scenario) lead() string {
	parts := []string{fmt.Sprintf("Limit %s; %s traffic", s.Limit.String(), s.Pattern)}
	if s.Pattern != Edge {
		parts[0] += fmt.Sprintf(" of %s requests a second", report.Number(s.Rate))
	}
	parts = append(parts, fmt.Sprintf("%s, %s, %v, seed %d", report.Counted(s.Keys, "key"), report.Counted(s.clients(), "client"), s.Duration, s.Seed))
	if s.Retry != RetryNever {
		parts = append(parts, "retries of refused clients: "+s.Retry.String())
	}
	if s.instances() > 1 {
		share := "one store"
		if s.LocalShares {
			share = "each with its own share"
		}
		parts = append(parts, fmt.Sprintf("%d instances, %s", s.Instances, share))
	}
	for _, f := range s.Faults {
		parts = append(parts, f.String())
	}
	return strings.Join(parts, "; ") + "."
}

func (r *Result) table() report.Table {
	t := report.Table{
		Head: []string{"algorithm", "offered", "granted", "refused", "refused %", "worst in " + period(&r.Scenario.Limit), "promised", "fairness", "bytes a key"},
		Left: 1,
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		promised := "–"
		if run.Bound > 0 {
			promised = "≤" + report.Count(run.Bound)
		}
		t.Rows = append(t.Rows, []string{
			run.Algorithm.String(), report.Count(run.Offered), report.Count(run.Granted), report.Count(run.Refused()),
			report.Percent(run.Refused(), run.Offered), report.Count(run.Worst), promised,
			fmt.Sprintf("%.3f", run.Fairness), report.Count(run.KeyBytes),
		})
	}
	return t
}

// chart shows a course of all runs; perSecond ones are counted by point, and have
// what was offered beside them.
func (r *Result) chart(title string, course func(*Run) []int64, perSecond bool) report.Chart {
	c := report.Chart{Title: title}
	scale := 1.0
	if perSecond {
		scale = r.Width.Seconds()
		// Without retries all algorithms are offered the same.
		name := "offered"
		if r.Scenario.Retry != RetryNever {
			name += " to " + r.Runs[0].Algorithm.String()
		}
		offered := series(name, r.Runs[0].Offers, scale)
		offered.Background = true
		c.Series = append(c.Series, offered)
	}
	for i := range r.Runs[0].Held {
		c.X = append(c.X, float64(i)*r.Width.Seconds())
	}
	for i := range r.Runs {
		c.Series = append(c.Series, series(r.Runs[i].Algorithm.String(), course(&r.Runs[i]), scale))
	}
	return c
}

func series(name string, values []int64, scale float64) report.Series {
	s := report.Series{Name: name, Values: make([]float64, len(values))}
	for i, v := range values {
		s.Values[i] = float64(v) / scale
	}
	return s
}

func (r *Result) notes() []string {
	notes := []string{
		"worst: the most units that one key could use in any half-open interval of the period; promised: the algorithm's bound for it.",
		"fairness: Jain's index of the clients' grants, 1 if all got the same. bytes a key: the memory store's estimate, for the first key.",
	}
	for i := range r.Runs {
		if run := &r.Runs[i]; run.LongestDelay > 0 {
			notes = append(notes, fmt.Sprintf("%s: grants waited up to %v before they were used; here they count when they are used.",
				run.Algorithm, run.LongestDelay.Round(1e6)))
		}
	}
	if r.Scenario.Retry != RetryNever {
		notes = append(notes, fmt.Sprintf("%s requests were original; the others were retries.", report.Count(r.Runs[0].Requests)))
	}
	return notes
}

// period is the limit's period as its text form has it.
func period(l *weir.Limit) string {
	plain := weir.Per(l.Count, l.Period)
	_, name, _ := strings.Cut(plain.String(), "/")
	if name[0] < '0' || name[0] > '9' {
		return "1 " + name
	}
	return name
}

// JSON is the result as programs read it; names and units are part of it.
func (r *Result) JSON() any {
	s := &r.Scenario
	faults := make([]string, 0, len(s.Faults))
	for _, f := range s.Faults {
		faults = append(faults, f.String())
	}
	runs := make([]map[string]any, 0, len(r.Runs))
	for i := range r.Runs {
		run := &r.Runs[i]
		runs = append(runs, map[string]any{
			"algorithm": run.Algorithm.String(), "limit": run.Limit.String(), "requests": run.Requests,
			"offered": run.Offered, "granted": run.Granted, "refused": run.Refused(), "worst": run.Worst, "promised": run.Bound,
			"fairness": run.Fairness, "key_bytes": run.KeyBytes, "longest_delay_ms": run.LongestDelay.Milliseconds(),
			"course": map[string]any{"offered": run.Offers, "granted": run.Grants, "held": run.Held},
		})
	}
	return map[string]any{
		"scenario": s.Name, "limit": s.Limit.String(), "pattern": s.Pattern.String(), "retry": s.Retry.String(),
		"rate": s.Rate, "keys": s.Keys, "clients": s.clients(), "duration_ms": s.Duration.Milliseconds(), "seed": s.Seed,
		"instances": s.instances(), "local_shares": s.LocalShares, "faults": faults,
		"point_us": r.Width.Microseconds(), "runs": runs,
	}
}
