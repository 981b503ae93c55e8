package traffic_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// TestAlternatives: the units of a budget are counted by the alternative that was charged,
// also over time, and stay counted through a reload. The log has the budget beside the rule.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	const text = `
domain: shop
budgets: {m: {algorithm: gcra, requests_per_unit: 100, unit: day}}
descriptors:
  - key: team
    shares: {requests_per_unit: 100, unit: day, headroom: 40, guarantee: {ads: 50, web: 25}}
  - key: user
    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 3, unit: day}, {budget: m}]
    otherwise: [{rate_limit: {budget: m, keep: 10}}]
  - {key: plain, rate_limit: {budget: m}}
`
	synctest.Test(t, func(t *testing.T) {
		f, log := logged(t, text)
		f.take(t, "team", "ads", 20)  // all that is guaranteed at once
		f.take(t, "team", "ads", 7)   // borrowed
		f.take(t, "team", "new", 5)   // without a guarantee
		f.take(t, "team", "new", 100) // refused
		f.take(t, "team", "web", 10)
		f.take(t, "user", "ann", 3)
		f.take(t, "user", "ann", 4)
		f.take(t, "plain", "ann", 6)
		want := []traffic.BudgetUsage{
			{Domain: "shop", Budget: "team", Rule: "team=ads", Alternative: "guaranteed", Units: 20},
			{Domain: "shop", Budget: "team", Rule: "team=ads", Alternative: "borrowed", Units: 7},
			{Domain: "shop", Budget: "team", Rule: "team=web", Alternative: "guaranteed", Units: 10},
			{Domain: "shop", Budget: "team", Rule: "team=web", Alternative: "borrowed"},
			{Domain: "shop", Budget: "team", Rule: "team", Alternative: "borrowed", Units: 5},
			{Domain: "shop", Budget: "m", Rule: "user#2", Alternative: "1", Units: 3},
			{Domain: "shop", Budget: "m", Rule: "user#3", Alternative: "2", Units: 4},
			{Domain: "shop", Budget: "m", Rule: "plain", Units: 6},
		}
		for _, when := range []string{"at first", "after a reload"} {
			if diff := cmp.Diff(want, f.BudgetUsage()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			f.Follow(rules.MustParse("shop.yaml", text))
		}
		if got := log.after(2500 * time.Millisecond); len(got) != 1 || !strings.Contains(got[0], "rule=team ") || !strings.Contains(got[0], "budget=team") {
			t.Errorf("logged %q", got)
		}
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]uint32{}
		for _, c := range f.History(5 * time.Second).Classes {
			for _, n := range c.Units {
				got[c.Rule+" "+c.Alternative] += n
			}
		}
		history := map[string]uint32{"team=ads guaranteed": 20, "team=ads borrowed": 7, "team=web guaranteed": 10, "team borrowed": 5, "user#2 1": 3, "user#3 2": 4, "plain ": 6}
		if diff := cmp.Diff(history, got); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		// Nothing of a budget that is gone stays.
		f.Follow(rules.MustParse("shop.yaml", "domain: shop\ndescriptors:\n  - {key: team, rate_limit: {name: team=ads, algorithm: gcra, requests_per_unit: 10, unit: day}}\n"))
		if all, classes := f.BudgetUsage(), f.History(5*time.Second).Classes; len(all)+len(classes) != 0 {
			t.Errorf("after the budget is gone: %v, %v", all, classes)
		}
		if slices.ContainsFunc(f.Totals(), func(n traffic.Total) bool { return n.Budget != "" }) {
			t.Error("a budget that is gone has totals")
		}
	})
}
