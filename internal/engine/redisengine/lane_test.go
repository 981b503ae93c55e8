package redisengine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestLanes demands that a key keeps its lane whatever is asked of it, and that keys
// spread.
func TestLanes(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	for _, server := range []struct {
		client      redis.UniversalClient
		lanes, keys int
	}{{dial(t, "127.0.0.1:1"), 2, 600}, {cluster, 2, 600}} {
		store := open(t, server.client, redisengine.Options{})
		if _, n, _ := store.Locate(&weir.Act{}); n != 0 {
			t.Errorf("an act without charges: lane %d", n)
		}
		laneOf := func(a *weir.Act) int { _, lane, _ := store.Locate(a); return lane }
		counts := make(map[int]int)
		for i := range 1000 {
			key := fmt.Sprint("user:", i)
			lane := laneOf(storetest.NewAct(weir.Charge{Key: key, Limit: perDay, Cost: 1}))
			counts[lane]++
			for _, a := range []*weir.Act{
				storetest.NewAct(weir.Charge{Key: key, Limit: weir.PerHour(7).MustCompile()}, weir.Charge{Key: "other"}),
				storetest.NewAct(weir.Charge{Key: key + "#1", HashTag: key}),
			} {
				if a.Kind = acts.KindRelease; laneOf(a) != lane {
					t.Errorf("%s: lanes %d and %d", key, lane, laneOf(a))
				}
			}
		}
		for lane, n := range counts {
			if n > server.keys || len(counts) != server.lanes {
				t.Errorf("%d of 1000 keys have lane %d of %d", n, lane, len(counts))
			}
		}
	}
}

// TestProbeOfASlowServer: only its context ends a probe, not the client's timeout.
func TestProbeOfASlowServer(t *testing.T) {
	t.Parallel()
	proxy := testserver.StartProxy(t, testserver.StartRedis(t).Addr(), func([]byte) testserver.Fault {
		time.Sleep(50 * time.Millisecond)
		return testserver.Pass
	})
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 10 * time.Millisecond, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := open(t, client, redisengine.Options{}).Probe(ctx, ""); err != nil {
		t.Error(err)
	}
}
