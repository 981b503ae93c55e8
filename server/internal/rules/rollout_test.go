package rules_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rules"
)

const rollout = `
domain: shop
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1}]
descriptors:
  - {key: user, rate_limit: {<<: *one, requests_per_unit: 3}, trial: *one}
  - {key: named, rate_limit: {<<: *one, name: n}, trial: {<<: *one, name: n}}
  - {key: legacy, rate_limit: {unit: day, requests_per_unit: 3}, trial: *one}
  - {key: free, rate_limit: {unlimited: true}, trial: *one}
  - {key: place, rate_limit: *one, trial: {algorithm: concurrency, period: 1m, requests_per_unit: 1}}
  - {key: part, rate_limits: [*one, {<<: *one, unit: week}], enforce: 25%}
  - {key: all, rate_limit: *one, enforce: 100%}
  - {key: shared, value: "*", share_threshold: true, rate_limit: *one, enforce: 50%}
`

// TestTrialIsAnActOfItsOwn: with a key that no live limit has, whatever is named.
func TestTrialIsAnActOfItsOwn(t *testing.T) {
	t.Parallel()
	set := parse(t, rollout)
	for name, c := range map[string]struct {
		req  *rules.Request
		want [][]string
	}{
		"unnamed":          {request("user=1"), [][]string{{"shop/user=1;user#1"}, {"shop/user=1;user#trial"}}},
		"named":            {request("named=1"), [][]string{{"shop/named=1;named;n"}, {"shop/named=1;named#trial;n"}}},
		"beside theirs":    {request("legacy=1"), [][]string{{"shop/legacy=1;day"}, {"shop/legacy=1;legacy#trial"}}},
		"beside no limit":  {request("free=1"), [][]string{{"shop/free=1;free#trial"}}},
		"beside the group": {request("user=1", "all=1"), [][]string{{"shop/user=1;user#1", "shop/all=1;all#1"}, {"shop/user=1;user#trial"}}},
	} {
		plan, err := set.Plan(c.req)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, keysIn(plan)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func taken(t *testing.T, set *rules.Set, store weir.Taker, req *rules.Request) *rules.Plan {
	t.Helper()
	plan, err := set.Plan(req)
	if err != nil {
		t.Fatal(err)
	}
	plan.Take(t.Context(), store)
	return plan
}

// TestTrialRefusesNobody, and counts what it would have refused, while the live
// limit goes on being charged.
func TestTrialRefusesNobody(t *testing.T) {
	t.Parallel()
	set := parse(t, rollout)
	store := memengine.New(memengine.Options{})
	for i, want := range []string{"granted store, granted store", "granted store, granted shadow", "granted store, granted shadow", "refused store, granted shadow"} {
		plan := taken(t, set, store, request("user=1"))
		got := ""
		for j := range plan.Applied {
			d := plan.Applied[j].Decision()
			got += fmt.Sprintf(", %s %s", d.Outcome, d.Source)
		}
		if got[2:] != want {
			t.Errorf("request %d: %s, want %s", i+1, got[2:], want)
		}
	}
}

func TestTrialIsNobodysMistake(t *testing.T) {
	t.Parallel()
	set := parse(t, rollout)
	store := memengine.New(memengine.Options{})
	// Without an id nobody can hold a place, and the request gets none for a trial.
	plan := taken(t, set, store, request("place=1"))
	if plan.ID != "" || plan.Acts[1].Err == nil || plan.Err() != nil {
		t.Errorf("id %q, error of the trial %v, of the request %v", plan.ID, plan.Acts[1].Err, plan.Err())
	}
	if d := plan.Applied[1].Decision(); d != (weir.Decision{Outcome: weir.Granted}) {
		t.Errorf("the trial that was not decided says %+v", d)
	}
	// The live limit's failure is one.
	away := errors.New("away")
	plan.Acts[0].Err = away
	if !errors.Is(plan.Err(), away) {
		t.Errorf("got %v, want %v", plan.Err(), away)
	}
	// A cost that the live limit takes and the trial does not.
	req := request("legacy=1")
	req.Cost = weir.MaxCost + 1
	if plan, err := set.Plan(req); err != nil || len(plan.Acts) != 2 {
		t.Errorf("a cost that only the trial cannot take: %v", err)
	}
	// As many limits as one request may have, each with a trial.
	many := make([]string, 64)
	for i := range many {
		many[i] = fmt.Sprint("user=", i)
	}
	if plan, err := set.Plan(request(many...)); err != nil || len(plan.Acts) != 65 {
		t.Errorf("64 limits with trials: %v", err)
	}
}

// TestTrialLeavesIDsAlone: one that comes at a reload must not make a retry another
// request.
func TestTrialLeavesIDsAlone(t *testing.T) {
	t.Parallel()
	ids := func(text string) []string {
		req := request("a=1", "b=1")
		req.ID = "id"
		plan, err := parse(t, text).Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range plan.Applied {
			if a := &plan.Applied[i]; !a.Rule.OnTrial {
				all = append(all, a.Act.ID)
			}
		}
		return all
	}
	const before = "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: day}}, {key: b, rate_limit: {unit: day}}]"
	const after = "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: day}, trial: {algorithm: gcra, unit: day, requests_per_unit: 1}}, {key: b, rate_limit: {unit: day}}]"
	if diff := cmp.Diff(ids(before), ids(after)); diff != "" {
		t.Errorf("ids (-before +after):\n%s", diff)
	}
}

// enforced are the users whom a part of the keys has, of so many.
func enforced(t *testing.T, part string, users int) map[int]bool {
	t.Helper()
	set := parse(t, "domain: shop\ndescriptors: [{key: user, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 1}, enforce: "+part+"}]")
	found := map[int]bool{}
	for i := range users {
		plan, err := set.Plan(request(fmt.Sprint("user=", i)))
		if err != nil {
			t.Fatal(err)
		}
		if !plan.Applied[0].Rule.Shadow {
			found[i] = true
		}
	}
	return found
}

// TestPartsGrow: a larger part has all keys of a smaller one, and is as large as it
// says.
func TestPartsGrow(t *testing.T) {
	t.Parallel()
	const users = 20_000
	smaller := map[int]bool{}
	for _, c := range []struct {
		part  string
		share float64
	}{{"0%", 0}, {"0.5%", 0.005}, {"10%", 0.1}, {"50%", 0.5}, {"99.99%", 0.9999}, {"100%", 1}} {
		got := enforced(t, c.part, users)
		// Five times the standard deviation of so many draws is less than 2 %.
		if share := float64(len(got)) / users; share < c.share-0.02 || share > c.share+0.02 || (c.share == 0 || c.share == 1) && share != c.share {
			t.Errorf("%s: %d of %d", c.part, len(got), users)
		}
		for user := range smaller {
			if !got[user] {
				t.Fatalf("%s: user %d was among fewer, and is not now", c.part, user)
			}
		}
		smaller = got
	}
}

// TestPartsStay holds the hash: where it changes, other clients are refused from one
// release to the next.
func TestPartsStay(t *testing.T) {
	t.Parallel()
	got := enforced(t, "25%", 20)
	want := map[int]bool{0: true, 3: true, 4: true, 7: true, 10: true, 12: true, 13: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPartOfABudget: all limits of a rule are enforced for a key or none, whoever
// shares a budget shares that too, and each limit is an act of its own.
func TestPartOfABudget(t *testing.T) {
	t.Parallel()
	set := parse(t, rollout)
	both := map[bool]int{}
	for i := range 100 {
		plan, err := set.Plan(request(fmt.Sprint("part=", i), "all=1"))
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Acts) != 3 || plan.Applied[0].Rule != plan.Applied[1].Rule {
			t.Fatalf("part=%d: %v", i, keysIn(plan))
		}
		both[plan.Applied[0].Rule.Shadow]++
	}
	if both[true] == 0 || both[false] == 0 {
		t.Errorf("of 100 keys under 25 %% %d are watched and %d refused", both[true], both[false])
	}
	first, err := set.Plan(request("shared=0"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		plan, err := set.Plan(request(fmt.Sprint("shared=", i)))
		if err != nil || plan.Applied[0].Rule.Shadow != first.Applied[0].Rule.Shadow {
			t.Fatalf("shared=%d is not as shared=0 is: %v", i, err)
		}
	}
}
