package stack_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestShares has 64 clients of two stacks share a budget in one Redis: those that keep to
// their guarantees are never refused, while the others take all that they get.
func TestShares(t *testing.T) {
	t.Parallel()
	const patience = time.Minute // whatever else the machine does
	address := testserver.StartRedis(t).Addr()
	var stacks [2]*stack.Stack
	for i := range stacks {
		client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
		t.Cleanup(func() { _ = client.Close() })
		store, err := redisengine.New(client, redisengine.Options{Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		stacks[i] = stack.New(store, stack.Options{Remote: remote.Options{Patience: patience, Calls: calls.Options{Silence: patience}}})
		t.Cleanup(func() { _ = stacks[i].Stop(context.Background()) })
	}
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 2000, Period: time.Second, Burst: 400},
		Guarantees: map[string]int64{"search": 300, "ads": 500}, Headroom: 100,
	}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var grants []weir.Decision
	refused := map[string]int{}
	// The others ask for many times what is left to them, so guarantees are needed. On a busy
	// machine it takes longer until they do.
	begun := time.Now()
	goesOn := func() bool {
		mu.Lock()
		defer mu.Unlock()
		took := time.Since(begun)
		return took < 2*time.Second || refused["others"] < 100 && took < patience
	}
	ask := func(client int, class string) bool {
		d, err := shares.Limiter(stacks[client%2], "budget", class).Allow(t.Context(), "k")
		if err != nil {
			t.Error(err)
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if d.Allowed() {
			grants = append(grants, d)
		} else {
			refused[class]++
		}
		return d.Allowed()
	}
	var clients sync.WaitGroup
	for client := range 64 {
		class, pause := "others", time.Duration(0)
		switch client % 16 {
		case 0:
			class = "search"
		case 1:
			class = "ads"
		}
		if own := shares.Class(class); own != nil {
			// Each of four asks for a quarter, one request after the other: however late
			// they are, together they keep to the guarantee.
			pause = 4 * own.Period / time.Duration(own.Count) * 11 / 10
		}
		clients.Go(func() {
			for goesOn() {
				if !ask(client, class) && pause > 0 {
					t.Errorf("%s was refused what is guaranteed to it", class)
				}
				time.Sleep(max(pause, time.Millisecond))
			}
		})
	}
	clients.Wait()
	slices.SortFunc(grants, func(a, b weir.Decision) int { return a.At.Compare(b.At) })
	first := 0
	for i, d := range grants {
		for !grants[first].At.After(d.At.Add(-time.Second)) {
			first++
		}
		if n := i - first + 1; n > 2400 {
			t.Fatalf("%d units in a second, want at most 2400", n)
		}
	}
	if len(grants) == 0 || refused["others"] < 100 {
		t.Errorf("%d were granted and %v refused: nobody competed", len(grants), refused)
	}
	t.Logf("%d were granted, %v refused", len(grants), refused)
}
