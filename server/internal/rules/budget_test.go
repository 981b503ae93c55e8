package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

const shared = `
domain: shop
x-limits: [&ten {algorithm: gcra, unit: minute, requests_per_unit: 10}]
budgets: {all: {algorithm: gcra, unit: minute, requests_per_unit: 100, max_keys: 7, on_store_failure: deny}}
descriptors:
  - key: model
    budgets: {m: *ten}
    rate_limit: {budget: all}
    descriptors:
      - {key: class, value: interactive, rate_limit: {budget: m}}
      - {key: class, value: batch, rate_limit: {budget: m, keep: 3}}
      - {key: class, value: watched, shadow_mode: true, rate_limit: {budget: m, keep: 3}}
      - {key: class, value: part, enforce: 50%, rate_limit: {budget: m, keep: 3}}
      - key: class
        value: several
        hash_tag: [model]
        rate_limits: [{budget: m, name: first, keep: 2}, {<<: *ten, keep: 4}, {budget: all, name: last}]
  - {key: other, rate_limits: [{<<: *ten, replaces: [{name: first}]}]}
  - key: "tier-*"
    share_threshold: true
    budgets: {"a;b/c": *ten}
    descriptors: [{key: class, rate_limit: {budget: "a;b/c"}}]
  - {key: tokens, budgets: {t: {algorithm: concurrency, period: 1m, requests_per_unit: 4}}, rate_limit: {budget: t, keep: 1}}
`

// charges shows the charges of a plan: name, key, hash tag, cost, keep, whether it is
// guaranteed, and budget.
func charges(t *testing.T, set *rules.Set, req *rules.Request) []string {
	t.Helper()
	plan, err := set.Plan(req)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range plan.Applied {
		c := a.Act.Charges[a.Charge]
		text := fmt.Sprintf("%s: %s {%s} %d keep %d", a.Limit.Name, c.Key, c.HashTag, c.Cost, c.Keep)
		if c.Guaranteed {
			text += " guaranteed"
		}
		if a.Of.Budget != nil {
			text += " of " + a.Of.Budget.Label
		}
		all = append(all, text)
	}
	return all
}

// TestBudgetKeys: rules on one budget have one key in one hash slot, whatever else their
// requests say.
func TestBudgetKeys(t *testing.T) {
	t.Parallel()
	set := parse(t, shared)
	for _, c := range []struct {
		req  *rules.Request
		want []string
	}{
		{request("model=gpt,class=interactive", "model=gpt,class=batch", "model=x,class=batch"), []string{
			"model,class=interactive: shop/model=gpt;model#budget;m {shop/model=gpt} 1 keep 0 of model#m",
			"model,class=batch: shop/model=gpt;model#budget;m {shop/model=gpt} 1 keep 3 of model#m",
			"model,class=batch: shop/model=x;model#budget;m {shop/model=x} 1 keep 3 of model#m",
		}},
		{request("model=" + strings.Repeat("x", 3000)), []string{"model: shop/;#budget;all {shop/} 1 keep 0 of all"}},
		{request("model=gpt,class=several"), []string{
			"first: shop/model=gpt;model#budget;m {shop/model=gpt} 1 keep 2 of model#m",
			"model,class=several#2: shop/model=gpt,class=several;model,class=several#2 {shop/model=gpt} 1 keep 4",
			"last: shop/;#budget;all {shop/} 1 keep 0 of all",
		}},
		{request("model=gpt,class=several", "other=1"), []string{
			"model,class=several#2: shop/model=gpt,class=several;model,class=several#2 {shop/model=gpt} 1 keep 4",
			"last: shop/;#budget;all {shop/} 1 keep 0 of all",
			"other: shop/other=1;other#1 {shop/other=1} 1 keep 0",
		}},
		{request("tier-a=1,class=x", "tier-b=2,class=y"), []string{
			"tier-*,class: shop/tier-*;tier-*#budget;a%3Bb%2Fc {shop/tier-*} 1 keep 0 of tier-*#a;b/c",
			"tier-*,class: shop/tier-*;tier-*#budget;a%3Bb%2Fc {shop/tier-*} 1 keep 0 of tier-*#a;b/c",
		}},
		{&rules.Request{Domain: "shop", Budget: "m", Descriptors: request("model=gpt,class=batch").Descriptors}, []string{
			"model#m: shop/model=gpt;model#budget;m {shop/model=gpt} 0 keep 0 of model#m",
		}},
		{&rules.Request{Domain: "shop", Budget: "all", Descriptors: [][]rules.Entry{nil}}, []string{
			"all: shop/;#budget;all {shop/} 0 keep 0 of all",
		}},
	} {
		if diff := cmp.Diff(c.want, charges(t, set, c.req)); diff != "" {
			t.Error(diff)
		}
	}
	for _, req := range []*rules.Request{
		{Domain: "shop", Budget: "m", Descriptors: request("other=1").Descriptors},
		{Domain: "shop", Budget: "x", Descriptors: request("model=gpt").Descriptors},
	} {
		if plan, err := set.Plan(req); err != nil || plan.Unmatched != rules.UnmatchedRule {
			t.Errorf("a budget that nobody declares: %+v, %v", plan, err)
		}
	}
	for key, want := range map[string]string{
		"shop/;#budget;all":                "shop [] all",
		"shop/model=gpt;model#budget;m%2F": "shop [{model gpt}] m/",
		"shop/tenant=a;tenant,team#shares": "shop [{tenant a}] team",
		"shop/;team#shares":                "shop [] team",
		"shop/model=a,b=c;model,b#budget":  "shop [{model a} {b c}] ",
		"shop/user=42;user;daily":          "shop [{user 42}] ",
	} {
		if domain, entries, ok := rules.ParseKey(key); !ok || fmt.Sprint(domain, " ", entries, " ", rules.BudgetOf(key)) != want {
			t.Errorf("%s: %s %v %s %v", key, domain, entries, rules.BudgetOf(key), ok)
		}
	}
}

