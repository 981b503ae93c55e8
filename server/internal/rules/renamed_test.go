package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/internal/rules"
)

// TestRenamed wants a limit with an earlier name to keep its keys, and one without to be named
// when the rules change.
func TestRenamed(t *testing.T) {
	t.Parallel()
	parse := func(limits string) *rules.Set {
		return rules.MustParse("f", "domain: d\ndescriptors:\n  - key: user\n    rate_limits: ["+limits+"]\n")
	}
	limit := func(name string) string {
		return "{" + name + ", requests_per_unit: 5, unit: day, algorithm: fixed_window}"
	}
	keys := func(s *rules.Set) string {
		plan, err := s.Plan(&rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "user", Value: "ann"}}}, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, a := range plan.Applied {
			all = append(all, a.Limit.Name+" "+a.Act.Charges[a.Charge].Key)
		}
		return strings.Join(all, ", ")
	}
	old := parse(limit("name: user") + ", " + limit("name: other"))
	for _, c := range []struct{ limits, keys, renamed string }{
		{limit("name: person, was: user") + ", " + limit("name: other"), "person d/user=ann;user;user, other d/user=ann;user;other", "[]"},
		{limit("name: person") + ", " + limit("name: other"), "person d/user=ann;user;person, other d/user=ann;user;other", "[{d/user f:3:5 user person}]"},
		{limit("name: user"), "user d/user=ann;user;user", "[]"},
		{limit("name: user") + ", " + limit("name: other") + ", " + limit("name: more"), "user d/user=ann;user;user, other d/user=ann;user;other, more d/user=ann;user;more", "[]"},
	} {
		s := parse(c.limits)
		if got := keys(s); got != c.keys {
			t.Errorf("%s, want %s", got, c.keys)
		}
		if got := fmt.Sprint(s.RenamedSince(old)); got != c.renamed {
			t.Errorf("%s, want %s", got, c.renamed)
		}
	}
}
