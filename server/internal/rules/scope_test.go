package rules_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestScopes wants the ID of an act to belong to the domain and the entries, whichever
// limits a reload gives them, and each kind of act to what it asks for.
func TestScopes(t *testing.T) {
	t.Parallel()
	scope := func(rule, descriptor string, change func(*rules.Request)) string {
		req := request(descriptor, "user=1")
		req.ID = "job"
		change(req)
		plan, err := parse(t, fmt.Sprintf("domain: %s\ndescriptors: [{key: user, %s}]", req.Domain, rule)).Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q %q", plan.Acts[0].Scope.Owner, plan.Acts[0].Scope.Asks)
	}
	const day, hour = "{algorithm: gcra, unit: day, requests_per_unit: 9}", "{algorithm: sliding_log, unit: hour, requests_per_unit: 5}"
	same := func(*rules.Request) {}
	want := scope("rate_limit: "+day, "user=2", same)
	for _, rule := range []string{
		"rate_limit: " + hour, "rate_limits: [" + hour + ", " + day + "]", "rate_limit: " + day + ", otherwise: [{rate_limits: [" + hour + "]}]",
		"shares: {unit: day, requests_per_unit: 9, guarantee: {a: 3}}",
	} {
		if got := scope(rule, "user=2", same); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
	seen := map[string]string{want: "the act"}
	for name, change := range map[string]func(*rules.Request){
		"another domain":     func(r *rules.Request) { r.Domain = "other" },
		"other entries":      func(r *rules.Request) { r.Descriptors[0] = entriesOf("user=3") },
		"entries swapped":    func(r *rules.Request) { r.Descriptors[0], r.Descriptors[1] = r.Descriptors[1], r.Descriptors[0] },
		"one descriptor":     func(r *rules.Request) { r.Descriptors = r.Descriptors[:1] },
		"another cost":       func(r *rules.Request) { r.Cost = 2 },
		"as many as fit":     func(r *rules.Request) { r.UpTo = 1 },
		"a cost for a meter": func(r *rules.Request) { r.Costs = map[string]int64{"requests": 1} },
		"a settlement of 3":  func(r *rules.Request) { r.Kind, r.Cost = acts.KindSettle, 3 },
	} {
		got := scope("rate_limit: "+day, "user=2", change)
		if other := seen[got]; other != "" {
			t.Errorf("%s has the scope of %s: %s", name, other, got)
		}
		seen[got] = name
	}
}
