package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/layer/fallback"
	"github.com/weirlimit/weir/internal/storetest"
)

// about does something to an id.
func about(taker weir.Taker, kind weir.Kind, id string, c weir.Charge) *weir.Act {
	a := storetest.NewAct(c)
	a.Kind, a.ID = kind, id
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

// used is what a store has charged of a limit.
func used(t testing.TB, store weir.Taker, key string, limit *weir.Limit) int64 {
	t.Helper()
	a := take(store, weir.Charge{Key: key, Limit: limit})
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return limit.Capacity() - a.Decisions[0].Remaining
}

// TestIDsInAnOutage: a take with an id that was decided here happens once, is settled
// and released here, and becomes the store's with what its caller was told last.
func TestIDsInAnOutage(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now})
	limit := weir.PerDay(100).MustCompile()
	charge := func(cost int64) weir.Charge { return weir.Charge{Key: "k", Limit: limit, Cost: cost} }
	about(taker, acts.KindTake, "before", charge(10))
	openUp(t, taker, store, weir.ErrNotApplied)
	for _, kind := range []weir.Kind{acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew} {
		if a := about(taker, kind, "before", charge(1)); !errors.Is(a.Err, weir.ErrNotApplied) {
			t.Errorf("%v of what the store knows: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
	if a := about(taker, acts.KindReset, "", charge(0)); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("a reset: %v", a.Err)
	}
	for range 2 {
		if a := about(taker, acts.KindTake, "kept", charge(20)); !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback || a.Decisions[0].Remaining != 70 {
			t.Errorf("taken: %+v, %v", a.Decisions, a.Err)
		}
	}
	about(taker, acts.KindTake, "settled", charge(20))
	about(taker, acts.KindTake, "released", charge(5))
	if a := about(taker, acts.KindSettle, "settled", charge(23)); a.Err != nil || a.Decisions[0].Granted != 23 {
		t.Errorf("settled: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRelease, "released", charge(0)); a.Err != nil || a.Decisions[0].Granted != 5 {
		t.Errorf("released: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	if n := used(t, store, "k", limit); n != 10+20+23 {
		t.Errorf("%d charged, want 53", n)
	}
	for _, at := range []weir.Taker{taker, store} { // here, and from any other instance
		if a := about(at, acts.KindTake, "kept", charge(20)); !a.Allowed() || a.Decisions[0].Granted != 20 || a.Decisions[0].Source != acts.SourceStore {
			t.Errorf("repeated: %+v, %v", a.Decisions, a.Err)
		}
	}
	if a := about(taker, acts.KindRelease, "kept", charge(0)); a.Err != nil || a.Decisions[0].Granted != 20 {
		t.Errorf("released afterwards: %+v, %v", a.Decisions, a.Err)
	}
	if n := used(t, store, "k", limit); n != 33 {
		t.Errorf("%d charged in the end, want 33", n)
	}
}

// TestReloadInAnOutage: a take that was decided here is settled here as it was taken, after
// its limits have changed, and the store charges what remains.
func TestReloadInAnOutage(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now})
	limit := weir.PerDay(100).MustCompile()
	act := func(kind weir.Kind, cost int64, keys ...string) *weir.Act {
		a := storetest.NewAct()
		for _, key := range keys {
			a.Charges = append(a.Charges, weir.Charge{Key: key, HashTag: "tag", Limit: limit, Cost: cost})
		}
		a.Kind, a.ID, a.Decisions = kind, "id", make([]weir.Decision, len(keys))
		a.Scope = weir.Scope{Owner: "caller", Asks: fmt.Sprint(cost), Cost: cost}
		taker.Take(context.Background(), []*weir.Act{a})
		return a
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	if a := act(acts.KindTake, 20, "old", "kept"); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindTake, 20, "new", "kept"); !a.Allowed() || a.Decisions[1].Granted != 20 || a.Decisions[0].Outcome != weir.NotEvaluated {
		t.Errorf("repeated: %+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindSettle, 5, "new", "kept"); a.Err != nil || a.Decisions[1].Granted != 5 {
		t.Errorf("settled: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	for key, want := range map[string]int64{"old": 5, "kept": 5, "new": 0} {
		a := take(store, weir.Charge{Key: key, HashTag: "tag", Limit: limit})
		if n := limit.Capacity() - a.Decisions[0].Remaining; n != want {
			t.Errorf("%d of %s are charged, want %d", n, key, want)
		}
	}
	if a := act(acts.KindRelease, 0, "new"); a.Err != nil {
		t.Errorf("released: %v", a.Err)
	}
}

// TestSlots: holders that came in during an outage have their slots in the store
// afterwards, above the limit if need be, at every instance.
func TestSlots(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	const instances, n = 2, 4
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: n, Period: time.Minute}.MustCompile(), Cost: 1}
	var fleet []*fallback.Layer
	for range instances {
		fleet = append(fleet, wrap(t, store, fallback.Options{Now: clock.Now, Instances: func() int { return instances }}))
	}
	if !about(fleet[0], acts.KindTake, "before", room).Allowed() {
		t.Fatal("no room at first")
	}
	store.fail(weir.ErrNotApplied)
	var here []string
	for i, taker := range fleet {
		for j := range n {
			if id := fmt.Sprintf("here%d%d", i, j); about(taker, acts.KindTake, id, room).Allowed() {
				here = append(here, id)
			}
		}
	}
	// The first has heard that three are left, the second nothing.
	if want := []string{"here00", "here10", "here11"}; !slices.Equal(here, want) {
		t.Fatalf("slots given: %v, want %v", here, want)
	}
	if a := about(fleet[0], acts.KindRenew, "here00", room); a.Err != nil || a.Decisions[0].Source != acts.SourceFallback {
		t.Errorf("renewed meanwhile: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(fleet[1], acts.KindRelease, "here11", room); a.Err != nil || a.Decisions[0].Granted != 1 {
		t.Errorf("released meanwhile: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	for _, taker := range fleet {
		eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	}
	for _, id := range []string{"before", "here00", "here10"} {
		for i := range fleet {
			if a := about(fleet[i], acts.KindRenew, id, room); a.Err != nil || a.Decisions[0].Source != acts.SourceStore {
				t.Errorf("renew %s at %d: %+v, %v", id, i, a.Decisions, a.Err)
			}
		}
	}
	if a := about(fleet[0], acts.KindTake, "fourth", room); !a.Allowed() || a.Decisions[0].Remaining != 0 {
		t.Errorf("room for a fourth: %+v, %v", a.Decisions, a.Err)
	}
	for i, id := range []string{"here00", "fourth", "before", "here10"} {
		if a := about(fleet[i%2], acts.KindRelease, id, room); a.Err != nil || a.Decisions[0].Granted != 1 {
			t.Errorf("release %s: %+v, %v", id, a.Decisions, a.Err)
		}
	}
	if a := take(store, weir.Charge{Key: "k", Limit: room.Limit}); a.Decisions[0].Remaining != n {
		t.Errorf("%d of %d slots left in the end", a.Decisions[0].Remaining, n)
	}
}

// TestSlotsBesideUnits are settled as one.
func TestSlotsBesideUnits(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now})
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile(), Cost: 1}
	units := weir.Charge{Key: "u", Limit: weir.PerDay(100).MustCompile(), Cost: 10}
	both := func(kind weir.Kind) *weir.Act {
		a := storetest.NewAct(room, units)
		a.Kind, a.ID = kind, "both"
		taker.Take(context.Background(), []*weir.Act{a})
		return a
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	if a := both(acts.KindTake); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	if n := used(t, store, "u", units.Limit); n != 10 {
		t.Errorf("%d charged", n)
	}
	for _, kind := range []weir.Kind{acts.KindRenew, acts.KindRelease} {
		if a := both(kind); a.Err != nil || a.Decisions[0].Source != acts.SourceStore {
			t.Errorf("%v: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
}

// TestRefundsAndRecords without ids are done here as far as there is something.
func TestRefundsAndRecords(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now, Policy: policies})
	limit := weir.PerDay(10).MustCompile()
	openUp(t, taker, store, weir.ErrNotApplied)
	d := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 6}).Decisions[0]
	if a := about(taker, acts.KindRefund, "", weir.Charge{Key: "k", Limit: limit, Cost: 4, At: d.At.UnixMicro()}); a.Err != nil || a.Decisions[0].Granted != 4 {
		t.Errorf("refunded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRecord, "", weir.Charge{Key: "k", Limit: limit, Cost: 3}); a.Err != nil || a.Decisions[0].Remaining != 5 {
		t.Errorf("recorded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRecord, "", weir.Charge{Key: "allowed", Limit: limit, Cost: 3}); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("recorded under allow: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "charged back", func() bool { return taker.Stats().Outstanding == 0 })
	if store.recorded("k") != 5 {
		t.Errorf("%d charged back, want 6 - 4 + 3", store.recorded("k"))
	}
}
