package memengine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestCrowdOnOneKey lets ten thousand goroutines at one key, by the store's own clock,
// which each reads before its turn, and by a given one.
func TestCrowdOnOneKey(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]func() time.Time{"own clock": nil, "given clock": storetest.NewClock().Now} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crowdOneKey(t, memengine.New(memengine.Options{Now: clock}))
		})
	}
}

func crowdOneKey(t *testing.T, store *memengine.Store) {
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
