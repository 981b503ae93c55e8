package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/lab/report"
)

// Page shows the result.
func (r *Result) Page() *report.Page {
	t := &r.Totals
	p := &report.Page{
		Title: fmt.Sprintf("weir replay: %s of %s requests refused (%s)",
			report.Count(t.Refused), report.Count(t.Requests), report.Percent(t.Refused, t.Requests)),
		Lead: fmt.Sprintf("%s to %s UTC; requests that a rule applies to: %s (%s).",
			instant(t.First), instant(t.Last), report.Count(t.Matched), report.Percent(t.Matched, t.Requests)),
		Charts: r.charts,
	}
	p.Tables = append(p.Tables, r.limits())
	for _, table := range []report.Table{r.suggestions(), r.ladder(), r.use(), r.denied(), r.busiest()} {
		if len(table.Rows) > 0 {
			p.Tables = append(p.Tables, table)
		}
	}
	p.Notes = r.notes()
	return p
}

func (r *Result) limits() report.Table {
	t := report.Table{Title: "Limits", Head: []string{"rule", "limit", "requests", "refused", "refused%", "clients", "clients refused", "first refusal", "last refusal"}, Left: 2}
	for i := range r.Limits {
		l := &r.Limits[i]
		name := l.Name
		if l.Shadow {
			name += " (shadow)"
		}
		t.Rows = append(t.Rows, []string{
			name, l.text(), report.Count(l.Matched), report.Count(l.Refused), report.Percent(l.Refused, l.Matched), l.Clients.String(), l.RefusedClients.String(),
			instant(l.First), instant(l.Last),
		})
	}
	return t
}

// text returns the limit, with the units that requests leave to others.
func (l *Limit) text() string {
	text := l.Limit.String()
	if l.Keep > 0 {
		text += fmt.Sprint(" keep ", l.Keep)
	}
	return text
}

func (r *Result) suggestions() report.Table {
	t := report.Table{Title: "Suggested limits", Head: []string{"rule", "limit", "would refuse", "refused%"}, Left: 2}
	for _, l := range r.suggested() {
		s := l.Suggestion
		text := s.Limit.String()
		switch {
		case !s.Found:
			text = "more than " + text
		case s.Lowest:
			text += " or less"
		}
		t.Rows = append(t.Rows, []string{l.suggestedFor(), text, report.Count(s.Refused), report.Percent(s.Refused, s.Matched)})
	}
	return t
}

// suggested returns the limits with suggestions, one of each budget.
func (r *Result) suggested() (list []*LimitResult) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Suggestion != nil && !slices.ContainsFunc(list, func(other *LimitResult) bool { return other.Suggestion == l.Suggestion }) {
			list = append(list, l)
		}
	}
	return list
}

// suggestedFor names the limit, or the budget that it charges.
func (l *LimitResult) suggestedFor() string {
	if l.Budget != "" {
		return "budget " + l.Budget
	}
	return l.Name
}

// ladder shows the limits around each suggestion.
func (r *Result) ladder() report.Table {
	t := report.Table{Title: "Requests and clients that other limits would refuse", Head: []string{"rule", "limit", "refused", "refused%", "clients refused"}, Left: 2}
	for _, l := range r.suggested() {
		for _, s := range l.Steps {
			t.Rows = append(t.Rows, []string{l.suggestedFor(), s.Limit.String(), report.Count(s.Refused), report.Percent(s.Refused, l.Suggestion.Matched), s.Clients.String()})
		}
	}
	return t
}

