package traffic_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const rollout = `
domain: shop
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 5, unit: day, algorithm: gcra}
    trial: {requests_per_unit: 2, unit: day, algorithm: gcra}
  - key: none
    rate_limit: {requests_per_unit: 1, unit: day, algorithm: gcra}
    enforce: 0%
`

// TestTrialsCountApart: under the name of what they are a trial for, as if they
// refused, and without a part in what was granted.
func TestTrialsCountApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, rollout, traffic.Options{})
	for range 6 {
		f.take(t, "user", "a", 1)
	}
	for range 3 {
		f.take(t, "none", "a", 1)
	}
	want := []traffic.Total{
		{Domain: "shop", Rule: "user", Decision: traffic.Granted, Source: acts.SourceStore, Count: 5},
		{Domain: "shop", Rule: "user", Decision: traffic.Refused, Source: acts.SourceStore, Count: 1},
		{Domain: "shop", Rule: "user", Trial: true, Decision: traffic.Granted, Source: acts.SourceStore, Count: 2},
		{Domain: "shop", Rule: "user", Trial: true, Decision: traffic.Refused, Source: acts.SourceStore, Count: 4},
		{Domain: "shop", Rule: "none", Decision: traffic.Granted, Source: acts.SourceStore, Count: 1},
		{Domain: "shop", Rule: "none", Decision: traffic.ShadowRefused, Source: acts.SourceStore, Count: 2},
	}
	var got []traffic.Total
	for _, n := range f.Totals() {
		if n.Count > 0 {
			got = append(got, n)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	for _, u := range f.Usage() {
		if u.Rule == "user" && u.Units != 5 {
			t.Errorf("%d units were granted, want 5", u.Units)
		}
	}
	// Counts stay where they are at a reload.
	f.Follow(parse(t, rollout))
	f.take(t, "user", "a", 1)
	trials := uint64(0)
	for _, n := range f.Totals() {
		if n.Trial {
			trials += n.Count
		}
	}
	if trials != 7 {
		t.Errorf("after a reload %d decisions on trial, want 7", trials)
	}
}

func TestTrialsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := newFixture(t, rollout, traffic.Options{Refusals: slog.New(slog.NewTextHandler(&log, nil))})
		s, err := f.Subscribe(8)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f.Start()
		for range 3 {
			f.take(t, "user", "a", 1)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); strings.Count(got, "msg=refused") != 1 || !strings.Contains(got, "rule=user") || !strings.Contains(got, "trial=true") {
			t.Errorf("the log has %q", got)
		}
		if r := <-s.Refusals(); !r.Trial || !r.Shadow || r.Key != "shop/user=a;user#trial" {
			t.Errorf("heard %+v", r)
		}
	})
}
