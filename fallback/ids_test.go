package fallback_test

import (
	"context"
	"errors"
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
