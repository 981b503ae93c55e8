package keylimit_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestRefundsOfTrackedKeys has one instance charge a key that it tracks, and another one, which
// does not, refund it. The keys that share the Overflow get what one key has, and no more.
func TestRefundsOfTrackedKeys(t *testing.T) {
	t.Parallel()
	for _, limit := range perHour() {
		for _, anonymous := range []bool{true, false} {
			if limit.Algorithm == weir.Concurrency && !anonymous {
				continue // holders have IDs
			}
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			var instances [2]*keylimit.Layer
			for i := range instances {
				instances[i] = keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
			}
			do := func(instance int, kind weir.Kind, key string) weir.Decision {
				a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
				if a.Kind, a.Anonymous = kind, anonymous; kind == acts.KindRefund && !anonymous {
					a.Charges[0].At = clock.Micros()
				}
				if take(t, instances[instance], a); a.Err != nil {
					t.Fatalf("%v: %v of %s: %v", limit, kind, key, a.Err)
				}
				return a.Decisions[0]
			}
			do(0, acts.KindTake, "of the first")
			do(1, acts.KindTake, "of the second")
			granted, refused := 0, 0
			for i := range 40 {
				if d := do(0, acts.KindTake, "of the first"); d.Allowed() {
					if back := do(1, acts.KindRefund, "of the first"); back.Granted != 1 {
						t.Errorf("%v: %d of the tracked key's unit came back", limit, back.Granted)
					}
				}
				stranger := fmt.Sprint("stranger ", i)
				if do(i%2, acts.KindTake, stranger).Allowed() {
					granted++
				} else {
					refused++
				}
			}
			if granted != 10 || refused != 30 {
				t.Errorf("%v, anonymous %v: %d units of 10 were granted to the keys that share a budget", limit, anonymous, granted)
			}
			// A key that shares has no units of its own to return.
			if back := do(0, acts.KindRefund, "stranger 0"); back.Granted != 0 {
				t.Errorf("%v, anonymous %v: %d units of the shared budget came back", limit, anonymous, back.Granted)
			}
		}
	}
}

// TestHoldsBeyondTheBudgetEndElsewhere has an instance whose keys have room end what another one
// has charged to the Overflow.
func TestHoldsBeyondTheBudgetEndElsewhere(t *testing.T) {
	t.Parallel()
	for _, limit := range perHour() {
		clock := storetest.NewClock()
		store := memengine.New(memengine.Options{Now: clock.Now})
		full, empty := keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now}), keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
		charge(t, full, "tracked", limit, 1)
		key := weir.Charge{Key: "stranger", Limit: limit, Cost: 1}
		if a := about(t, full, acts.KindTake, "id", key); !a.Allowed() {
			t.Fatalf("%v: %v, %v", limit, a.Decisions, a.Err)
		}
		for _, kind := range []weir.Kind{acts.KindRenew, acts.KindRelease} {
			if a := about(t, empty, kind, "id", key); a.Err != nil {
				t.Errorf("%v: %v: %v", limit, kind, a.Err)
			}
		}
		if d := charge(t, full, "another", limit, 0); d.Remaining != 10 {
			t.Errorf("%v: %d of 10 remain of the shared budget", limit, d.Remaining)
		}
	}
}
