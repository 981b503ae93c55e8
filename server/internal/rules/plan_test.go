package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

const shop = `
domain: shop
x-limits: [&theirs {unit: minute, requests_per_unit: 5}, &ours {algorithm: gcra, unit: minute, requests_per_unit: 5}]
descriptors:
  - {key: user, rate_limit: *ours}
  - key: tenant
    rate_limits: [{<<: *ours, name: daily, unit: day}, *ours]
    descriptors:
      - {key: user, hash_tag: [tenant], rate_limit: *ours}
  - {key: path, rate_limit: *theirs}
  - {key: trial, shadow_mode: true, rate_limits: [*ours, *ours]}
  - {key: ip, value: "10.*", share_threshold: true, rate_limit: *ours}
  - {key: ip, value: 10.0.0.1, rate_limit: *ours}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: daily}]}}
  - {key: "h*", share_threshold: true, rate_limit: *theirs}
`

func request(descriptors ...string) *rules.Request {
	req := &rules.Request{Domain: "shop", Cost: 1}
	for _, d := range descriptors {
		req.Descriptors = append(req.Descriptors, entriesOf(d))
	}
	return req
}

// keysIn shows the keys of each act, and a slot where it is not the key's beginning.
func keysIn(plan *rules.Plan) [][]string {
	var all [][]string
	for _, act := range plan.Acts {
		var keys []string
		for _, c := range act.Charges {
			key := c.Key
			if !strings.HasPrefix(c.Key, c.HashTag+";") {
				key += " in " + c.HashTag
			}
			keys = append(keys, key)
		}
		all = append(all, keys)
	}
	return all
}

func TestPlan(t *testing.T) {
	t.Parallel()
	set := parse(t, shop)
	for name, c := range map[string]struct {
		req  *rules.Request
		want [][]string
	}{
		"one":     {request("user=42"), [][]string{{"shop/user=42;user#1"}}},
		"several": {request("tenant=acme"), [][]string{{"shop/tenant=acme;tenant;daily", "shop/tenant=acme;tenant#2"}}},
		"grouped over descriptors": {
			request("user=42", "path=/x", "tenant=a,user=b"),
			[][]string{{"shop/user=42;user#1", "shop/tenant=a,user=b;tenant,user#1 in shop/tenant=a"}, {"shop/path=/x;minute"}},
		},
		"theirs alone": {request("path=/x", "path=/x"), [][]string{{"shop/path=/x;minute"}, {"shop/path=/x;minute"}}},
		"shadow alone": {
			request("trial=1", "user=1"),
			[][]string{{"shop/trial=1;trial#1"}, {"shop/trial=1;trial#2"}, {"shop/user=1;user#1"}},
		},
		"shared":        {request("ip=10.1.1.1"), [][]string{{"shop/ip=10.*;ip=10.*#1"}}},
		"not shared":    {request("ip=10.0.0.1"), [][]string{{"shop/ip=10.0.0.1;ip=10.0.0.1#1"}}},
		"shared by key": {request("host=a"), [][]string{{"shop/h*;minute"}}},
		"unlimited":     {request("free=1"), nil},
		"replaced":      {request("tenant=acme", "free=1"), [][]string{{"shop/tenant=acme;tenant#2"}}},
		"nothing":       {request("nobody=1", ""), nil},
		"escaped":       {request("user={a b}"), [][]string{{"shop/user=%7Ba%20b%7D;user#1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := set.Plan(c.req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, keysIn(plan)); diff != "" {
				t.Error(diff)
			}
			for _, act := range plan.Acts {
				if acts.Check(act); act.Err != nil || acts.Prepare(act) {
					t.Errorf("act not fit for a store: %v", act.Err)
				}
			}
		})
	}
}

