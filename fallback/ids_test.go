package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/fallback"
	"github.com/weirlimit/weir/storetest"
)

// about does something to an id.
func about(taker weir.Taker, kind weir.Kind, id string, c weir.Charge) *weir.Act {
	a := storetest.NewAct(c)
	a.Kind, a.ID = kind, id
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

// TestIDsStayWhereTheyWereTaken: a take with an id that was decided here happens
// once, also when the store is back, and is settled here; the store learns the
// difference.
func TestIDsStayWhereTheyWereTaken(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now, ProbeEvery: time.Millisecond})
	limit := weir.PerDay(100).MustCompile()
	charge := func(cost int64) weir.Charge { return weir.Charge{Key: "k", Limit: limit, Cost: cost} }
	about(taker, weir.Take, "before", charge(10))
	openUp(t, taker, store, weir.ErrNotApplied)
	for _, kind := range []weir.Kind{weir.Refund, weir.Settle, weir.Release, weir.Renew} {
		if a := about(taker, kind, "before", charge(1)); !errors.Is(a.Err, weir.ErrNotApplied) {
			t.Errorf("%v of what the store knows: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
	if a := about(taker, weir.Reset, "", charge(0)); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("a reset: %v", a.Err)
	}
	first := about(taker, weir.Take, "during", charge(20))
	about(taker, weir.Take, "released", charge(5))
	if a := about(taker, weir.Release, "released", charge(0)); a.Err != nil || a.Decisions[0].Granted != 5 {
		t.Errorf("released: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "charged back", func() bool { return taker.Err() == nil && taker.Stats().Owed == 0 })
	again := about(taker, weir.Take, "during", charge(20))
	if !again.Allowed() || again.Decisions[0] != first.Decisions[0] {
		t.Errorf("repeated: %+v, %v, at first %+v", again.Decisions, again.Err, first.Decisions)
	}
	for range 2 {
		if a := about(taker, weir.Settle, "during", charge(23)); a.Err != nil || a.Decisions[0].Granted != 23 {
			t.Errorf("settled: %+v, %v", a.Decisions, a.Err)
		}
	}
	eventually(t, "charged back", func() bool { return taker.Stats().Owed == 0 })
	if store.recorded("k") != 23 {
		t.Errorf("%d recorded, want the 20 and the 3", store.recorded("k"))
	}
	if a := about(taker, weir.Settle, "before", charge(12)); a.Err != nil {
		t.Errorf("what the store knows, later: %v", a.Err)
	}
}

// TestPlaces: who came in while the store was away can stay and leave.
func TestPlaces(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now, ProbeEvery: time.Millisecond, Instances: func() int { return 2 }})
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Minute}.MustCompile(), Cost: 1}
	openUp(t, taker, store, weir.ErrNotApplied)
	if !about(taker, weir.Take, "one", room).Allowed() || about(taker, weir.Take, "two", room).Allowed() {
		t.Error("not one place of two for one of two instances")
	}
	store.fail(nil)
	eventually(t, "back", func() bool { return taker.Err() == nil })
	for _, kind := range []weir.Kind{weir.Renew, weir.Release} {
		if a := about(taker, kind, "one", room); a.Err != nil || a.Decisions[0].Granted != 1 {
			t.Errorf("%v: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
	if a := about(taker, weir.Take, "three", room); !a.Allowed() || a.Decisions[0].Source != weir.SourceStore {
		t.Errorf("then %+v, %v", a.Decisions, a.Err)
	}
}

// TestPlacesMoveToTheStore: who came in while the store was away, and stays, has a place
// there as soon as there is room, and from then on at every instance.
func TestPlacesMoveToTheStore(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	const instances, n = 2, 4
	var fleet []*fallback.Taker
	for range instances {
		fleet = append(fleet, wrap(t, store, fallback.Options{Now: clock.Now, ProbeEvery: time.Millisecond, Instances: func() int { return instances }}))
	}
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: n, Period: time.Minute}.MustCompile(), Cost: 1}
	for i := range n - 1 {
		if !about(fleet[0], weir.Take, fmt.Sprint("before", i), room).Allowed() {
			t.Fatal("no room at first")
		}
	}
	var here []string
	for i, taker := range fleet {
		openUp(t, taker, store, weir.ErrNotApplied)
		for j := range n {
			if id := fmt.Sprint("here", i, j); about(taker, weir.Take, id, room).Allowed() {
				here = append(here, id)
			}
		}
	}
	if len(here) != n { // N, in shares
		t.Fatalf("%d places given here: %v", len(here), here)
	}
	renew := func() (at string) {
		for _, id := range here {
			taker := fleet[id[4]-'0']
			a := about(taker, weir.Renew, id, room)
			if a.Err != nil || a.Decisions[0].Granted != 1 {
				t.Fatalf("renew %s: %+v, %v", id, a.Decisions, a.Err)
			}
			at += a.Decisions[0].Source.String()[:1]
		}
		return at
	}
	if at := renew(); at != "ffff" {
		t.Errorf("renewed while the store is away: %s", at)
	}
	store.fail(nil)
	for _, taker := range fleet {
		eventually(t, "back", func() bool { return taker.Err() == nil })
	}
	// The store has room for one, and nobody else gets it.
	if at := renew(); at != "sfff" || about(fleet[1], weir.Take, "new", room).Allowed() {
		t.Errorf("renewed: %s", at)
	}
	if about(fleet[1], weir.Release, "before0", room).Err != nil {
		t.Error("a place that was the store's")
	}
	if at := renew(); at != "ssff" {
		t.Errorf("renewed with room for one more: %s", at)
	}
	// What the store has taken over is known everywhere, what it has not is here.
	if a := about(fleet[1], weir.Release, here[0], room); a.Err != nil || a.Decisions[0].Granted != 1 {
		t.Errorf("released at another instance: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(fleet[1], weir.Release, here[3], room); a.Err != nil || a.Decisions[0].Source != weir.SourceFallback {
		t.Errorf("released here: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(fleet[1], weir.Renew, here[3], room); !errors.Is(a.Err, weir.ErrInvalid) {
		t.Errorf("renewed after its release: %+v, %v", a.Decisions, a.Err)
	}
	// A holder who does not renew is gone after a lease, here as there.
	clock.Advance(time.Minute)
	if a := about(fleet[1], weir.Renew, here[2], room); !errors.Is(a.Err, weir.ErrUnknownID) {
		t.Errorf("renewed after its lease: %+v, %v", a.Decisions, a.Err)
	}
	granted := 0
	for i := range 2 * n {
		if about(fleet[i%2], weir.Take, fmt.Sprint("after", i), room).Allowed() {
			granted++
		}
	}
	if granted != n || fleet[0].Stats().Adopted != 2 {
		t.Errorf("%d of %d in the end, %+v", granted, n, fleet[0].Stats())
	}
}

// TestPlacesBesideUnits stay here: what they were taken with is charged back already.
func TestPlacesBesideUnits(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now, ProbeEvery: time.Millisecond})
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile(), Cost: 1}
	units := weir.Charge{Key: "u", Limit: weir.PerDay(100).MustCompile(), Cost: 10}
	both := func(kind weir.Kind) *weir.Act {
		a := storetest.NewAct(room, units)
		a.Kind, a.ID = kind, "both"
		taker.Take(context.Background(), []*weir.Act{a})
		return a
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	if a := both(weir.Take); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "charged back", func() bool { return taker.Err() == nil && taker.Stats().Owed == 0 })
	for _, kind := range []weir.Kind{weir.Renew, weir.Release} {
		if a := both(kind); a.Err != nil || a.Decisions[0].Source != weir.SourceFallback {
			t.Errorf("%v: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
	if store.recorded("u") != 10 || taker.Stats().Adopted != 0 {
		t.Errorf("%d charged back, %+v", store.recorded("u"), taker.Stats())
	}
}

// TestRefundsAndRecords without ids are done here as far as there is something.
func TestRefundsAndRecords(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, fallback.Options{Now: clock.Now, ProbeEvery: time.Millisecond, Policy: policies})
	limit := weir.PerDay(10).MustCompile()
	openUp(t, taker, store, weir.ErrNotApplied)
	d := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 6}).Decisions[0]
	if a := about(taker, weir.Refund, "", weir.Charge{Key: "k", Limit: limit, Cost: 4, At: d.At}); a.Err != nil || a.Decisions[0].Granted != 4 {
		t.Errorf("refunded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, weir.Record, "", weir.Charge{Key: "k", Limit: limit, Cost: 3}); a.Err != nil || a.Decisions[0].Remaining != 5 {
		t.Errorf("recorded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, weir.Record, "", weir.Charge{Key: "allowed", Limit: limit, Cost: 3}); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("recorded under allow: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	eventually(t, "charged back", func() bool { return taker.Err() == nil && taker.Stats().Owed == 0 })
	if store.recorded("k") != 5 {
		t.Errorf("%d charged back, want 6 - 4 + 3", store.recorded("k"))
	}
}
