package remote_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// overRedis is a store in Redis as a server has it: acts that wait leave together,
// and the client neither retries nor waits longer than it is told.
func overRedis(t testing.TB, address string) calls.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: address, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: 100 * time.Millisecond, PoolTimeout: 500 * time.Millisecond, PoolSize: 32, MaxActiveConns: 32,
	})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisengine.New(client, redisengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// short is a deadline that a busy machine keeps to with a store that is well.
const short = 500 * time.Millisecond

// TestFaults lets every fault befall a store and then takes it away: each act is
// decided, in the end by the store again, and nothing is sent twice.
func TestFaults(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(1_000_000).MustCompile()
	for fault := testserver.Refuse; fault < testserver.Faults; fault++ {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			var on atomic.Bool
			var scripts atomic.Int64
			proxy := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
				if on.Load() && strings.Contains(strings.ToLower(string(request[:min(64, len(request))])), "eval") {
					scripts.Add(1)
					return fault
				}
				return testserver.Pass
			})
			taker := wrap(t, overRedis(t, proxy.Addr()), remote.Options{Patience: short})
			charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
			if a := take(taker, charge); a.Decisions[0].Source != acts.SourceStore {
				t.Fatalf("at first: %+v, %v", a.Decisions, a.Err)
			}
			on.Store(true)
			for range 5 {
				if a := take(taker, charge); !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback {
					t.Errorf("%+v, %v", a.Decisions, a.Err)
				}
			}
			testserver.Eventually(t, "the store is out", func() bool { return unreachable(taker) })
			for range 100 {
				if a := take(taker, charge); a.Decisions[0].Source != acts.SourceFallback {
					t.Errorf("away: %+v, %v", a.Decisions, a.Err)
				}
			}
			on.Store(false)
			testserver.Eventually(t, "back", func() bool { return take(taker, charge).Decisions[0].Source == acts.SourceStore })
			proxy.Close() // Stop need not wait for late replies
		})
	}
}

// TestBound: K instances, an outage in a window, Redis keeping its state. What is
// granted in all is at most (1 + K·s)·N, with shares of s = 1/K twice the limit,
// and afterwards the store knows of everything.
func TestBound(t *testing.T) {
	t.Parallel()
	const instances, n = 3, 30
	for _, before := range []int{0, 12, 30} {
		server := testserver.StartRedis(t)
		limit := weir.Limit{Algorithm: weir.FixedWindow, Count: n, Period: 24 * time.Hour, Anchor: weir.AnchorFirst}.MustCompile()
		charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
		var fleet []*remote.Remote
		for range instances {
			fleet = append(fleet, wrap(t, overRedis(t, server.Addr()), remote.Options{
				Patience: short, Instances: func() int { return instances },
			}))
		}
		granted := func(tries int) (granted int) {
			for i := range tries {
				if take(fleet[i%instances], charge).Allowed() {
					granted++
				}
			}
			return granted
		}
		if got := granted(before); got != before {
			t.Fatalf("%d of %d at first", got, before)
		}
		server.Pause()
		for _, taker := range fleet {
			for i := range 5 {
				take(taker, weir.Charge{Key: fmt.Sprint("other", i), Limit: limit})
			}
		}
		during := granted(10 * n)
		// Each instance saw the store say what remained; the last to look knows
		// best.
		if most := instances * max(0, (n-before+instances)/instances); during > most || during > n || before < n && during == 0 {
			t.Errorf("%d before: %d granted meanwhile, at most %d", before, during, most)
		}
		server.Resume()
		for _, taker := range fleet {
			testserver.Eventually(t, "charged back", func() bool { return taker.Stats().Outstanding == 0 })
		}
		after := granted(3 * n)
		if all := before + during + after; all > 2*n || after != max(0, n-before-during) {
			t.Errorf("%d before, %d meanwhile, %d after: want no more than %d once charged back", before, during, after, n)
		}
	}
}
