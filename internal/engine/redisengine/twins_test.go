package redisengine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

var twinSeed = flag.Uint64("twin.seed", 0, "a history of TestTwins and TestTwinsOnCluster; 0: fixed ones and, of TestTwins, a new one")

// TestTwins demands that Go and Lua give equal answers to random histories: each
// algorithm by itself, all together, and with charges that are waived.
func TestTwins(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	seeds := []uint64{*twinSeed}
	if *twinSeed == 0 {
		seeds = []uint64{1, 2, 3, 4, 27, 28, 31, 32, 43, 44, 45, 49, 50, 1015, 1043, 1045, 1 + rand.Uint64N(1<<32)}
		t.Logf("the new history is -twin.seed=%d", seeds[len(seeds)-1])
	}
	// Some histories are long, the others many.
	share := storetest.Length(30_000) / (len(algo.Steps) + 2) / len(seeds)
	compare := func(name string, steps int, algorithms ...weir.Algorithm) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, seed := range seeds {
				w := twins(t, address, fmt.Sprintf("twins:%s:%d:", name, seed), same, algorithms...)
				w.Seed = seed
				if err := w.Compare(steps); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for id, step := range algo.Steps {
		compare(step.Name, share, weir.Algorithm(id))
	}
	compare("all", 8*share)
	t.Run("huge", func(t *testing.T) {
		t.Parallel()
		for _, seed := range seeds {
			huge := twins(t, address, fmt.Sprintf("twins:huge:%d:", seed), same)
			huge.Seed, huge.Huge = seed, true
			if err := huge.Compare(4 * share); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("blocks", func(t *testing.T) {
		t.Parallel()
		for _, seed := range seeds {
			blocks := twins(t, address, fmt.Sprintf("twins:blocks:%d:", seed), same)
			blocks.Seed, blocks.Blocks = seed, true
			if err := blocks.Compare(4 * share); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("waived", func(t *testing.T) {
		t.Parallel()
		for _, seed := range seeds {
			waives := twins(t, address, fmt.Sprintf("twins:waived:%d:", seed), same)
			waives.Seed, waives.Waives = seed, true
			if err := waives.Compare(2 * share); err != nil {
				t.Error(err)
			}
		}
	})
}

func same(text string) string { return text }

// twins pairs memory with a Redis whose script was changed.
func twins(t *testing.T, address, prefix string, mutate func(string) string, algorithms ...weir.Algorithm) storetest.Twins {
	t.Helper()
	return twinsOf(t, dialPatient(t, address), prefix, mutate, algorithms...)
}

func twinsOf(t *testing.T, client redis.UniversalClient, prefix string, mutate func(string) string, algorithms ...weir.Algorithm) storetest.Twins {
	t.Helper()
	clock := storetest.NewClock()
	store, err := redisengine.NewMutant(client, redisengine.Options{Prefix: prefix, Timeout: time.Minute}, clock.Micros, mutate)
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Twins{
		A: memory(t, clock), B: store,
		Clock: clock, Seed: max(1, *twinSeed), Algorithms: algorithms,
	}
}

func dialPatient(t *testing.T, address string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
