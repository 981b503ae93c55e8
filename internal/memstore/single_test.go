package memstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

// TestSingleDecidesAsTakeDoes compares the short way of a single charge with the long
// way that acts with ids take.
func TestSingleDecidesAsTakeDoes(t *testing.T) {
	t.Parallel()
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue
		}
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				l := weir.Limit{
					Algorithm: weir.Algorithm(id), Count: rapid.Int64Range(1, 20).Draw(t, "count"),
					Period:        time.Duration(rapid.IntRange(1, 5000).Draw(t, "period")) * time.Millisecond,
					ChargeRefused: rapid.Bool().Draw(t, "charge refused"),
				}
				compareWays(t, l.MustCompile())
			})
		})
	}
}

func compareWays(t *rapid.T, limit *weir.Limit) {
	clock := storetest.NewClock()
	short, long := memstore.New(memstore.Options{Now: clock.Now}), memstore.New(memstore.Options{Now: clock.Now})
	limiter, err := weir.NewLimiter(short, "test", *limit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rapid.IntRange(1, 40).Draw(t, "takes") {
		clock.Advance(time.Duration(rapid.Int64Range(-1_000_000, 3_000_000).Draw(t, "µs")) * time.Microsecond)
		cost := rapid.Int64Range(0, 22).Draw(t, "cost")
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: cost})
		a.ID = fmt.Sprint("take ", i)
		if long.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
			t.Fatal(a.Err)
		}
		got, err := limiter.AllowN(context.Background(), "k", cost)
		if err != nil {
			t.Fatal(err)
		}
		if got.Limit == nil || *got.Limit != *limit {
			t.Fatalf("decided by %v, want %v", got.Limit, limit)
		}
		if got.Limit = nil; got != a.Decisions[0] {
			t.Fatalf("take %d of %d\n got %+v\nwant %+v", i, cost, got, a.Decisions[0])
		}
	}
}

// TestCrowdOnOneKey lets ten thousand goroutines at one key, by the store's own clock,
// which each reads before its turn, and by a given one.
func TestCrowdOnOneKey(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]func() time.Time{"own clock": nil, "given clock": storetest.NewClock().Now} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crowdOneKey(t, memstore.New(memstore.Options{Now: clock}))
		})
	}
}

func crowdOneKey(t *testing.T, store *memstore.Store) {
	const crowd, most = 10_000, 1234
	// Nothing comes back while the test runs.
	limiter, err := weir.NewLimiter(store, "test", weir.Per(most, 366*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var granted atomic.Int64
	var done sync.WaitGroup
	for range crowd {
		done.Go(func() {
			d, err := limiter.Allow(context.Background(), "hot")
			if err != nil {
				t.Error(err)
			}
			if d.Allowed() {
				granted.Add(1)
			}
		})
	}
	if done.Wait(); granted.Load() != most {
		t.Errorf("%d granted, want %d", granted.Load(), most)
	}
}
