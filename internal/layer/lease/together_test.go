package lease_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestNoUnitsAreLost has acts charge keys by turns beside different other keys, and under limits
// that change. Once all leases are returned, the store has charged what was granted.
func TestNoUnitsAreLost(t *testing.T) {
	t.Parallel()
	of := func(name string, algorithm weir.Algorithm, count int64, period time.Duration) *weir.Limit {
		return weir.Limit{Name: name, Algorithm: algorithm, Count: count, Period: period}.MustCompile()
	}
	const year = 365 * 24 * time.Hour
	tenant, user := of("tenant", weir.SlidingLog, 50_000, year), of("user", weir.SlidingLog, 20_000, year)
	raised := of("tenant", weir.SlidingLog, 90_000, year)
	window := of("window", weir.FixedWindow, 50_000, time.Second)
	for name, chargesOf := range map[string]func(i int) []weir.Charge{
		"beside five users": func(i int) []weir.Charge {
			return []weir.Charge{{Key: "tenant", Limit: tenant, Cost: 1}, {Key: fmt.Sprint("user ", i%5), Limit: user, Cost: 1}}
		},
		"users first": func(i int) []weir.Charge {
			return []weir.Charge{{Key: fmt.Sprint("user ", i%5), Limit: user, Cost: 1}, {Key: "tenant", Limit: tenant, Cost: 1}}
		},
		"alone and beside another": func(i int) []weir.Charge {
			return []weir.Charge{{Key: "tenant", Limit: tenant, Cost: 1}, {Key: "user", Limit: user, Cost: 1}}[:1+i%2]
		},
		"two limits by turns": func(i int) []weir.Charge {
			return []weir.Charge{{Key: "tenant", Limit: []*weir.Limit{tenant, raised}[i/60%2], Cost: 1}}
		},
		"beside a window that ends": func(int) []weir.Charge {
			return []weir.Charge{{Key: "window", Limit: window, Cost: 1}, {Key: "tenant", Limit: tenant, Cost: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			var instances [2]*lease.Layer
			for i := range instances {
				instances[i] = lease.Wrap(store, lease.Options{Leased: all, Now: clock.Now})
			}
			rng, granted := rand.New(rand.NewPCG(1, 2)), map[string]int64{}
			for i := range 6000 {
				if clock.Advance(2 * time.Millisecond); rng.IntN(100) == 0 {
					clock.Advance(1500 * time.Millisecond)
				}
				charges := chargesOf(rng.IntN(1 << 20))
				if name == "two limits by turns" {
					charges = chargesOf(i)
				}
				for j, d := range take(instances[i%2], charges...).Decisions {
					granted[charges[j].Key] += d.Granted
				}
				if i%50 == 0 {
					if err := instances[rng.IntN(2)].ReturnExpired(); err != nil {
						t.Fatal(err)
					}
				}
			}
			spent := uint64(0)
			for _, l := range instances {
				spent += l.Stats().Spent
				if err := l.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if spent < 1000 {
				t.Errorf("only %d acts were paid with leased units", spent)
			}
			for key, want := range granted {
				limit := map[string]*weir.Limit{"tenant": tenant, "window": window}[key]
				if limit == window {
					continue // its units are gone with each window
				} else if limit == nil {
					limit = user
				}
				if got := limit.Count - take(store, weir.Charge{Key: key, Limit: limit}).Decisions[0].Remaining; got != want {
					t.Errorf("%s is charged %d of %d units that were granted", key, got, want)
				}
			}
		})
	}
}

// TestPartOfASharedKey has many users of one tenant: their leases together are no more than a
// lease of the tenant alone may be.
func TestPartOfASharedKey(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	tenant := weir.Limit{Name: "tenant", Algorithm: weir.SlidingLog, Count: 1000, Period: time.Hour}.MustCompile()
	user := weir.Limit{Name: "user", Algorithm: weir.SlidingLog, Count: 1000, Period: time.Hour}.MustCompile()
	l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{Leased: all, Part: 0.1, Now: clock.Now})
	most := int64(0)
	for i := range 700 {
		clock.Advance(time.Millisecond)
		key := fmt.Sprint("user ", i%20)
		if a := take(l, weir.Charge{Key: key, Limit: user, Cost: 1}, weir.Charge{Key: "tenant", Limit: tenant, Cost: 1}); a.Err != nil {
			t.Fatal(a.Err)
		}
		if most = max(most, l.Stats().Left); most > 100 {
			t.Fatalf("%d units are leased, want at most 100", most)
		}
	}
	if most < 50 {
		t.Errorf("at most %d units were leased: nothing is bounded", most)
	}
}
