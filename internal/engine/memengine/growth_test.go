package memengine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestRefusalsLeaveNothing: no refused take grows the store, but for the seconds in
// which a client may repeat it.
func TestRefusalsLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, ids := range []bool{false, true} {
		clock := storetest.NewClock()
		store := memengine.New(memengine.Options{Now: clock.Now})
		size := func() string { return fmt.Sprintf("%+v", store.Stats()) }
		if err := storetest.RefuseAll(store, 5000, ids, size); err != nil {
			t.Error(err)
		}
		// Those that ask for a slot are not remembered: a fifth.
		if stats := store.Stats(); ids != (stats.IDs > 3500) {
			t.Errorf("ids of clients %v: %+v", ids, stats)
		}
		clock.Advance(2 * acts.RefusedIDLife)
		if stats := store.Stats(); stats.Keys != 8 || stats.IDs != 8 || stats.IDBytes > 8<<10 {
			t.Errorf("ids of clients %v: eight grants left %+v", ids, stats)
		}
	}
}

// TestRefusalsPushNoGrantOut floods a store with refused takes that have ids: what is
// granted then can be released.
func TestRefusalsPushNoGrantOut(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{MaxBytes: 1 << 20, Now: clock.Now})
	limit := weir.Per(2, acts.IDLife).MustCompile()
	act := func(kind weir.Kind, key, id string) *weir.Act {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
		a.Kind, a.ID, a.Scope.Owner = kind, id, a.Charges[0].Key
		store.Take(context.Background(), []*weir.Act{a})
		return a
	}
	take(t, store, "spent", limit, 2)
	for i := range 30_000 {
		if a := act(acts.KindTake, "spent", fmt.Sprint("refused ", i)); a.Err != nil || a.Allowed() {
			t.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
		if i%1000 != 0 {
			continue
		}
		key, id := fmt.Sprint("key ", i), fmt.Sprint("granted ", i)
		if granted, released := act(acts.KindTake, key, id), act(acts.KindRelease, key, id); !granted.Allowed() || released.Err != nil {
			t.Fatalf("after %d refusals: %+v, released: %v; %+v", i, granted.Decisions, released.Err, store.Stats())
		}
	}
	if stats := store.Stats(); stats.IDBytes > 512<<10 || stats.Overflowed > 0 {
		t.Errorf("%+v", stats)
	}
}
