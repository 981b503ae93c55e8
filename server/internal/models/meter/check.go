package meter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// CheckRules returns the mistakes in the rules of a domain that no request could ever match, or
// that clients could evade, as [config.Problems]; nil if there are none. HasLabel reports whether
// a source of callers gives a label. MaxKeys is the number of keys of limits that state none; 0
// for any number.
func CheckRules(set *rules.Set, domain string, hasLabel func(string) bool, maxKeys int) error {
	var problems config.Problems
	report := func(r *rules.Rule, what, want string) {
		problems = append(problems, config.Problem{File: r.At.File, Line: r.At.Line, Column: r.At.Column, What: what, Want: want})
	}
	classes := set.Classes(domain)
	for _, r := range set.Rules() {
		if r.Domain != domain || len(r.Entries) == 0 {
			continue
		}
		first := r.Entries[0].Key
		below := []string{entryModel}
		switch {
		case first == entryEndUser:
			report(r, "a rule about end_user alone", "key above it: clients choose their end users, which may only narrow what a key may do")
			continue
		case first == entryKey:
			below = append(below, entryEndUser)
		case strings.Contains(first, "*"):
			continue
		case first == entryModel:
			below = nil
		case first == labelClass && len(classes) > 0:
			if value := config.NewGlob(r.Entries[0].Value); value.String() != "" && !slices.ContainsFunc(classes, value.Match) {
				report(r, fmt.Sprintf("a rule about the class %q", value), "one of the classes "+strings.Join(classes, ", "))
				continue
			}
		case !hasLabel(first):
			report(r, fmt.Sprintf("a rule about %q, which no request has", first), "key, model, or a label that callers can have")
			continue
		}
		switch {
		case len(r.Entries) > 2, len(r.Entries) == 2 && !slices.Contains(below, r.Entries[1].Key):
			want := "nothing below " + first
			if len(below) > 0 {
				want = strings.Join(below, " or ") + " below " + first + ", and nothing below that"
			}
			report(r, fmt.Sprintf("a rule about %s, which no request has", path(r)), want)
		case len(r.Entries) == 2 && r.Entries[1].Key == entryEndUser && maxKeys == 0:
			for _, l := range r.Limits {
				if l.MaxKeys == 0 {
					report(r, "a limit on end_user without max_keys", "max_keys, or --max-keys: clients invent end users")
					break
				}
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	problems.Sort()
	return problems
}

// path writes the keys of a rule.
func path(r *rules.Rule) string {
	var keys []string
	for _, e := range r.Entries {
		keys = append(keys, e.Key)
	}
	return strings.Join(keys, ", ")
}
