package memengine_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

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
		limiter, granted := shares.Limiter(memengine.New(memengine.Options{Now: clock.Now}), "budget", class), int64(0)
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

// TestChangedShares (A13): a change of the shares suspends no guarantee.
func TestChangedShares(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	// classes has classes share 1000 an hour, of which 48 stay free.
	classes := func(guarantees map[string]int64) func(class string) *weir.Limiter {
		shares, err := weir.Shares{Limit: weir.Limit{Count: 1000, Period: time.Hour, Burst: 200}, Headroom: 60, Guarantees: guarantees}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		return func(class string) *weir.Limiter { return shares.Limiter(store, "budget", class) }
	}
	units := func(l *weir.Limiter, n, want int64) {
		t.Helper()
		d, err := l.AllowN(t.Context(), "guarantees", n)
		if err != nil || d.Granted != want {
			t.Errorf("%d units: %v, %v; want %d", n, d, err, want)
		}
	}
	before := classes(map[string]int64{"web": 300, "ads": 500})
	after := classes(map[string]int64{"web": 300, "ads": 100, "new": 400})
	units(before("others"), 152, 152)
	units(before("ads"), 30, 30)
	// The budget has 18 units of 200 left. Guarantees of 18, 6 and 24 stay in force.
	units(after("web"), 18, 18)
	units(after("new"), 24, 24)
	units(after("others"), 1, 0)
	// Its guarantee is charged 30 units, of which 24 have to drain: at 100 an hour.
	units(after("ads"), 1, 0)
	clock.Advance(25 * time.Hour / 100)
	units(after("others"), 152, 152)
	units(after("ads"), 1, 1)
	units(after("ads"), 1, 0)
}
