package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rules"
)

const waterfall = `
domain: shop
x-limits: [&two {algorithm: gcra, unit: day, requests_per_unit: 2}, &ten {algorithm: gcra, unit: day, requests_per_unit: 10}]
budgets: {pool: {algorithm: gcra, unit: day, requests_per_unit: 3}}
descriptors:
  - {key: plain, rate_limit: *ten}
  - key: tenant
    rate_limits: [{<<: *two, name: own}]
    otherwise:
      - rate_limit: {budget: pool, keep: 1}
  - key: three
    hash_tag: [three]
    rate_limit: {<<: *two, name: first}
    otherwise:
      - rate_limits: [{<<: *ten, name: second}, {<<: *two, name: with}]
      - rate_limit: {<<: *ten, name: third}
  - {key: other, rate_limit: {<<: *ten, replaces: [{name: with}]}}
  - key: watched
    shadow_mode: true
    rate_limit: {<<: *two, name: w1}
    otherwise: [{rate_limit: {<<: *two, name: w2}}]
  - key: slots
    rate_limit: {algorithm: concurrency, period: 60s, requests_per_unit: 1, name: s1}
    otherwise: [{rate_limit: {algorithm: concurrency, period: 60s, requests_per_unit: 2, name: s2}}]
`

// groups shows the acts of a plan: their charges by group, alternative and name.
func groups(plan *rules.Plan) []string {
	var all []string
	for _, act := range plan.Acts {
		text := ""
		for _, c := range act.Charges {
			text += fmt.Sprintf("%d.%d %s {%s} ", c.Group, c.Alt, c.Limit.Name, c.HashTag)
		}
		all = append(all, strings.TrimSpace(text))
	}
	return all
}

// TestGroups: rules with alternatives are groups of the one act of a request, in one hash
// slot each; shadow rules are acts of their own; a replaced limit takes its alternative
// along.
func TestGroups(t *testing.T) {
	t.Parallel()
	set := parse(t, waterfall)
	for _, c := range []struct {
		descriptors []string
		want        []string
	}{
		{[]string{"plain=1"}, []string{"0.0 plain {shop/plain=1}"}},
		{[]string{"plain=1", "plain=2", "tenant=a", "plain=3", "tenant=b"}, []string{
			"0.0 plain {shop/plain=1} 0.0 plain {shop/plain=2} 1.0 own {shop/} 1.1 tenant#2 {shop/} 2.0 plain {shop/plain=3} 3.0 own {shop/} 3.1 tenant#2 {shop/}",
		}},
		{[]string{"tenant=a", "watched=1", "three=x"}, []string{
			"0.0 own {shop/} 0.1 tenant#2 {shop/} 1.0 first {shop/three=x} 1.1 second {shop/three=x} 1.1 with {shop/three=x} 1.2 third {shop/three=x}",
			"0.0 w1 {shop/watched=1} 0.1 w2 {shop/watched=1}",
		}},
		{[]string{"three=x", "other=1"}, []string{"0.0 first {shop/three=x} 0.2 third {shop/three=x} 1.0 other {shop/other=1}"}},
	} {
		plan, err := set.Plan(request(c.descriptors...))
		if err != nil {
			t.Errorf("%v: %v", c.descriptors, err)
			continue
		}
		if diff := cmp.Diff(c.want, groups(plan)); diff != "" {
			t.Errorf("%v: %s", c.descriptors, diff)
		}
	}
}

