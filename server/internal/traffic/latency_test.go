package traffic_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// call observes n takes of one unit that took so long, by the limits of the rules'
// n-th.
func (f *fixture) call(n, rule int, took time.Duration, err error) {
	var limits []*weir.Limit
	act := &weir.Act{Err: err}
	for _, l := range f.set.Rules()[rule].Limits {
		limits = append(limits, l.Limit)
		act.Charges = append(act.Charges, weir.Charge{Limit: l.Limit, Cost: 1})
	}
	act.Decisions = make([]weir.Decision, len(limits))
	for range n {
		f.Observe(&observe.Call{Acts: []*weir.Act{act}, Limits: limits, Took: took})
	}
}

// timing returns how long the calls took of one limit.
func timing(w *traffic.Window, rule string) *traffic.Timing {
	for i := range w.Timings {
		if w.Timings[i].Rule == rule {
			return &w.Timings[i]
		}
	}
	return nil
}

// near reports whether a figure is what it stands for, rounded up.
func near(got, want time.Duration) bool { return got >= want && got < want+want/4 }

// TestTimings: each limit has quantiles of its own, second by second and of longer
// steps.
func TestTimings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const user, watched, both = 0, 1, 2
		// The clock begins at midnight: so do all steps.
		f := newFixture(t, shop, traffic.Options{})
		f.Start()
		defer f.Stop(context.Background())
		time.Sleep(1500 * time.Millisecond)
		f.call(98, user, time.Millisecond, nil)
		f.call(2, user, 40*time.Millisecond, nil)
		time.Sleep(time.Second)
		f.call(400, user, 3*time.Microsecond, nil)
		f.call(1, both, 10*time.Millisecond, weir.ErrBackend)
		time.Sleep(3 * time.Second)
		w := f.History(5 * time.Second)
		got := timing(&w, "user")
		if len(w.Timings) != 3 || timing(&w, "watched") != nil || got == nil {
			t.Fatalf("timings %+v", w.Timings)
		}
		one, two, three := got.Steps[2], got.Steps[3], got.Steps[4]
		if !near(one.P50, time.Millisecond) || !near(one.P99, 40*time.Millisecond) || !near(two.P50, 3*time.Microsecond) || two.P99 != two.P50 || three != (traffic.Latency{}) {
			t.Errorf("steps %+v", got.Steps)
		}
		if got.Lately != (traffic.Latency{}) {
			t.Errorf("lately %+v before ten seconds were over", got.Lately)
		}
		for _, name := range []string{"narrow", "wide"} {
			if l := timing(&w, name).Steps[3]; !near(l.P50, 10*time.Millisecond) {
				t.Errorf("%s, without a decision: %+v", name, l)
			}
		}
		if l := w.Latency[3]; !near(l.P50, 3*time.Microsecond) || !near(l.P99, 3*time.Microsecond) {
			t.Errorf("all calls: %+v", l)
		}
		time.Sleep(10 * time.Second)
		w = f.History(time.Minute)
		if l := timing(&w, "user").Lately; !near(l.P50, 3*time.Microsecond) || !near(l.P99, time.Millisecond) {
			t.Errorf("lately %+v", l)
		}
		time.Sleep(2 * time.Hour)
		w = f.History(3 * time.Hour)
		found := 0
		for _, l := range timing(&w, "user").Steps {
			if near(l.P50, 3*time.Microsecond) && near(l.P99, time.Millisecond) {
				found++
			} else if l != (traffic.Latency{}) {
				t.Errorf("another minute: %+v", l)
			}
		}
		if l := timing(&w, "user").Lately; found != 1 || l != (traffic.Latency{}) {
			t.Errorf("%d minutes in hours, lately %+v", found, l)
		}
	})
}

// TestTimingAllocates: only the first call of a limit does.
func TestTimingAllocates(t *testing.T) {
	f := newFixture(t, shop, traffic.Options{})
	taker := observe.Wrap(memengine.New(memengine.Options{}), observe.Options{Observer: f})
	limit := f.set.Rules()[0].Limits[0].Limit
	acts := []*weir.Act{{Charges: []weir.Charge{{Key: "shop/user=a", Limit: limit, Cost: 1}}, Decisions: make([]weir.Decision, 1)}}
	if n := testing.AllocsPerRun(1000, func() { taker.Take(context.Background(), acts) }); n >= 1 {
		t.Errorf("%v allocations a call", n)
	}
}
