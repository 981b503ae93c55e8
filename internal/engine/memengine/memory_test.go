package memengine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

func take(t testing.TB, store *memengine.Store, key string, limit *weir.Limit, cost int64) weir.Decision {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	if limit.Algorithm == weir.Concurrency {
		a.ID, a.Charges[0].Cost, a.Scope.Owner = fmt.Sprint("holder ", holders.Add(1)), 1, a.Charges[0].Key
	}
	if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Decisions[0]
}

// holders have ids of their own.
var holders atomic.Int64

// TestFreshKeysMakeRoom lets more keys pass through a small store than it holds
// at one time.
func TestFreshKeysMakeRoom(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	const bound = 1 << 20
	store := memengine.New(memengine.Options{MaxBytes: bound, Now: clock.Now})
	for id := range algo.Steps {
		l := weir.PerSecond(3)
		l.Algorithm = weir.Algorithm(id)
		limit := l.MustCompile()
		for i := range 20_000 {
			if d := take(t, store, fmt.Sprint("key", i), limit, 3); !d.Allowed() {
				t.Fatalf("%v: key %d was refused its first charge: %+v, %+v", limit, i, d, store.Stats())
			}
			clock.Advance(3 * time.Millisecond)
			if limit.Algorithm == weir.Concurrency {
				// Ids are remembered for minutes.
				clock.Advance(time.Second)
			}
		}
		if stats := store.Stats(); stats.Bytes > bound || stats.Overflowed > 0 {
			t.Errorf("%v: %+v", limit, stats)
		}
		clock.Advance(time.Hour)
	}
}

// TestFullStoreNeverGrantsTooMuch fills a store with live keys: none of them may
// be renewed, and new keys share one budget, even once there is room again.
func TestFullStoreNeverGrantsTooMuch(t *testing.T) {
	t.Parallel()
	for id, step := range algo.Steps {
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{MaxBytes: 256 << 10, Now: clock.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			l := weir.PerMinute(3)
			l.Algorithm = weir.Algorithm(id)
			limit := l.MustCompile()
			granted := make(map[string]int)
			least, bound := 250, int64(256<<10)
			if limit.Algorithm == weir.Concurrency {
				// Ids take room as well, and known keys may still gain holders.
				least, bound = 125, 256<<10+1<<10
			}
			for round := range 2 {
				for i := range 5000 {
					key := fmt.Sprint("key", i)
					for take(t, store, key, limit, 1).Allowed() {
						granted[key]++
					}
				}
				if stats := store.Stats(); stats.Overflowed == 0 || stats.Bytes > bound || stats.Keys < least {
					t.Fatalf("round %d: the store did not fill: %+v", round, stats)
				}
			}
			most := 0
			for key, n := range granted {
				if most += n; n > 3 {
					t.Fatalf("%s was granted %d of 3", key, n)
				}
			}
			if keys := store.Stats().Keys; most != 3*keys+3 {
				t.Errorf("%d granted to %d keys and one shared budget", most, keys)
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 {
				t.Errorf("logged %d lines:\n%s", lines, log.String())
			}
		})
	}
}

// TestBoundHoldsInTheHeap compares the store's estimate with what the runtime
// counts.
func TestBoundHoldsInTheHeap(t *testing.T) {
	const bound = 16 << 20
	before := heap()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{MaxBytes: bound, Now: clock.Now})
	limit := weir.PerHour(100).MustCompile()
	for i := 0; store.Stats().Overflowed == 0; i++ {
		for range 1000 {
			i++
			take(t, store, fmt.Sprintf("user:%012d", i), limit, 1)
		}
	}
	if grown := heap() - before; grown > bound*5/4 {
		t.Errorf("a store bounded to %d bytes takes %d", bound, grown)
	}
	runtime.KeepAlive(store)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestChargedKeysStay: keys that come once take no place of a key that was charged again.
func TestChargedKeysStay(t *testing.T) {
	t.Parallel()
	for id := range algo.Steps {
		limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 4, Period: time.Hour}.MustCompile()
		clock := storetest.NewClock()
		store := memengine.New(memengine.Options{Now: clock.Now})
		for range 3 {
			take(t, store, "charged", limit, 1)
		}
		clock.Advance(10 * time.Second)
		for i := range 20_000 {
			take(t, store, fmt.Sprint("once ", i), limit, 1)
		}
		if d := take(t, store, "charged", limit, 1); d.Remaining != 0 {
			t.Errorf("%v: %d remain", limit, d.Remaining)
		}
	}
}