// use shows how close requests came to their limits.
func (r *Result) use() report.Table {
	t := report.Table{Title: "Grants, by how much of the limit was in use after them", Head: []string{"rule"}, Left: 1}
	for i := range levels {
		t.Head = append(t.Head, fmt.Sprintf("≤%d%%", (i+1)*100/levels))
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		row := []string{l.Name}
		granted := l.Matched - l.Refused
		for _, n := range l.Used {
			if n == 0 {
				row = append(row, "·")
			} else {
				row = append(row, report.Percent(n, granted))
			}
		}
		if granted > 0 {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func (r *Result) denied() report.Table {
	t := report.Table{Title: "Keys refused most", Head: []string{"key", "rule", "refused"}, Left: 2}
	for i := range r.Limits {
		for _, k := range r.Limits[i].Denied {
			t.Rows = append(t.Rows, []string{printable(k.Key), r.Limits[i].Name, upTo(k)})
		}
	}
	return t
}

func (r *Result) busiest() report.Table {
	t := report.Table{Title: "Busiest keys", Head: []string{"key", "rule", "requests", "refused", "closest to the limit"}, Left: 2}
	for i := range r.Limits {
		for _, k := range r.Limits[i].Busiest {
			t.Rows = append(t.Rows, []string{
				printable(k.Key), r.Limits[i].Name, upTo(k), report.Count(k.Refused), fmt.Sprintf("%.0f%%", 100*k.Closest),
			})
		}
	}
	return t
}

// printable shortens a key for a table, without the name of its limit, which is in the
// next column. Keys have only printable bytes.
func printable(key string) string {
	const most = 60
	key, _, _ = strings.Cut(key, ";")
	if text := []rune(key); len(text) > most {
		return string(text[:most]) + "…"
	}
	return key
}

func (r *Result) notes() []string {
	var notes []string
	add := func(n int64, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	if r.Totals.Matched == 0 {
		notes = append(notes, "No rule applied to any request: descriptors whose fields the log lacks are left out, and the remaining ones have to match a rule.")
	}
	s := &r.Log
	add(s.Broken, "Lines that could not be read: %s of %s (%s).", report.Count(s.Broken), report.Count(s.Lines), report.Percent(s.Broken, s.Lines))
	for _, b := range s.Samples {
		notes = append(notes, fmt.Sprintf("%s:%d: %s: %s", b.File, b.Line, b.Why, b.Text))
	}
	add(s.Late, "Lines that came too late to be sorted, and count as of the latest instant: %s.", report.Count(s.Late))
	add(r.Totals.Invalid, "Requests that could not be decided, because a value is too long: %s.", report.Count(r.Totals.Invalid))
	add(r.Shared, "Charges that shared a budget because memory was short, so that too many may have been refused: %s; --memory raises the bound.", report.Count(r.Shared))
	if r.Totals.Requests > 1 && !r.Totals.Fractions {
		notes = append(notes, "The log has whole seconds only: requests of one second count as of one instant, which is stricter on short periods.")
	}
	if list := r.suggested(); len(list) > 0 {
		notes = append(notes, fmt.Sprintf("The suggestion is the lowest count that was tried and from which on no more requests are refused. Counts from 1/16 to %d times the limit's were tried, "+
			"each about a quarter above the one before; each limit separately, with its burst in proportion.", highestTried))
		if slices.ContainsFunc(list, func(l *LimitResult) bool { return l.Budget != "" }) {
			notes = append(notes, "The suggestion for a budget counts the requests of all rules that charge it; each keeps as many units free as it does now.")
		}
	}
	var without []string
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Unsuggested && l.Matched > 0 {
			without = append(without, l.Name)
		}
	}
	if len(without) > 0 {
		notes = append(notes, fmt.Sprintf("No limit is suggested for %s: how many requests each of these limits gets depends on the other alternatives.", strings.Join(without, ", ")))
	}
	return notes
}

// JSON is the result as programs read it; names and units are part of it.
func (r *Result) JSON() any {
	limits := make([]map[string]any, 0, len(r.Limits))
	for i := range r.Limits {
		limits = append(limits, r.Limits[i].json())
	}
	t := &r.Totals
	return map[string]any{
		"requests": t.Requests, "matched": t.Matched, "refused": t.Refused, "invalid": t.Invalid,
		"first": t.First.Format(time.RFC3339Nano), "last": t.Last.Format(time.RFC3339Nano),
		"lines": r.Log.Lines, "broken": r.Log.Broken, "late": r.Log.Late, "shared": r.Shared, "limits": limits,
	}
}

func (l *LimitResult) json() map[string]any {
	list := func(keys []Key) []map[string]any {
		all := make([]map[string]any, 0, len(keys))
		for _, k := range keys {
			all = append(all, map[string]any{"key": k.Key, "count": k.Count, "error": k.Error, "refused": k.Refused, "closest": k.Closest})
		}
		return all
	}
	object := map[string]any{
		"rule": l.Name, "limit": l.Limit.Limit.String(), "keep": l.Keep, "shadow": l.Shadow, "matched": l.Matched, "refused": l.Refused,
		"clients": l.Clients.N, "clients_refused": l.RefusedClients.N,
		"used_tenths": l.Used, "busiest": list(l.Busiest), "denied": list(l.Denied),
	}
	if l.Refused > 0 {
		object["first_refusal"], object["last_refusal"] = l.First.Format(time.RFC3339Nano), l.Last.Format(time.RFC3339Nano)
	}
	if s := l.Suggestion; s != nil {
		object["suggestion"] = map[string]any{"limit": s.Limit.String(), "requests": s.Matched, "refused": s.Refused, "found": s.Found, "lowest": s.Lowest}
	}
	if l.Budget != "" {
		object["budget"] = l.Budget
	}
	if len(l.Steps) > 0 {
		steps := make([]map[string]any, 0, len(l.Steps))
		for _, s := range l.Steps {
			steps = append(steps, map[string]any{"limit": s.Limit.String(), "refused": s.Refused, "clients_refused": s.Clients.N})
		}
		object["steps"] = steps
	}
	return object
}
