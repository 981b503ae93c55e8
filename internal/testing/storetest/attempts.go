package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// Attempts draws histories of takes, repeats and withdrawals of one ID that arrive at a store in
// any order and more than once. In the end units are held just if an attempt stands.
func Attempts(t *testing.T, store weir.Taker, histories uint64) {
	t.Helper()
	slot := (&weir.Limit{Name: "slot", Algorithm: weir.Concurrency, Count: 3, Period: time.Hour}).MustCompile()
	units := (&weir.Limit{Name: "units", Algorithm: weir.GCRA, Count: 1, Period: 24 * time.Hour, Burst: 100}).MustCompile()
	for seed := range histories {
		act := func(slots, cost int64) *weir.Act {
			return NewAct(weir.Charge{Key: fmt.Sprint("a", seed), Limit: slot, Cost: slots}, weir.Charge{Key: fmt.Sprint("b", seed), Limit: units, Cost: cost})
		}
		events, withdrawn, held := drawAttempts(rand.New(rand.NewPCG(seed, 3)))
		for _, e := range events {
			a := act(1, 7)
			a.ID, a.Kind, a.Attempt, a.NewID, a.Scope.Owner = "id", e.kind, e.attempt, seed%2 == 0, a.Charges[0].Key
			store.Take(context.Background(), []*weir.Act{a})
			switch {
			case e.kind == acts.KindTake && a.Err == nil && !a.Allowed():
				t.Fatalf("seed %d: refused: %v", seed, events)
			case a.Err != nil && (e.kind == acts.KindWithdraw || !withdrawn[e.attempt]):
				t.Fatalf("seed %d: %v %d: %v", seed, e.kind, e.attempt, a.Err)
			}
		}
		peek := act(0, 0)
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

// An attemptEvent is the arrival of an attempt, or of its withdrawal.
type attemptEvent struct {
	kind    weir.Kind
	attempt uint64
}

// drawAttempts draws attempts, each of which arrives at most twice and is withdrawn up to twice or
// never, in any order. held says that one that arrived is not withdrawn.
func drawAttempts(rng *rand.Rand) (events []attemptEvent, withdrawn map[uint64]bool, held bool) {
	withdrawn = map[uint64]bool{}
	for n := range uint64(1 + rng.IntN(5)) {
		arrivals, withdrawals := rng.IntN(3), rng.IntN(3)
		for range arrivals {
			events = append(events, attemptEvent{acts.KindTake, n + 1})
		}
		for range withdrawals {
			events = append(events, attemptEvent{acts.KindWithdraw, n + 1})
		}
		withdrawn[n+1] = withdrawals > 0
		held = held || arrivals > 0 && withdrawals == 0
	}
	rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	return events, withdrawn, held
}
