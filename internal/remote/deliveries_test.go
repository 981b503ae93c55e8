package remote_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestEndsAreDelivered: a release, settlement or refund that the store did not decide is
// delivered, whatever became of it, and whether its caller waited.
func TestEndsAreDelivered(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(100).MustCompile()
	charge := func(cost int64) weir.Charge { return weir.Charge{Key: "k", Limit: limit, Cost: cost} }
	for kind, want := range map[weir.Kind]int64{acts.KindRelease: 0, acts.KindSettle: 4, acts.KindRefund: 6} {
		for _, reason := range []error{weir.ErrNotApplied, weir.ErrAmbiguous, context.Canceled, nil} {
			t.Run(fmt.Sprint(kind, "/", reason), func(t *testing.T) {
				t.Parallel()
				clock := storetest.NewClock()
				late := newLatecomer(clock)
				store := newFlaky(clock)
				store.Taker = late
				taker := wrap(t, store, remote.Options{Now: clock.Now, Policy: func(*weir.Charge) remote.Policy { return remote.Error }})
				about(taker, acts.KindTake, "id", charge(10))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				switch reason {
				case context.Canceled:
					store.fail(weir.ErrNotApplied)
					leave()
				case nil:
					late.hold()
				default:
					store.fail(reason)
				}
				end := func(ctx context.Context, kind weir.Kind) error {
					a := storetest.NewAct(charge(4))
					a.Kind, a.ID, a.Scope.Owner = kind, "id", a.Charges[0].Key
					taker.Take(ctx, []*weir.Act{a})
					return a.Err
				}
				for range 2 {
					if err := end(ctx, kind); !acts.Kept(err) || !errors.Is(err, weir.ErrAmbiguous) || !strings.Contains(err.Error(), "repeat it for the numbers") {
						t.Errorf("%v", err)
					}
				}
				if err := end(ctx, acts.KindRenew); err == nil || acts.Kept(err) {
					t.Errorf("renewed: %v", err)
				}
				// The first one wins.
				if err := end(ctx, map[bool]weir.Kind{true: acts.KindSettle, false: acts.KindRelease}[kind == acts.KindRelease]); err == nil || acts.Kept(err) {
					t.Errorf("another end: %v", err)
				}
				if reason == nil {
					late.land(nil, true)
				}
				store.fail(nil)
				testserver.Eventually(t, "delivered", func() bool { return taker.Stats().Outstanding == 0 })
				if n := used(t, store, "k", limit); n != want {
					t.Errorf("%d charged, want %d", n, want)
				}
				if err := end(t.Context(), kind); err != nil {
					t.Errorf("repeated: %v", err)
				}
			})
		}
	}
}

// TestEndComesFirst: an instance ends what another one granted in an outage, and is reachable
// again before it. The store remembers the end, and nothing is repeated.
func TestEndComesFirst(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	var links [2]*flaky
	var fleet [2]*remote.Remote
	for i := range links {
		links[i] = newFlaky(clock)
		links[i].Taker = store
		links[i].fail(weir.ErrNotApplied)
		fleet[i] = wrap(t, links[i], remote.Options{Now: clock.Now, Instances: func() int { return 2 }})
	}
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Hour}.MustCompile(), Cost: 1}
	for _, id := range []string{"late", "soon"} {
		if a := about(fleet[0], acts.KindTake, id, room); id == "late" && !a.Allowed() {
			t.Fatal(a.Decisions, a.Err)
		}
	}
	for _, id := range []string{"late", "nobody's"} {
		if a := about(fleet[1], acts.KindRelease, id, room); !acts.Kept(a.Err) {
			t.Errorf("released: %v", a.Err)
		}
	}
	links[1].fail(nil)
	testserver.Eventually(t, "the ends are delivered", func() bool { return fleet[1].Stats().Outstanding == 0 })
	if a := about(fleet[1], acts.KindRelease, "nobody's", room); !errors.Is(a.Err, weir.ErrUnknownID) {
		t.Errorf("an unknown ID: %v", a.Err)
	}
	links[0].fail(nil)
	testserver.Eventually(t, "recorded", func() bool { return fleet[0].Stats().Outstanding == 0 })
	room.Cost = 0
	if a := about(store, acts.KindTake, "", room); a.Decisions[0].Remaining != 2 {
		t.Errorf("%d slots are free of 2", a.Decisions[0].Remaining)
	}
	room.Cost = 1
	if a := about(fleet[1], acts.KindRelease, "late", room); a.Err != nil {
		t.Errorf("released again: %v", a.Err)
	}
}

