package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestDamagedValues damages records and states with low-water marks, and then puts all kinds of
// acts to the store. No script fails, every key has units of its limit, and a time to live.
func TestDamagedValues(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{Prefix: "damaged:", Timeout: time.Minute})
	ctx := context.Background()
	var limits []*weir.Limit
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket, weir.LeakyBucket} {
		limits = append(limits, (&weir.Limit{Name: "units", Algorithm: algorithm, Count: 1, Period: time.Hour, Burst: 100}).MustCompile())
	}
	kinds := []weir.Kind{acts.KindTake, acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew, acts.KindAmend, acts.KindWithdraw}
	for seed := range uint64(storetest.Length(3000)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		act := func() *weir.Act {
			a := storetest.NewAct()
			for _, k := range rng.Perm(3)[:1+rng.IntN(3)] {
				a.Charges = append(a.Charges, weir.Charge{Key: fmt.Sprint("key ", k), HashTag: "tag", Limit: limits[k], Cost: 3})
			}
			a.Decisions = make([]weir.Decision, len(a.Charges))
			a.ID, a.Scope.Owner, a.Kind = "id", fmt.Sprint(seed), kinds[rng.IntN(len(kinds))]
			switch a.Kind {
			case acts.KindAmend:
				for i := range a.Decisions {
					a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: 3}
				}
			case acts.KindTake, acts.KindWithdraw:
				a.Attempt = 1 + rng.Uint64N(3)
			}
			store.Take(ctx, []*weir.Act{a})
			return a
		}
		for range 1 + rng.IntN(4) {
			act()
		}
		for _, key := range client.Keys(ctx, "damaged:*").Val() {
			if value, err := client.Get(ctx, key).Bytes(); err == nil && rng.IntN(2) == 0 {
				client.Set(ctx, key, damage(rng, value), time.Minute)
			}
		}
		for range 4 {
			a := act()
			// A damaged decision may be impossible, and is then no answer.
			if impossible := errors.Is(a.Err, weir.ErrBackend) && !strings.Contains(a.Err.Error(), "script"); a.Err != nil && !impossible && !errors.As(a.Err, new(weir.IDError)) {
				t.Fatalf("seed %d: %v", seed, a.Err)
			}
		}
		for k, limit := range limits {
			if n := spent(t, store, fmt.Sprint("key ", k), limit, "tag"); n < 0 || n > 100 {
				t.Fatalf("seed %d: %d units of %v are charged", seed, n, limit)
			}
		}
		for _, key := range client.Keys(ctx, "damaged:*").Val() {
			if client.PTTL(ctx, key).Val() < 0 {
				t.Fatalf("seed %d: %s has no time to live", seed, key)
			}
		}
		client.FlushAll(ctx)
	}
}

// damage changes, cuts or extends a value in one to three places.
func damage(rng *rand.Rand, value []byte) []byte {
	value = slices.Clone(value)
	for range 1 + rng.IntN(3) {
		switch rng.IntN(4) {
		case 0:
			value[rng.IntN(len(value))] = byte(rng.IntN(256))
		case 1: // the state of a record, its flags and its numbers
			value[rng.IntN(min(6, len(value)))] = []byte{0, 1, 2, 3, 4, 5, 7, 8, 32, 33, 254, 255}[rng.IntN(12)]
		case 2:
			value = value[:1+rng.IntN(len(value))]
		case 3:
			for range []int{1, 2, 7, 8, 14, 15, 16, 21, 36}[rng.IntN(9)] {
				value = append(value, byte(rng.IntN(256)))
			}
		}
	}
	return value
}
