package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/server/internal/rules"
)

const teams = `
domain: shop
descriptors:
  - key: model
    descriptors:
      - key: team
        shares: {requests_per_unit: 100, unit: second, burst: 40, headroom: 16, guarantee: {search: 30, ads: 50}}
`

// TestShares: values with a guarantee have two alternatives, all others one, on one budget
// of the entries above.
func TestShares(t *testing.T) {
	t.Parallel()
	set := parse(t, teams)
	for descriptor, want := range map[string][]string{
		"model=a,team=search": {
			"model,team=search guaranteed: shop/model=a,team=search;model,team=search;model%2Cteam%3Dsearch%20guaranteed {shop/model=a} 1 keep 0",
			"model,team=search: shop/model=a;model,team#shares {shop/model=a} 1 keep 0 of model,team",
			"model,team=search: shop/model=a;model,team#shares {shop/model=a} 1 keep 13 of model,team",
		},
		"model=a,team=new": {"model,team: shop/model=a;model,team#shares {shop/model=a} 1 keep 13 of model,team"},
	} {
		if diff := cmp.Diff(want, charges(t, set, request(descriptor))); diff != "" {
			t.Errorf("%s: %s", descriptor, diff)
		}
	}
	plan, err := set.Plan(request("model=a,team=search"))
	if err != nil {
		t.Fatal(err)
	}
	if got := groups(plan); len(got) != 1 || !strings.HasPrefix(got[0], "0.0 ") || strings.Count(got[0], "0.0 ") != 2 || strings.Count(got[0], "0.1 ") != 1 {
		t.Errorf("%q", got)
	}
	// A local share has to know what is guaranteed beside it.
	for i, want := range []string{"search", "", ""} {
		if shares, class := plan.Acts[0].Charges[i].Limit.Shares(); shares == nil || class != want || shares.Keep() != 13 {
			t.Errorf("charge %d is of %+v, %q", i, shares, class)
		}
	}
	for _, entries := range []string{"model=a", "model=a,team=ads", "model=a,team=new"} {
		req := &rules.Request{Domain: "shop", Budget: "team", Descriptors: request(entries).Descriptors}
		if got := charges(t, set, req); len(got) != 1 || !strings.HasPrefix(got[0], "model,team: shop/model=a;model,team#shares ") {
			t.Errorf("the budget of %s: %v", entries, got)
		}
	}
}

// TestGuarantees floods a budget in random ways: a value that asks for no more than its
// guarantee is never refused, and all together never get more than the budget.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	set := parse(t, teams)
	now := time.Unix(1, 0)
	store := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	take := func(team string, cost int64) bool {
		req := request("model=a,team=" + team)
		req.Cost = cost
		plan, err := set.Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		defer plan.Free()
		plan.Take(t.Context(), store)
		return plan.Acts[0].Allowed()
	}
	// What each team may take by its guarantee alone.
	credit := map[string]*weir.Limit{
		"search": weir.Limit{Count: 30, Period: time.Second, Burst: 5}.MustCompile(),
		"ads":    weir.Limit{Count: 50, Period: time.Second, Burst: 8}.MustCompile(),
	}
	var total int64
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 40_000 {
		if r.IntN(3) == 0 {
			now = now.Add(time.Duration(r.IntN(60)) * time.Millisecond)
		}
		team := []string{"search", "ads", "other", "another"}[r.IntN(4)]
		cost := 1 + r.Int64N(4)
		entitled := false
		if own := credit[team]; own != nil {
			act := weir.Act{Charges: []weir.Charge{{Key: "credit " + team, Limit: own, Cost: cost}}, Decisions: make([]weir.Decision, 1)}
			store.Take(t.Context(), []*weir.Act{&act})
			entitled = act.Allowed()
		}
		granted := take(team, cost)
		if entitled && !granted {
			t.Fatalf("step %d: %s is refused %d units of its guarantee", step, team, cost)
		}
		if granted {
			total += cost
		}
		if most := 40 + int64(now.Sub(time.Unix(1, 0))*100/time.Second); total > most {
			t.Fatalf("step %d: %d units granted, want at most %d", step, total, most)
		}
	}
}

// TestDescribesBudgets: what each limit of a rule is to the budget that it charges, for
// metrics and pages.
func TestDescribesBudgets(t *testing.T) {
	t.Parallel()
	set := parse(t, teams+`
  - {key: region, value: eu, descriptors: [{key: team, shares: {requests_per_unit: 100, unit: second, guarantee: {ads: 50}}}]}
  - key: plan
    value: free-*
    share_threshold: true
    budgets: {m: {algorithm: gcra, requests_per_unit: 10, unit: day}}
    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 3, unit: day}]
    otherwise: [{rate_limit: {budget: m}}]
  - key: plan
    value: paid-*
    budgets: {m: {algorithm: gcra, requests_per_unit: 10, unit: day}}
    rate_limit: {budget: m}
`)
	var got []string
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			line := l.Name + " " + l.AlternativeName()
			if l.Budget != nil {
				line += fmt.Sprintf(" of %v, per key %v", l.Budget, r.PerKey(l.Budget))
			}
			if g := r.Guarantee(); g != nil {
				line += fmt.Sprintf(", guaranteed %v", g)
			}
			got = append(got, line)
		}
	}
	want := []string{
		"model,team=ads guaranteed 1, guaranteed 50/s burst 8",
		"model,team=ads guaranteed of model,team, per key true, guaranteed 50/s burst 8",
		"model,team=ads borrowed of model,team, per key true, guaranteed 50/s burst 8",
		"model,team=search guaranteed 1, guaranteed 30/s burst 5",
		"model,team=search guaranteed of model,team, per key true, guaranteed 30/s burst 5",
		"model,team=search borrowed of model,team, per key true, guaranteed 30/s burst 5",
		"model,team borrowed of model,team, per key true",
		"region=eu,team=ads guaranteed 1, guaranteed 50/s burst 10",
		"region=eu,team=ads guaranteed of region=eu,team, per key false, guaranteed 50/s burst 10",
		"region=eu,team=ads borrowed of region=eu,team, per key false, guaranteed 50/s burst 10",
		"region=eu,team borrowed of region=eu,team, per key false",
		"own 1",
		"plan=free-*#2 2 of plan=free-*#m, per key false",
		"plan=paid-*  of plan=paid-*#m, per key true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
