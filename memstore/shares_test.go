package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// TestShares makes a million takes of random classes: none that its class's own limit has
// room for is refused.
func TestShares(t *testing.T) {
	t.Parallel()
	takes := 1_000_000
	if testing.Short() {
		takes = 50_000
	}
	const parts = 4
	for seed := range uint64(parts) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := shared(seed, nil).Check(takes / parts); err != nil {
				t.Error(err)
			}
		})
	}
}

// shared is a memory store whose budgets are shared, asked in some way.
func shared(seed uint64, ask func(weir.Taker, string, []weir.Charge) []*weir.Act) storetest.SharedBudgets {
	clock := storetest.NewClock()
	return storetest.SharedBudgets{Taker: memstore.New(memstore.Options{Now: clock.Now}), Clock: clock, Seed: seed, Ask: ask}
}

// TestSharesFindMutants shows that the promise is broken, and that the test notices, if any
// part of the construction is left out.
func TestSharesFindMutants(t *testing.T) {
	t.Parallel()
	take := func(taker weir.Taker, id string, charges ...weir.Charge) *weir.Act {
		a := storetest.NewAct(charges...)
		a.ID = id
		taker.Take(context.Background(), []*weir.Act{a})
		return a
	}
	kept := func(change func(*weir.Charge)) func(weir.Taker, string, []weir.Charge) []*weir.Act {
		return func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
			change(&charges[len(charges)-1])
			return []*weir.Act{take(taker, id, charges...)}
		}
	}
	for name, ask := range map[string]func(weir.Taker, string, []weir.Charge) []*weir.Act{
		"one unit too few stays free": kept(func(c *weir.Charge) { c.Keep-- }),
		"nothing stays free":          kept(func(c *weir.Charge) { c.Keep = 0 }),
		"one call for each charge": func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
			if len(charges) == 1 {
				return []*weir.Act{take(taker, id, charges...)}
			}
			pool := take(taker, id, charges[1])
			own := take(taker, "", charges[0])
			if pool.Allowed() && own.Allowed() {
				return []*weir.Act{pool, own}
			}
			return []*weir.Act{pool, take(taker, "", charges[2])}
		},
		"a guarantee gets back more than its budget": func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
			own := charges[0].Limit
			charges[0].Limit = weir.Limit{Count: own.Count, Period: own.Period, Burst: own.Burst}.MustCompile()
			return []*weir.Act{take(taker, id, charges...)}
		},
		"guarantees without a limit": func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
			return []*weir.Act{take(taker, id, charges[len(charges)/2:]...)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				if err := shared(seed, ask).Check(20_000); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}

// TestLoneClass has one class ask alone: it gets all of the budget, whatever is guaranteed to
// it.
func TestLoneClass(t *testing.T) {
	t.Parallel()
	shares, err := weir.Shares{Limit: weir.PerMinute(1000), Guarantees: map[string]int64{"search": 300, "ads": 500}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"search", "ads", "others"} {
		clock := storetest.NewClock()
		limiter, granted := shares.Limiter(memstore.New(memstore.Options{Now: clock.Now}), class), int64(0)
		const minutes = 20
		for end := clock.Now().Add(minutes * time.Minute); clock.Now().Before(end); {
			d, err := limiter.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if granted += d.Granted; !d.Allowed() && d.RetryAfter <= 0 {
				t.Fatalf("%s: refused, but may retry at once: %v", class, d)
			}
			clock.Advance(max(time.Microsecond, d.RetryAfter))
		}
		if least := int64(1000 * minutes * 99 / 100); granted < least {
			t.Errorf("%s alone: %d in %d minutes, want %d", class, granted, minutes, least)
		}
	}
}