// TestApplied wants the limits in the order of the descriptors, each with the
// place of its answer.
func TestApplied(t *testing.T) {
	t.Parallel()
	req := request("trial=1", "tenant=a", "nobody=1", "free=1", "user=u")
	req.Cost, req.UpTo = 2, 7
	plan, err := parse(t, shop).Plan(req)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range plan.Applied {
		name := "unlimited"
		if a.Limit != nil {
			c := a.Act.Charges[a.Charge]
			name = fmt.Sprintf("%s %d-%d", a.Limit.Name, c.Cost, c.UpTo)
			if c.Limit != a.Limit {
				t.Error("charge of another limit")
			}
			a.Act.Decisions[a.Charge] = weir.Decision{Outcome: weir.Refused, RetryAfter: 5}
		}
		d := a.Decision()
		got = append(got, fmt.Sprint(a.Descriptor, " ", name, " ", d.Outcome, " ", d.Source, " ", int64(d.RetryAfter)))
	}
	want := []string{
		"0 trial#1 2-7 granted shadow 0",
		"0 trial#2 2-7 granted shadow 0",
		"1 tenant#2 2-7 refused none 5",
		"3 unlimited granted none 0",
		"4 user 2-7 refused none 5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	set := parse(t, shop)
	with := func(change func(*rules.Request), descriptors ...string) *rules.Request {
		req := request(descriptors...)
		change(req)
		return req
	}
	none := func(*rules.Request) {}
	long := strings.Repeat("x", 1025)
	for want, req := range map[string]*rules.Request{
		"domain":                        with(func(r *rules.Request) { r.Domain = "" }, "a=b"),
		"descriptors":                   with(none),
		"descriptors of 513":            with(none, strings.Split(strings.Repeat("nobody=1 ", 513), " ")[:513]...),
		"descriptors of 3":              with(func(r *rules.Request) { r.Bounds.Descriptors = 2 }, "a=b", "a=b", "a=b"),
		"descriptors with 66 charges":   with(none, strings.Split(strings.Repeat("tenant=1 ", 33), " ")[:33]...),
		"descriptors[1].entries":        with(none, "a=b", strings.Repeat("a=b,", 17)),
		"descriptors[0].entries[1].key": with(none, "a=b,"+long+"=1"),
		"cost":                          with(func(r *rules.Request) { r.Cost = -1 }, "a=b"),
		"cost for ours":                 with(func(r *rules.Request) { r.Cost = weir.MaxCost + 1 }, "user=b"),
		"cost for theirs":               with(func(r *rules.Request) { r.Cost = algo.MaxCount + 1 }, "path=b"),
		"up_to":                         with(func(r *rules.Request) { r.UpTo = -1 }, "a=b"),
		"up_to of a look":               with(func(r *rules.Request) { r.Cost, r.UpTo = 0, 1 }, "a=b"),
		"up_to too large":               with(func(r *rules.Request) { r.UpTo = weir.MaxCost + 1 }, "a=b"),
		"up_to below costs":             with(func(r *rules.Request) { r.Cost, r.UpTo = 3, 2 }, "a=b"),
	} {
		plan, err := set.Plan(req)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != strings.Fields(want)[0] || invalid.Want == "" || plan != nil {
			t.Errorf("%s: %v, %v", want, plan, err)
		}
	}
	if _, err := set.Plan(with(func(r *rules.Request) { r.Cost = algo.MaxCount }, "path=b")); err != nil {
		t.Error(err)
	}
	if plan, err := set.Plan(with(func(r *rules.Request) { r.Domain = "other" }, "user=b")); err != nil || len(plan.Applied) != 0 {
		t.Error(plan, err)
	}
}

// collisions has rules whose keys would run together if anything were joined
// without care.
const collisions = `
x-a: &theirs {unit: minute, requests_per_unit: 5}
x-b: &ours {algorithm: gcra, unit: minute, requests_per_unit: 5}
x-c: &list
  - {key: a, rate_limit: *theirs, descriptors: &below [{key: a, rate_limit: *ours}, {key: a, value: "b*", rate_limit: *theirs}]}
  - {key: "a=b", rate_limits: [*ours, {<<: *ours, name: "#1"}, {<<: *ours, name: minute}], descriptors: *below}
  - {key: "b*", share_threshold: true, rate_limit: {unit: hour}}
  - {key: c, value: "*;", share_threshold: true, rate_limit: *ours}
  - {key: c, rate_limit: {unlimited: true}, descriptors: *below}
  - {key: g, rate_limit: {<<: *ours, name: minute}}
  - {key: g, value: "x;*", rate_limit: *theirs}
descriptors: *list
`

// anything has one rule for all entries, so that nothing but they tell keys apart.
const anything = `
descriptors:
  - {key: "*", rate_limit: &limit {unit: minute}, descriptors: [{key: "*", rate_limit: *limit}]}
`

// tricky are texts that look like what stands between texts in keys.
var tricky = []string{
	"", "a", "b", "g", "x", "b*", "a=b", "b=b", "=", "*;", "x;g", ";minute", "b;a#1", "a,a=b", "b,a=a", "/a", "%3D", "\x00", "\xff",
}

// TestKeysNeverCollide asks for all descriptors of one or two tricky entries and
// wants one key only where domain, entries and rule are the same; for shared
// budgets, domain and rule.
func TestKeysNeverCollide(t *testing.T) {
	t.Parallel()
	var entries []rules.Entry
	for i := range len(tricky) * len(tricky) {
		entries = append(entries, rules.Entry{Key: tricky[i/len(tricky)], Value: tricky[i%len(tricky)]})
	}
	for _, text := range []string{collisions, anything} {
		set, owners := lookAlikes(t, text), map[string]string{}
		for _, name := range set.Domains() {
			for _, first := range entries {
				own(t, set, owners, name, first)
				for _, second := range entries {
					if name != "d" {
						break // What follows the domain is the same for all.
					}
					own(t, set, owners, name, first, second)
				}
			}
		}
		if len(owners) < 1000 {
			t.Errorf("only %d keys", len(owners))
		}
	}
}

// lookAlikes has the same rules for several domains.
func lookAlikes(t *testing.T, text string) *rules.Set {
	t.Helper()
	var domains []*config.Domain
	for _, name := range []string{"d", "d/", "d%2F"} {
		d, err := config.Parse(name, fmt.Appendf(nil, "domain: %q%s", name, text))
		if err != nil {
			t.Fatal(err)
		}
		domains = append(domains, d)
	}
	set, err := rules.Compile(domains)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// own enters whose the keys of a descriptor are, which nobody else's may be.
func own(t *testing.T, set *rules.Set, owners map[string]string, domain string, entries ...rules.Entry) {
	t.Helper()
	plan, err := set.Plan(&rules.Request{Domain: domain, Descriptors: [][]rules.Entry{entries}, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range plan.Applied {
		if a.Act == nil {
			continue
		}
		owner := fmt.Sprintf("%q %q %s %s", domain, entries, a.Rule.Path, a.Limit.Name)
		if a.Rule.ShareThreshold {
			owner = fmt.Sprintf("%q %s", domain, a.Rule.Path)
		}
		key := a.Act.Charges[a.Charge].Key
		if other, taken := owners[key]; taken && other != owner {
			t.Fatalf("%s is the key of\n%s and\n%s", key, owner, other)
		}
		owners[key] = owner
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	set := rules.Demo()
	var got []string
	for _, r := range set.Rules() {
		l := r.Limits[0]
		got = append(got, fmt.Sprintf("%s %s %v %d/%v burst %d", r.Path, l.Name, l.Algorithm, l.Count, l.Period, l.Burst))
	}
	want := []string{"demo/user user gcra 10/1m0s burst 5", "demo/path=/login path=/login sliding_log 3/10s burst 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"demo"}, set.Domains()); diff != "" {
		t.Error(diff)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	set, err := rules.Load("../config/testdata/good")
	if err != nil || len(set.Domains()) != 12 {
		t.Fatalf("Load = %v, %v", set, err)
	}
	for _, r := range set.Rules() {
		if r.At.Line == 0 || r.Domain == "" {
			t.Errorf("%+v", r)
		}
	}
	var problems config.Problems
	if _, err := rules.Load("../config/testdata/bad"); !errors.As(err, &problems) {
		t.Errorf("Load = %v", err)
	}
	if _, err := rules.Parse("f", nil); !errors.As(err, &problems) {
		t.Errorf("Parse = %v", err)
	}
	deep := []*config.Descriptor{}
	for range config.MaxDepth + 1 {
		deep = []*config.Descriptor{{Key: "k", Descriptors: deep}}
	}
	if _, err := rules.Compile([]*config.Domain{{Name: "a", Descriptors: deep}}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("Compile = %v", err)
	}
	if _, err := rules.Compile([]*config.Domain{{Name: "a"}, {Name: "a"}}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("Compile = %v", err)
	}
}

func BenchmarkPlan(b *testing.B) {
	set := parse(b, shop)
	req := request("user=42", "tenant=acme,user=7", "path=/login")
	b.ReportAllocs()
	for b.Loop() {
		plan, err := set.Plan(req)
		if err != nil {
			b.Fatal(err)
		}
		plan.Free()
	}
}
