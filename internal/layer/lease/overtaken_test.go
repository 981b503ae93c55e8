package lease_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestOvertaken: between a caller's look at the clock and its turn, another one has
// filled the share. What the store is asked for stays a cost, and nothing is lost.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]int{"one reading": 1, "the clock has gone back": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			stale := 0
			now := func() time.Time {
				if stale > 0 {
					stale--
					return clock.Now().Add(-time.Hour)
				}
				return clock.Now()
			}
			limit := (&weir.Limit{Algorithm: weir.SlidingLog, Count: 1000, Period: time.Second}).MustCompile()
			l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{Leased: all, Now: now})
			charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
			granted := int64(0)
			one := func() {
				a := take(l, charge)
				if a.Err != nil || !a.Allowed() {
					t.Fatal(a.Err, a.Decisions)
				}
				granted++
			}
			for range 100 {
				clock.Advance(time.Millisecond)
				stale = back
				one()
				stale = 0
				one()
			}
			if err := l.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			look := charge
			look.Cost = 0
			if got := take(l, look).Decisions[0].Remaining; got != limit.Count-granted {
				t.Errorf("%d units remain after %d grants of %d", got, granted, limit.Count)
			}
		})
	}
}
