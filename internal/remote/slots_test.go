package remote_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// anonymous does an act of nobody in particular.
func anonymous(taker weir.Taker, kind weir.Kind, c weir.Charge) weir.Decision {
	a := storetest.NewAct(c)
	a.Kind, a.Anonymous = kind, true
	taker.Take(context.Background(), []*weir.Act{a})
	return a.Decisions[0]
}

// TestAnonymousSlots: requests begin and end before, during and after an outage, and
// afterwards the store counts those that run.
func TestAnonymousSlots(t *testing.T) {
	t.Parallel()
	seats := weir.Charge{Key: "seats", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile(), Cost: 1}
	for name, c := range map[string]struct {
		before, during, after string // + begins, - ends
		free                  int64
	}{
		"begun before, ended during":           {"++", "-", "", 3},
		"begun and ended during":               {"+", "+-+-", "", 3},
		"begun during, running":                {"+", "++", "", 1},
		"begun during, ended after":            {"+", "++", "--", 3},
		"refused during":                       {"++", "+++--", "", 1},
		"refused and ended, others ended, too": {"++", "+++-----", "", 4},
		"refused before, ended during":         {"+++++", "-", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			store := newFlaky(clock)
			taker := wrap(t, store, remote.Options{Now: clock.Now, Patience: time.Minute})
			run := func(steps string) {
				for _, step := range steps {
					kind := acts.KindTake
					if step == '-' {
						kind = acts.KindRefund
					}
					anonymous(taker, kind, seats)
				}
			}
			run(c.before)
			store.fail(weir.ErrNotApplied)
			run(c.during)
			back(t, store, taker)
			testserver.Eventually(t, "reconciled", func() bool { return taker.Stats().Outstanding == 0 })
			run(c.after)
			peek := seats
			peek.Cost = 0
			if d := anonymous(store, acts.KindTake, peek); d.Remaining != c.free {
				t.Errorf("%d slots are free, want %d", d.Remaining, c.free)
			}
		})
	}
}

// TestSlotIsReturnedOnce: the store frees a slot, and its reply is lost.
func TestSlotIsReturnedOnce(t *testing.T) {
	t.Parallel()
	seats := weir.Charge{Key: "seats", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile(), Cost: 1}
	store := newFlaky(nil)
	taker := wrap(t, losing(store, acts.KindRefund), remote.Options{Patience: time.Minute})
	for range 3 {
		anonymous(taker, acts.KindTake, seats)
	}
	anonymous(taker, acts.KindRefund, seats)
	testserver.Eventually(t, "reconciled", func() bool { return taker.Stats().Outstanding == 0 })
	seats.Cost = 0
	if d := anonymous(store, acts.KindTake, seats); d.Remaining != 2 {
		t.Errorf("%d slots are free, want 2", d.Remaining)
	}
}

// TestSlotsThatTheStoreHasRecorded: slots that were taken here and that the store has
// recorded are still taken when the store is away again.
func TestSlotsThatTheStoreHasRecorded(t *testing.T) {
	t.Parallel()
	limit := weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now, Patience: time.Minute})
	for room := range 20 {
		granted := func(n int) (granted int) {
			for range n {
				a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("room ", room), Limit: limit, Cost: 1})
				a.ID, a.NewID, a.Scope.Owner = rand.Text(), true, a.Charges[0].Key
				if taker.Take(t.Context(), []*weir.Act{a}); a.Allowed() {
					granted++
				}
			}
			return granted
		}
		store.fail(weir.ErrNotApplied)
		n := granted(3)
		back(t, store, taker)
		n += granted(room % 2)
		store.fail(weir.ErrNotApplied)
		if n += granted(5); n > 4 {
			t.Fatalf("%d of 4 granted", n)
		}
		back(t, store, taker)
		testserver.Eventually(t, "reconciled", func() bool { return taker.Stats().Outstanding == 0 })
		if n += granted(5); n != 4 {
			t.Fatalf("room for 4, %d granted", n)
		}
	}
}
