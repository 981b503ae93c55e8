package rls_test

import (
	"context"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
)

const rollout = `
domain: d
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1}]
descriptors:
  - {key: user, rate_limit: {<<: *one, requests_per_unit: 3}, trial: {<<: *one, name: next}}
  - {key: legacy, rate_limit: {unit: day, requests_per_unit: 2}, trial: {<<: *one, name: next}}
  - {key: free, rate_limit: {unlimited: true}, trial: {<<: *one, name: next}}
  - {key: place, rate_limit: {<<: *one, requests_per_unit: 3}, trial: {algorithm: concurrency, period: 1m, requests_per_unit: 1}}
`

// TestTrialIsNotTold: neither in codes nor in limits, whatever it decides.
func TestTrialIsNotTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, rollout, rls.Mode{})
	for range 2 {
		m, err := b.call(ask(t, "user=1; legacy=1; free=1; place=1"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(m.String(), "next") || m.GetStatuses()[2].GetCurrentLimit() != nil {
			t.Errorf("the trial is told: %v", m)
		}
	}
	b.codes("OVER OK OVER OK", "user=1; legacy=1; free=1")
}

// tells whether acts on trial reach a store that fails for them.
type tells struct {
	weir.Taker
	err error
}

func (f tells) Take(ctx context.Context, acts []*weir.Act) {
	f.Taker.Take(ctx, acts)
	for _, a := range acts {
		if strings.Contains(a.Charges[0].Key, "#trial") {
			a.Err = f.err
		}
	}
}

func TestTrialThatFailsIsNotTold(t *testing.T) {
	t.Parallel()
	s := newService(t, rollout, rls.Options{Taker: tells{memengine.New(memengine.Options{}), weir.ErrBackend}})
	answer, err := call(t.Context(), s, ask(t, "user=1"))
	if err != nil || answer.GetOverallCode() != rlsv3.RateLimitResponse_OK || answer.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("got %v, %v", answer, err)
	}
}
