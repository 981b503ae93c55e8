package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/server/internal/rules"
)

// hold holds units of a descriptor key=value, and settles them at another number, unless it is
// negative.
func (f *fixture) hold(t *testing.T, key, value string, held, settled int64) {
	t.Helper()
	taker := observe.Wrap(memengine.New(memengine.Options{}), observe.Options{Observer: f.recorder})
	plan, err := f.set.Plan(&rules.Request{
		Domain: "d", Descriptors: [][]rules.Entry{{{Key: key, Value: value}}}, Cost: held, Hold: time.Minute, ID: "call",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Take(context.Background(), taker); err != nil {
		t.Fatal(err)
	}
	if settled < 0 {
		return
	}
	for _, a := range plan.Acts {
		a.Kind, a.Hold = acts.KindSettle, 0
		for i := range a.Charges {
			a.Charges[i].Cost = settled
		}
	}
	taker.Take(context.Background(), plan.Acts)
	for _, a := range plan.Acts {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// TestHolds: units of a hold count under a name of their own, and under that of granted units
// when they are settled, as many as they cost. Slots are granted at once.
func TestHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, `
domain: d
budgets: {m: {algorithm: gcra, unit: day, requests_per_unit: 1000}}
descriptors:
  - key: key
    rate_limits:
      - {budget: m, name: budget}
      - {name: own, algorithm: fixed_window, unit: day, requests_per_unit: 1000}
  - {key: open, rate_limit: {name: open, algorithm: concurrency, period: 1m, requests_per_unit: 10}}
`)
	f.ask(t, "d", "key=plain", 7)
	f.hold(t, "key", "less", 100, 30)
	f.hold(t, "key", "more", 100, 300)
	f.hold(t, "key", "nothing", 100, 0)
	f.hold(t, "key", "never", 100, -1)
	f.hold(t, "open", "a", 1, 0)
	for name, want := range map[string]map[string]float64{
		"weir_granted_units_total":     {"{domain=d,rule=budget}": 337, "{domain=d,rule=own}": 337, "{domain=d,rule=open}": 1},
		"weir_held_units_total":        {"{domain=d,rule=budget}": 400, "{domain=d,rule=own}": 400},
		"weir_budget_units_total":      {"{budget=m,domain=d,rule=budget}": 337},
		"weir_budget_held_units_total": {"{budget=m,domain=d,rule=budget}": 400},
	} {
		got := f.counts(t, name)
		delete(got, "{domain=(request),rule=*}")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

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