// TestRepeatInNextOutage repeats a take that was granted in one outage and recorded, in the next.
func TestRepeatInNextOutage(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	link := newFlaky(clock)
	link.Taker = memengine.New(memengine.Options{Now: clock.Now})
	taker := wrap(t, link, remote.Options{Now: clock.Now})
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Hour}.MustCompile(), Cost: 1}
	for range 2 {
		link.fail(weir.ErrNotApplied)
		testserver.Eventually(t, "out", func() bool { return about(taker, acts.KindTake, "another", room).Err == nil })
		if a := about(taker, acts.KindTake, "id", room); a.Err != nil || !a.Allowed() {
			t.Errorf("%+v, %v", a.Decisions, a.Err)
		}
		link.fail(nil)
		testserver.Eventually(t, "recorded", func() bool { return taker.Stats().Outstanding == 0 && len(taker.Outages()) == 0 })
	}
}

// TestDeliveriesAreBounded: without room, the act is an error; and Stop says what is lost.
func TestDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	store := newFlaky(nil)
	taker := remote.New(storetest.Alone{Taker: store}, remote.Options{MaxKeys: 1, Policy: policies})
	charge := weir.Charge{Key: "error", Limit: weir.PerDay(100).MustCompile(), Cost: 1}
	store.fail(weir.ErrNotApplied)
	if a := about(taker, acts.KindRelease, "one", charge); !acts.Kept(a.Err) {
		t.Error(a.Err)
	}
	if a := about(taker, acts.KindRelease, "two", charge); acts.Kept(a.Err) || !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Error(a.Err)
	}
	for _, kept := range []bool{true, false} {
		if a := about(taker, acts.KindRefund, "", charge); acts.Kept(a.Err) != kept || a.Err == nil {
			t.Errorf("kept %v: %v", !kept, a.Err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := taker.Stop(ctx); err == nil || !strings.Contains(err.Error(), " 1 releases and settlements are not delivered") {
		t.Error(err)
	}
}

// TestRefundsWithoutIDsAreSentOnce: a refund of what the store charged is made later, for the charge's
// instant, unless it may have been made. What is owed about the key becomes less first.
func TestRefundsWithoutIDsAreSentOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy string // by the key
		reason error
		owed   int64 // units granted here
		want   int64
	}{
		{"error", weir.ErrNotApplied, 0, 7},
		{"error", weir.ErrAmbiguous, 0, 10},
		{"local", weir.ErrNotApplied, 0, 7},
		{"local", weir.ErrNotApplied, 2, 9}, // 10 + 2 - 3
		{"local", weir.ErrNotApplied, 5, 12},
		{"local", weir.ErrAmbiguous, 0, 10},
	} {
		store := newFlaky(nil)
		taker := wrap(t, store, remote.Options{Policy: policies})
		charge := weir.Charge{Key: c.policy, Limit: weir.PerDay(100).MustCompile(), Cost: 10}
		d := take(taker, charge).Decisions[0]
		if c.owed > 0 {
			openUp(t, taker, store, c.reason)
			here := charge
			here.Cost = c.owed
			if a := take(taker, here); !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback {
				t.Errorf("%+v: %+v, %v", c, a.Decisions, a.Err)
			}
		}
		store.fail(c.reason)
		charge.Cost, charge.At = 3, d.At.UnixMicro()
		switch a := about(taker, acts.KindRefund, "", charge); {
		case c.policy == "error" && !acts.Kept(a.Err):
			t.Errorf("%+v: %v", c, a.Err)
		case c.policy == "local" && (a.Err != nil || a.Decisions[0].Granted < 2): // a part of a unit has drained
			t.Errorf("%+v: %+v, %v", c, a.Decisions, a.Err)
		}
		store.fail(nil)
		testserver.Eventually(t, "refunded", func() bool { return taker.Stats().Outstanding == 0 })
		if n := used(t, store, c.policy, charge.Limit); n != c.want {
			t.Errorf("%+v: %d charged", c, n)
		}
	}
}
