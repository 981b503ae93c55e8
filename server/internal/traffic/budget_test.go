package traffic_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/traffic"
)

// TestClasses: the history has the units that each rule was granted of a budget, and the
// log has the budget beside the rule.
func TestClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := newFixture(t, `
domain: shop
budgets: {m: {algorithm: gcra, requests_per_unit: 10, unit: day}}
descriptors:
  - {key: live, rate_limit: {budget: m}}
  - {key: batch, rate_limit: {budget: m, keep: 4}}
  - {key: own, rate_limit: {algorithm: gcra, requests_per_unit: 10, unit: day}}
`, traffic.Options{Refusals: slog.New(slog.NewTextHandler(&log, nil))})
		f.Start()
		f.take(t, "batch", "a", 5)
		f.take(t, "batch", "b", 5)
		f.take(t, "live", "a", 3)
		f.take(t, "own", "a", 1)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); strings.Count(got, "msg=refused") != 1 || !strings.Contains(got, "rule=batch") || !strings.Contains(got, "budget=m") {
			t.Errorf("the log has %q", got)
		}
		units := map[string]uint32{}
		for _, c := range f.History(5 * time.Second).Classes {
			for _, n := range c.Units {
				units[c.Budget+" "+c.Rule] += n
			}
		}
		if units["m batch"] != 5 || units["m live"] != 3 || len(units) != 2 {
			t.Errorf("the history has %v", units)
		}
		// A rule that moves to a limit of its own is a class no more.
		f.Follow(parse(t, "domain: shop\ndescriptors:\n  - {key: live, rate_limit: {algorithm: gcra, requests_per_unit: 10, unit: day}}\n"))
		if all := f.History(5 * time.Second).Classes; len(all) != 0 {
			t.Errorf("after a reload: %v", all)
		}
		if slices.ContainsFunc(f.Totals(), func(n traffic.Total) bool { return n.Budget != "" }) {
			t.Error("a budget that is gone has totals")
		}
	})
}

// TestAlternatives: the units of a budget are counted by the alternative that was charged,
// and stay counted through a reload.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
budgets: {m: {algorithm: gcra, requests_per_unit: 100, unit: day}}
descriptors:
  - key: team
    shares: {requests_per_unit: 100, unit: day, headroom: 40, guarantee: {ads: 50, web: 25}}
  - key: user
    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 3, unit: day}, {budget: m}]
    otherwise: [{rate_limit: {budget: m, keep: 10}}]
`
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rules, traffic.Options{})
		f.Start()
		f.take(t, "team", "ads", 20)  // all that is guaranteed at once
		f.take(t, "team", "ads", 7)   // borrowed
		f.take(t, "team", "new", 5)   // without a guarantee
		f.take(t, "team", "new", 100) // refused
		f.take(t, "team", "web", 10)
		f.take(t, "user", "ann", 3)
		f.take(t, "user", "ann", 4)
		want := []traffic.BudgetUsage{
			{Domain: "shop", Budget: "team", Rule: "team=ads", Alternative: "guaranteed", Units: 20},
			{Domain: "shop", Budget: "team", Rule: "team=ads", Alternative: "borrowed", Units: 7},
			{Domain: "shop", Budget: "team", Rule: "team=web", Alternative: "guaranteed", Units: 10},
			{Domain: "shop", Budget: "team", Rule: "team=web", Alternative: "borrowed"},
			{Domain: "shop", Budget: "team", Rule: "team", Alternative: "borrowed", Units: 5},
			{Domain: "shop", Budget: "m", Rule: "user#2", Alternative: "1", Units: 3},
			{Domain: "shop", Budget: "m", Rule: "user#3", Alternative: "2", Units: 4},
		}
		for _, when := range []string{"at first", "after a reload"} {
			if diff := cmp.Diff(want, f.BudgetUsage()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			f.Follow(parse(t, rules))
		}
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]uint32{}
		for _, c := range f.History(5 * time.Second).Classes {
			for _, n := range c.Units {
				got[c.Rule+" "+c.Alternative] += n
			}
		}
		history := map[string]uint32{"team=ads guaranteed": 20, "team=ads borrowed": 7, "team=web guaranteed": 10, "team borrowed": 5, "user#2 1": 3, "user#3 2": 4}
		if diff := cmp.Diff(history, got); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		// Nothing of a budget that is gone stays.
		f.Follow(parse(t, "domain: shop\ndescriptors:\n  - {key: team, rate_limit: {name: team=ads, algorithm: gcra, requests_per_unit: 10, unit: day}}\n"))
		if all := f.BudgetUsage(); len(all) != 0 {
			t.Errorf("after the budget is gone: %v", all)
		}
	})
}