// TestWaterfall takes until nothing is left, and compares which limits speak.
func TestWaterfall(t *testing.T) {
	t.Parallel()
	set := parse(t, waterfall)
	taker := memengine.New(memengine.Options{Now: func() time.Time { return time.Unix(1, 0) }})
	var got []string
	for _, descriptor := range []string{"tenant=a", "tenant=a", "tenant=a", "tenant=b", "tenant=a", "tenant=a", "three=x", "watched=1", "watched=1", "watched=1", "watched=1", "watched=1"} {
		plan, err := set.Plan(request(descriptor))
		if err != nil {
			t.Fatal(err)
		}
		plan.Take(t.Context(), taker)
		text := descriptor
		for i := range plan.Applied {
			a := &plan.Applied[i]
			if d := a.Decision(); a.Chosen() {
				text += fmt.Sprintf(" %d %s %v by %v", a.Of.Alternative, a.Limit.Name, d.Outcome, d.Source)
			}
		}
		got = append(got, text)
	}
	want := []string{
		"tenant=a 1 own granted by store", "tenant=a 1 own granted by store",
		"tenant=a 2 tenant#2 granted by store", "tenant=b 1 own granted by store",
		"tenant=a 2 tenant#2 granted by store",
		"tenant=a 2 tenant#2 refused by store", // a third of a day, not half of one
		"three=x 1 first granted by store",
		"watched=1 1 w1 granted by store", "watched=1 1 w1 granted by store", "watched=1 2 w2 granted by store", "watched=1 2 w2 granted by store",
		"watched=1 1 w1 granted by shadow",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOwners: charges with alternatives or of a budget have an owner, which only the entries
// tell apart. Limits on trial have none, and neither has a budget that is named itself.
func TestOwners(t *testing.T) {
	t.Parallel()
	set := parse(t, strings.Replace(waterfall, "shadow_mode: true", "trial: {<<: *ten, name: tried}", 1)+`
  - {key: both, rate_limits: [{<<: *ten, name: own}, {budget: pool}]}
  - {key: team, shares: {unit: day, requests_per_unit: 100, guarantee: {ads: 50}}}
`)
	for descriptor, want := range map[string]string{
		"plain=1":   `""`,
		"tenant=a":  `"shop/tenant=a;#rule" "shop/tenant=a;#rule"`,
		"both=a":    `"shop/both=a;#rule" "shop/both=a;#rule"`,
		"team=ads":  `"shop/team=ads;#rule" "shop/team=ads;#rule" "shop/team=ads;#rule"`,
		"team=new":  `"shop/team=new;#rule"`,
		"watched=1": `"shop/watched=1;#rule" "shop/watched=1;#rule" ""`,
	} {
		plan, err := set.Plan(request(descriptor))
		if err != nil {
			t.Fatal(err)
		}
		var owners []string
		for i := range plan.Applied {
			a := &plan.Applied[i]
			owners = append(owners, fmt.Sprintf("%q", a.Act.Charges[a.Charge].Owner))
		}
		if got := strings.Join(owners, " "); got != want {
			t.Errorf("%s: %s, want %s", descriptor, got, want)
		}
	}
	req := request("team=ads")
	req.Budget = "team"
	plan, err := set.Plan(req)
	if err != nil || plan.Acts[0].Charges[0].Owner != "" {
		t.Errorf("a budget: %+v, %v", plan, err)
	}
	if domain, entries, ok := rules.ParseKey("shop/team=ads;#rule"); !ok || domain != "shop" || len(entries) != 1 || entries[0].Value != "ads" {
		t.Errorf("parsed: %s %v", domain, entries)
	}
}

// TestUnnamedAlternatives: a caller that cannot name its take cannot say which alternative
// it was granted.
func TestUnnamedAlternatives(t *testing.T) {
	t.Parallel()
	set := parse(t, waterfall)
	for _, ask := range []rules.Ask{{Cost: 1, Refund: true}, {Cost: 1, Record: true}} {
		req := request("tenant=a")
		req.Each = []rules.Ask{ask}
		if _, err := set.Plan(req); err == nil || !strings.Contains(err.Error(), "has alternatives") {
			t.Errorf("%+v: %v", ask, err)
		}
	}
	req := request("slots=a")
	req.Each = []rules.Ask{{Cost: 1, Anonymous: true}}
	if _, err := set.Plan(req); err == nil || !strings.Contains(err.Error(), "has alternatives") {
		t.Errorf("slots: %v", err)
	}
	req = request("three=a")
	req.MaxWait = time.Second
	if _, err := set.Plan(req); err == nil || !strings.Contains(err.Error(), "alternatives") {
		t.Errorf("booked ahead: %v", err)
	}
	req = request("slots=a")
	req.Kind, req.ID = acts.KindRelease, "x"
	if _, err := set.Plan(req); err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestBudgetsOfSeveralDescriptors: budgets that are alternatives in any rule are in one hash
// slot, and so are all budgets that such rules join.
func TestBudgetsOfSeveralDescriptors(t *testing.T) {
	t.Parallel()
	const ten = "{algorithm: gcra, unit: day, requests_per_unit: 10}"
	set := parse(t, `
domain: shop
budgets: {all: `+ten+`, alone: `+ten+`}
descriptors:
  - key: org
    budgets: {org: `+ten+`, apart: `+ten+`}
    rate_limit: {budget: org}
    descriptors:
      - key: team
        budgets: {team: `+ten+`}
        rate_limits: [{budget: team}]
        otherwise: [{rate_limits: [{budget: org, keep: 2}]}]
        descriptors:
          - {key: user, rate_limit: {budget: team}}
      - {key: batch, rate_limit: {<<: `+ten+`, name: own}, otherwise: [{rate_limit: {budget: org}}, {rate_limit: {budget: all}}]}
      - {key: plain, rate_limit: {budget: apart}}
  - {key: any, rate_limit: {budget: alone}}
`)
	for _, c := range []struct {
		descriptor string
		want       []string
	}{
		{"org=a", []string{"0.0 org {shop/}"}},
		{"org=a,team=t", []string{"0.0 org,team#1 {shop/} 0.1 org,team#2 {shop/}"}},
		{"org=a,team=t,user=u", []string{"0.0 org,team,user {shop/}"}},
		{"org=a,batch=1", []string{"0.0 own {shop/} 0.1 org,batch#2 {shop/} 0.2 org,batch#3 {shop/}"}},
		{"org=a,plain=1", []string{"0.0 org,plain {shop/org=a}"}},
		{"any=1", []string{"0.0 any {shop/}"}},
	} {
		plan, err := set.Plan(request(c.descriptor))
		if err != nil {
			t.Errorf("%s: %v", c.descriptor, err)
			continue
		}
		if diff := cmp.Diff(c.want, groups(plan)); diff != "" {
			t.Errorf("%s: %s", c.descriptor, diff)
		}
	}
}
