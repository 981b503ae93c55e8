package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
)

// hosts are limiters of one Redis, with a client each.
func hosts(t *testing.T, limits ...weir.Limit) [2]*weir.Limiter {
	t.Helper()
	addr := testserver.StartRedis(t).Addr()
	var all [2]*weir.Limiter
	for i := range all {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		store, err := redisstore.New(client, redisstore.Options{Timeout: 10 * time.Second}) // a loaded machine is no outage
		if err != nil {
			t.Fatal(err)
		}
		all[i] = limiterOver(t, store, limits...)
	}
	return all
}

// TestVerbsHoldAcrossHosts lets one host see what the other has booked, held and
// given back. A day is so long that the time which the test takes does not
// matter.
func TestVerbsHoldAcrossHosts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("turns", func(t *testing.T) {
		t.Parallel()
		host := hosts(t, weir.Per(1, 6*time.Hour), weir.PerDay(100))
		for turn := range 4 {
			r, err := host[turn%2].Reserve(ctx, "k", 1, weir.MaxWait)
			if err != nil || r.Delay().Round(time.Hour) != time.Duration(turn)*6*time.Hour {
				t.Fatalf("turn %d: %+v, %v", turn, r, err)
			}
			if turn == 3 {
				if given, err := r.Cancel(ctx); given != 1 || err != nil {
					t.Errorf("gave %d back, %v", given, err)
				}
			}
		}
		soon, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if need := needed(t, host[0].Wait(soon, "k")).Round(time.Hour); need != 18*time.Hour {
			t.Errorf("the turn that was given back is needed in %v", need)
		}
	})
	t.Run("holdings", func(t *testing.T) {
		t.Parallel()
		log := weir.Limit{Algorithm: weir.SlidingLog, Count: 100, Period: 24 * time.Hour}
		host := hosts(t, log, weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour})
		h := hold(t, host[0], 60)
		if other, err := host[1].Hold(ctx, "k", 30, time.Hour); err != nil || other.OK() {
			t.Errorf("two in one place: %+v, %v", other, err)
		}
		if err := h.Renew(ctx, 0); err != nil {
			t.Error(err)
		}
		for range 2 {
			if _, err := h.Settle(ctx, 20); err != nil {
				t.Error(err)
			}
		}
		if other := hold(t, host[1], 80); other.Release(ctx) != nil || hold(t, host[0], 80).Decision().Granted == 0 {
			t.Error("what was released is not free")
		}
	})
	t.Run("ids", func(t *testing.T) {
		t.Parallel()
		host := hosts(t, weir.PerDay(10))
		for i := range 4 {
			if d, err := host[i%2].AllowOnce(ctx, "k", 6, "order 1"); err != nil || !d.Allowed() || d.Remaining != 4 {
				t.Errorf("ask %d: %+v, %v", i, d, err)
			}
		}
		if err := host[1].Reset(ctx, "k"); err != nil || remaining(t, host[0], "k") != 10 {
			t.Error(err)
		}
	})
}