// TestKeep: acts that answer what a take could get have the units that takes keep free, and
// a shadow rule makes no request invalid.
func TestKeep(t *testing.T) {
	t.Parallel()
	set := parse(t, shared)
	for _, kind := range []weir.Kind{acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRecord, acts.KindReset} {
		req := request("model=gpt,class=batch")
		if req.Kind = kind; kind != acts.KindRecord && kind != acts.KindReset {
			req.ID = "a"
		}
		plan, err := set.Plan(req)
		if err != nil {
			t.Errorf("%v: %v", kind, err)
			continue
		}
		if keep := plan.Acts[0].Charges[0].Keep; (keep == 3) != (kind != acts.KindRecord && kind != acts.KindReset) {
			t.Errorf("%v keeps %d", kind, keep)
		}
	}
	req := request("model=gpt,class=batch")
	req.MaxWait = time.Second
	if _, err := set.Plan(req); err == nil || !strings.Contains(err.Error(), "descriptors[0]") || !strings.Contains(err.Error(), "booked ahead") {
		t.Errorf("booked ahead: %v", err)
	}
	req = request("model=gpt,class=watched", "other=1")
	req.MaxWait = time.Second
	if plan, err := set.Plan(req); err != nil || plan.Acts[0].MaxWait != 0 || plan.Acts[1].MaxWait != time.Second {
		t.Errorf("a shadow rule: %v", err)
	}
	req = request("model=gpt,class=batch")
	req.Each = []rules.Ask{{Cost: 1, Refund: true}}
	if plan, err := set.Plan(req); err != nil || plan.Acts[0].Charges[0].Keep != 3 {
		t.Errorf("a refund among takes: %v", err)
	}
}

// TestFactsOfBudgets: what a budget's file says holds for every rule that charges it.
func TestFactsOfBudgets(t *testing.T) {
	t.Parallel()
	set := parse(t, shared)
	for _, descriptor := range []string{"model=gpt", "model=gpt,class=several"} {
		plan, err := set.Plan(request(descriptor))
		if err != nil {
			t.Fatal(err)
		}
		last := plan.Applied[len(plan.Applied)-1]
		if n, overflow := set.MaxKeys(&weir.Charge{Limit: last.Limit}, 0); n != 7 || overflow != "shop/;#budget;all" {
			t.Errorf("%s: %d %s", descriptor, n, overflow)
		}
		if failure, ok := set.OnStoreFailure(&last.Act.Charges[last.Charge]); !ok || failure.String() != "deny" {
			t.Errorf("%s: %v", descriptor, failure)
		}
	}
}
