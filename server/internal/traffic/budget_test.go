package traffic_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
