package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
			"model,team=search: shop/model=a;model,team#shares {shop/model=a} 1 keep 0 guaranteed of model,team",
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
