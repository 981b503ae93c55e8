package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestPlanAllocates bounds what a request of three descriptors costs: one string,
// which its keys are cut from.
func TestPlanAllocates(t *testing.T) {
	set := parse(t, shop)
	req := request("user=42", "tenant=acme,user=7", "path=/login")
	got := testing.AllocsPerRun(1000, func() {
		plan, err := set.Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		plan.Free()
	})
	// It is 1; the race detector has pools forget at random what they hold.
	if got > 6 {
		t.Errorf("%v allocations, want at most 6", got)
	}
}

// TestFreedPlansLeaveNothing has each request planned twice at a time, in memory of
// which only one can have been freed before.
func TestFreedPlansLeaveNothing(t *testing.T) {
	t.Parallel()
	set := parse(t, shop)
	store := memengine.New(memengine.Options{})
	descriptors := []string{
		"user=42", "tenant=acme", "tenant=a,user=b", "path=/x", "path=/y z", "trial=1", "ip=10.1.1.1", "host=a", "free=1", "none=1",
		"user=" + strings.Repeat("%", 1000),
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			req := request(rapid.SliceOfN(rapid.SampledFrom(descriptors), 1, 6).Draw(t, "descriptors")...)
			req.ID = rapid.SampledFrom([]string{"", "id"}).Draw(t, "id")
			var said [2]string
			for i := range said {
				plan, err := set.Plan(req)
				if err != nil {
					t.Fatal(err)
				}
				said[i] = snapshot(plan)
				if plan.Take(t.Context(), store); i == 1 {
					// The other plan's memory is not used again.
					plan.Free()
				}
			}
			if diff := cmp.Diff(said[0], said[1]); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// snapshot is what a plan says, in text.
func snapshot(p *rules.Plan) string {
	var lines []string
	for _, a := range p.Acts {
		lines = append(lines, a.ID)
		for i, c := range a.Charges {
			lines = append(lines, strings.Join([]string{c.Key, c.HashTag, c.Limit.Name, a.Decisions[i].Outcome.String()}, " "))
		}
	}
	for _, a := range p.Applied {
		lines = append(lines, a.Rule.Path)
		if a.Act != nil {
			lines = append(lines, a.Limit.Name, a.Act.Charges[a.Charge].Key)
		}
	}
	return strings.Join(append(lines, p.ID), "\n")
}
