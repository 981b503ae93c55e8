package metrics_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTrials: what a trial would have done is a metric of its own.
func TestTrials(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}, trial: {algorithm: gcra, unit: day, requests_per_unit: 1}}\n")
	for range 4 {
		f.ask(t, "d", "a=1", 1)
	}
	want := map[string]float64{"{decision=granted,domain=d,rule=a}": 1, "{decision=refused,domain=d,rule=a}": 3}
	if diff := cmp.Diff(want, f.counts(t, "weir_trial_decisions_total")); diff != "" {
		t.Errorf("trials (-want +got):\n%s", diff)
	}
	want = map[string]float64{
		"{decision=granted,domain=d,rule=a,source=store}": 3,
		"{decision=refused,domain=d,rule=a,source=store}": 1,
	}
	if diff := cmp.Diff(want, f.counts(t, "weir_decisions_total")); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	want = map[string]float64{"{domain=d,key1=a}": 4}
	if diff := cmp.Diff(want, f.counts(t, "ratelimit_service_rate_limit_total_hits")); diff != "" {
		t.Errorf("hits of envoyproxy/ratelimit (-want +got):\n%s", diff)
	}
}
