package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

// TestShares makes takes of random classes: none that its class's own limit has room for is
// refused.
func TestShares(t *testing.T) {
	t.Parallel()
	const parts = 4
	for seed := range uint64(parts) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := shared(seed).Check(storetest.Length(20_000) / parts); err != nil {
				t.Error(err)
			}
		})
	}
}

// shared tests a memory store whose budgets are shared.
func shared(seed uint64) storetest.SharedBudgets {
	clock := storetest.NewClock()
	return storetest.SharedBudgets{Taker: memstore.New(memstore.Options{Now: clock.Now}), Clock: clock, Seed: seed}
}

// TestSharesFindMutants shows that the promise is broken, and that the test notices, if any
// part of the construction is left out.
func TestSharesFindMutants(t *testing.T) {
	t.Parallel()
	for name, change := range guaranteeMutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				s := shared(seed)
				change(&s)
				if err := s.Check(20_000); err != nil {
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
		limiter, granted := shares.Limiter(memstore.New(memstore.Options{Now: clock.Now}), "budget", class), int64(0)
		const minutes = 5
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
