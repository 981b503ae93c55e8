package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestAttemptsApart draws histories of takes, repeats and withdrawals of one ID over two hash
// slots, that arrive in any order and more than once. In the end units are held just if an
// attempt stands.
func TestAttemptsApart(t *testing.T) {
	t.Parallel()
	store := open(t, dialCluster(t, testserver.StartCluster(t, 3)), redisstore.Options{Timeout: time.Minute})
	slot := (&weir.Limit{Name: "slot", Algorithm: weir.Concurrency, Count: 3, Period: time.Hour}).MustCompile()
	units := (&weir.Limit{Name: "units", Algorithm: weir.GCRA, Count: 1, Period: 24 * time.Hour, Burst: 100}).MustCompile()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		charges := func(slots, cost int64) []weir.Charge {
			return []weir.Charge{{Key: fmt.Sprint("a", seed), Limit: slot, Cost: slots}, {Key: fmt.Sprint("b", seed), Limit: units, Cost: cost}}
		}
		type event struct {
			kind    weir.Kind
			attempt uint64
		}
		var events []event
		withdrawn, arrived := map[uint64]bool{}, map[uint64]bool{}
		for n := range uint64(1 + rng.IntN(5)) {
			for range rng.IntN(3) {
				events = append(events, event{acts.KindTake, n + 1})
				arrived[n+1] = true
			}
			for range rng.IntN(3) {
				events = append(events, event{acts.KindWithdraw, n + 1})
				withdrawn[n+1] = true
			}
		}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, e := range events {
			a := storetest.NewAct(charges(1, 7)...)
			a.ID, a.Kind, a.Attempt, a.Scope.Owner = "id", e.kind, e.attempt, a.Charges[0].Key
			store.Take(context.Background(), []*weir.Act{a})
			if e.kind == acts.KindTake && a.Err != nil && !withdrawn[e.attempt] || e.kind == acts.KindWithdraw && a.Err != nil {
				t.Fatalf("seed %d: %v %d: %v", seed, e.kind, e.attempt, a.Err)
			}
		}
		held := false
		for n := range arrived {
			held = held || !withdrawn[n]
		}
		peek := storetest.NewAct(charges(0, 0)...)
		store.Take(context.Background(), []*weir.Act{peek})
		want := [2]int64{3, 100}
		if held {
			want = [2]int64{2, 93}
		}
		if got := [2]int64{peek.Decisions[0].Remaining, peek.Decisions[1].Remaining}; got != want {
			t.Fatalf("seed %d: remaining %v, want %v: %v", seed, got, want, events)
		}
	}
}
