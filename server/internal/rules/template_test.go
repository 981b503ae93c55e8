package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestTemplate makes copies of plans, and changes them as a store does. Neither another copy nor
// the plan itself shows it.
func TestTemplate(t *testing.T) {
	t.Parallel()
	set := rules.MustParse("d.yaml", `
domain: d
descriptors:
  - {key: a, rate_limits: [{name: x, algorithm: gcra, unit: hour, requests_per_unit: 8}, {name: y, algorithm: gcra, unit: day, requests_per_unit: 9}]}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 8}}
  - {key: c, rate_limit: {unlimited: true}}
`)
	request := rules.Request{Domain: "d", Cost: 1, Descriptors: [][]rules.Entry{{{Key: "a", Value: "1"}}, {{Key: "b"}}, {{Key: "c"}}, {{Key: "a", Value: "2"}}}}
	plan := func(req rules.Request) *rules.Plan {
		p, err := set.Plan(&req)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	made := plan(request)
	template := made.Template()
	made.Free()
	for range 3 {
		other := plan(request) // it takes the memory of the first
		other.Acts[0].Charges[0].Key = "other"
		got, want := template.Plan(), plan(request)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(rules.Plan{}, weir.Act{}, weir.Limit{}, rules.Limit{}, rules.Rule{})); diff != "" {
			t.Error(diff)
		}
		if got.Acts[0] != got.Shared || got.Applied[0].Act != got.Shared {
			t.Error("the limits of an act have other acts")
		}
		got.Shared.Charges[0].Cost, got.Shared.Decisions[0].Granted, got.Applied[0].Overridden = 7, 7, true
		got.Free()
	}
	if !plan(request).Repeats() {
		t.Error("a plan without an id does not repeat")
	}
	if request.Hold = time.Minute; plan(request).Repeats() {
		t.Error("a plan with a random id repeats")
	}
}
