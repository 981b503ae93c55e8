package metrics_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBudgets: rules keep their names, and their budgets have metrics of their own, also
// where several rules give their limits one name. Guaranteed units are counted apart
// from borrowed ones, for the classes of the rules and no others.
func TestBudgets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, `
domain: d
descriptors:
  - key: model
    value: a
    budgets: {m: {algorithm: gcra, unit: day, requests_per_unit: 5}}
    descriptors:
      - {key: class, value: batch, rate_limit: {budget: m, keep: 3, name: tokens}}
      - {key: class, value: live, rate_limit: {budget: m}}
  - key: model
    value: b
    budgets: {m: {algorithm: gcra, unit: day, requests_per_unit: 5}}
    rate_limit: {budget: m, name: tokens}
  - key: team
    shares: {requests_per_unit: 100, unit: day, headroom: 40, guarantee: {ads: 50}}
`)
	for _, descriptor := range []string{"model=a,class=batch", "model=a,class=live", "model=b"} {
		for range 4 {
			f.ask(t, "d", descriptor, 1)
		}
	}
	for range 25 {
		f.ask(t, "d", "team=ads", 1)
	}
	for _, team := range []string{"team=new", "team=newer"} {
		f.ask(t, "d", team, 3)
	}
	want := map[string]float64{
		"{budget=model=a#m,domain=d,rule=tokens}":             2,
		"{budget=model=a#m,domain=d,rule=model=a,class=live}": 3,
		"{budget=model=b#m,domain=d,rule=tokens}":             4,

		"{alternative=guaranteed,budget=team,domain=d,rule=team=ads}": 20,
		"{alternative=borrowed,budget=team,domain=d,rule=team=ads}":   5,
		"{alternative=borrowed,budget=team,domain=d,rule=team}":       6,
	}
	if diff := cmp.Diff(want, f.counts(t, "weir_budget_units_total")); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
	want = map[string]float64{
		"{decision=granted,domain=d,rule=tokens,source=store}":              6,
		"{decision=refused,domain=d,rule=tokens,source=store}":              2,
		"{decision=granted,domain=d,rule=model=a,class=live,source=store}":  3,
		"{decision=refused,domain=d,rule=model=a,class=live,source=store}":  1,
		"{decision=granted,domain=d,rule=team=ads guaranteed,source=store}": 20,
		"{decision=granted,domain=d,rule=team=ads,source=store}":            25,
		"{decision=granted,domain=d,rule=team,source=store}":                2,
	}
	if diff := cmp.Diff(want, f.counts(t, "weir_decisions_total")); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
