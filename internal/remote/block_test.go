package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// blockedFor is how long a key stays refused by its block; 0: it is granted.
func blockedFor(taker weir.Taker, key string, limit *weir.Limit) time.Duration {
	d := take(taker, weir.Charge{Key: key, Limit: limit, Cost: 1}).Decisions[0]
	if !d.Blocked {
		return 0
	}
	return d.RetryAfter
}

// TestBlocksOverOutages: a block lasts as long as the refusal said, whoever decides meanwhile.
func TestBlocksOverOutages(t *testing.T) {
	t.Parallel()
	for algorithm := range algo.Count {
		if algo.Steps[algorithm].HoldsSlots {
			continue
		}
		limit := weir.Limit{Algorithm: weir.Algorithm(algorithm), Count: 10, Period: 10 * time.Second, Block: time.Hour}.MustCompile()
		clock := storetest.NewClock()
		store := newFlaky(clock)
		instances := func() int { return 2 }
		first, second := wrap(t, store, remote.Options{Now: clock.Now, Instances: instances}), wrap(t, store, remote.Options{Now: clock.Now, Instances: instances})
		want := func(what string, taker weir.Taker, key string, want time.Duration) {
			t.Helper()
			if got := blockedFor(taker, key, limit); got != want {
				t.Errorf("%v: %s: %v for %v, want %v", limit, what, key, got, want)
			}
		}
		take(first, weir.Charge{Key: "before", Limit: limit, Cost: 10})
		want("refused by the store", first, "before", time.Hour)
		take(first, weir.Charge{Key: "ended", Limit: limit, Cost: 10})
		want("refused by the store", first, "ended", time.Hour)

		clock.Advance(10 * time.Minute)
		openUp(t, first, store, weir.ErrNotApplied)
		want("in the outage", first, "before", 50*time.Minute)
		want("in the outage", first, "ended", 50*time.Minute)
		clock.Advance(10 * time.Minute)
		want("later", first, "before", 40*time.Minute)
		for range 5 {
			want("this instance's part of a new key", first, "during", 0)
		}
		want("refused here", first, "during", time.Hour)
		clock.Advance(10 * time.Minute)
		want("refused here again", first, "during", 50*time.Minute)

		back(t, store, first)
		testserver.Eventually(t, "recorded", func() bool { return first.Stats().Outstanding == 0 })
		want("after the outage", first, "during", 50*time.Minute)
		want("at another instance", second, "during", 50*time.Minute)
		want("what the store had begun", second, "before", 30*time.Minute)

		clock.Advance(time.Second)
		reset := storetest.NewAct(weir.Charge{Key: "ended", Limit: limit})
		reset.Kind = acts.KindReset
		second.Take(context.Background(), []*weir.Act{reset})
		want("reset elsewhere", first, "ended", 0)
		openUp(t, first, store, weir.ErrNotApplied)
		want("in the next outage", first, "ended", 0)
		clock.Advance(30*time.Minute - time.Second)
		want("in the next outage, at its end", first, "before", 0)
		clock.Advance(20*time.Minute - time.Millisecond)
		want("shortly before its end", first, "during", time.Millisecond)
		clock.Advance(time.Millisecond)
		want("at its end", first, "during", 0)
	}
}