// TestLogsStayWithinTheBound: logs take no more memory than there is, and are no less strict.
func TestLogsStayWithinTheBound(t *testing.T) {
	t.Parallel()
	const bound, keys, charges = 1 << 20, 20, 10_000
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{MaxBytes: bound, Now: clock.Now})
	limit := weir.Limit{Algorithm: weir.SlidingLog, Count: charges, Period: 24 * time.Hour}.MustCompile()
	for i := range charges + 1 {
		for key := range keys {
			clock.Advance(time.Microsecond)
			if d := take(t, store, fmt.Sprint(key), limit, 1); d.Allowed() != (i < charges) {
				t.Fatalf("charge %d: %+v", i, d)
			}
		}
	}
	if stats := store.Stats(); stats.Bytes > bound*11/10 {
		t.Errorf("%+v", stats)
	}
}

// TestNoDrift saturates limits whose rates have no finite decimals with a
// hundred thousand charges, and compares with exact fractions.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"3/s", "7/min", "999983/h"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			l, err := weir.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			l.Burst = 3
			limit := l.MustCompile()
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			start := clock.Micros()
			granted := int64(0)
			// A prime fraction of the time between two units, so that charges
			// come at all phases.
			step := limit.Period / time.Duration(limit.Count) * 10 / 37
			for range 100_000 {
				clock.Advance(max(step, time.Microsecond))
				if take(t, store, "k", limit, 1).Allowed() {
					granted++
				}
			}
			flow := new(big.Int).Mul(big.NewInt(limit.Count), big.NewInt(clock.Micros()-start))
			want := flow.Div(flow, big.NewInt(limit.Period.Microseconds())).Int64() + limit.Burst
			if granted > want || granted < want-1 {
				t.Errorf("%d granted, the exact model %d", granted, want)
			}
		})
	}
}

// TestRepeatedWindow (A10) sets the clock back behind the fixed window that a limit of 4 was
// used up in, to the one that it was used up in before: the windows that the clock repeats
// grant nothing.
func TestRepeatedWindow(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	const day = 24 * time.Hour
	for _, l := range []weir.Limit{
		{Algorithm: weir.FixedWindow, Count: 4, Period: 10 * time.Second},
		{Algorithm: weir.FixedWindow, Count: 4, Period: 10 * time.Second, Anchor: weir.AnchorFirst},
		{Algorithm: weir.FixedWindow, Count: 4, Period: day, TimeZone: "UTC"},
	} {
		limit, key := l.MustCompile(), l.String()+l.TimeZone
		take := func(cost int64) bool {
			a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
			store.Take(context.Background(), []*weir.Act{a})
			return a.Allowed()
		}
		end := clock.Now().Truncate(l.Period).Add(2 * l.Period)
		start := end.Add(-l.Period / 20)
		if l.Anchor == weir.AnchorFirst {
			end = start.Add(l.Period)
		}
		if clock.Set(start); !take(4) || take(1) {
			t.Fatalf("%v: not 4 in a window", l)
		}
		if clock.Set(end.Add(l.Period / 20)); !take(4) || take(1) {
			t.Fatalf("%v: not 4 in the next window", l)
		}
		// Within a period from here on, 8 units are granted already.
		back := end.Add(-l.Period / 10)
		for since := time.Duration(0); since < l.Period; since += l.Period / 40 {
			if clock.Set(back.Add(since)); take(1) {
				t.Fatalf("%v: granted %v after the clock went back", l, since)
			}
		}
		if clock.Set(back.Add(2 * l.Period)); !take(4) {
			t.Fatalf("%v: locked out", l)
		}
	}
}

// TestBoundFollowsTheMemoryLimit: a store without a bound of its own leaves most of a small
// container to the program.
func TestBoundFollowsTheMemoryLimit(t *testing.T) {
	const limit = 4 << 20
	before := debug.SetMemoryLimit(limit)
	store := memengine.New(memengine.Options{})
	debug.SetMemoryLimit(before)
	perDay := weir.PerDay(1).MustCompile()
	for i := range 25_000 {
		take(t, store, fmt.Sprint("user:", i), perDay, 1)
	}
	if stats := store.Stats(); stats.Bytes > limit/4 || stats.Overflowed == 0 {
		t.Errorf("of %d bytes: %+v", limit, stats)
	}
}
