package redisengine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestEndsApart ends takes whose charges lie in several slots of a cluster before they are known:
// an amendment heeds the end in each of them, and a take does not, whose parts the store itself
// amends.
func TestEndsApart(t *testing.T) {
	t.Parallel()
	store, err := redisengine.New(dialCluster(t, testserver.StartCluster(t, 3)), redisengine.Options{Prefix: "ends:", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	limit := weir.PerDay(100).MustCompile()
	ask := func(kind weir.Kind, id, key string, cost, upTo int64) *weir.Act {
		a := storetest.NewAct(weir.Charge{Key: key + " 1", Limit: limit, Cost: cost, UpTo: upTo}, weir.Charge{Key: key + " 2", Limit: limit, Cost: cost, UpTo: upTo})
		if a.Kind, a.ID, a.Scope.Owner = kind, id, key; kind == acts.KindAmend {
			for i := range a.Decisions {
				a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: cost}
			}
		}
		store.Take(context.Background(), []*weir.Act{a})
		return a
	}
	left := func(key string, want int64) {
		t.Helper()
		for i, d := range ask(acts.KindTake, "", key, 0, 0).Decisions {
			if d.Remaining != want {
				t.Errorf("%s %d: %d remain, want %d", key, i+1, d.Remaining, want)
			}
		}
	}
	for kind, want := range map[weir.Kind]int64{acts.KindRelease: 100, acts.KindSettle: 98, acts.KindRefund: 95} {
		key := kind.String()
		cost := int64(2)
		if kind == acts.KindRelease {
			cost = 0
		}
		if a := ask(kind, "id", key, cost, 0); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Errorf("%s: %v", key, a.Err)
		}
		if a := ask(acts.KindAmend, "id", key, 7, 0); a.Err != nil {
			t.Errorf("%s: %v", key, a.Err)
		}
		left(key, want)
	}
	ask(acts.KindRelease, "other", "parts", 0, 0)
	narrow := storetest.NewAct(weir.Charge{Key: "parts 2", Limit: limit, Cost: 96})
	store.Take(context.Background(), []*weir.Act{narrow})
	if a := ask(acts.KindTake, "other", "parts", 1, 10); a.Err != nil || a.Decisions[0].Granted != 4 {
		t.Errorf("%+v, %v", a.Decisions, a.Err)
	}
	peek := ask(acts.KindTake, "", "parts", 0, 0)
	if peek.Decisions[0].Remaining != 96 || peek.Decisions[1].Remaining != 0 {
		t.Errorf("%+v", peek.Decisions)
	}
}
