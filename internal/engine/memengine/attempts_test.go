package memengine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	storetest.Attempts(t, New(Options{}), 3000)
}

// TestEndedBeforeItIsKnown ends takes that an amendment records only then.
func TestEndedBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	slot := (&weir.Limit{Name: "slot", Algorithm: weir.Concurrency, Count: 3, Period: time.Hour}).MustCompile()
	units := (&weir.Limit{Name: "units", Algorithm: weir.GCRA, Count: 1, Period: time.Hour, Burst: 100}).MustCompile()
	for _, c := range []struct {
		kind       weir.Kind
		cost, left int64
		slots      int64
	}{{acts.KindRelease, 0, 100, 3}, {acts.KindSettle, 4, 96, 3}, {acts.KindSettle, 9, 91, 3}} {
		clock := storetest.NewClock()
		s := New(Options{Now: clock.Now})
		ask := func(kind weir.Kind, slots, cost int64, answer ...weir.Decision) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "a", Limit: slot, Cost: slots}, weir.Charge{Key: "b", Limit: units, Cost: cost})
			a.ID, a.Kind, a.Scope.Owner = "id", kind, a.Charges[0].Key
			copy(a.Decisions, answer)
			s.Take(context.Background(), []*weir.Act{a})
			return a
		}
		if a := ask(c.kind, 0, c.cost); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Errorf("%v: %v", c.kind, a.Err)
		}
		clock.Advance(9 * time.Second)
		told := []weir.Decision{{Outcome: weir.Granted, Granted: 1}, {Outcome: weir.Granted, Granted: 7}}
		for range 2 { // twice is once
			if a := ask(acts.KindAmend, 1, 7, told...); a.Err != nil {
				t.Errorf("%v: amend: %v", c.kind, a.Err)
			}
		}
		peek := storetest.NewAct(weir.Charge{Key: "a", Limit: slot}, weir.Charge{Key: "b", Limit: units})
		s.Take(context.Background(), []*weir.Act{peek})
		if peek.Decisions[0].Remaining != c.slots || peek.Decisions[1].Remaining != c.left {
			t.Errorf("%v %d: remaining %d and %d, want %d and %d", c.kind, c.cost, peek.Decisions[0].Remaining, peek.Decisions[1].Remaining, c.slots, c.left)
		}
		if a := ask(c.kind, 0, c.cost); a.Err != nil {
			t.Errorf("%v again: %v", c.kind, a.Err)
		}
	}
}

// TestEndOutlivesTakes: another instance's take, withdrawn or not, does not hide the end from the
// amendment of the one that told somebody, but a renewal says that the take is held.
func TestEndOutlivesTakes(t *testing.T) {
	t.Parallel()
	units := (&weir.Limit{Name: "units", Algorithm: weir.FixedWindow, Count: 100, Period: time.Hour}).MustCompile()
	for name, c := range map[string]struct {
		before int64 // charged without an ID
		acts   []weir.Kind
		left   int64
	}{
		"nothing between":        {0, nil, 100},
		"a take":                 {0, []weir.Kind{acts.KindTake}, 100},
		"a withdrawal":           {0, []weir.Kind{acts.KindWithdraw}, 100},
		"a withdrawn take":       {0, []weir.Kind{acts.KindTake, acts.KindWithdraw}, 100},
		"a take and a renewal":   {0, []weir.Kind{acts.KindTake, acts.KindRenew}, 93},
		"a take that is refused": {98, []weir.Kind{acts.KindTake}, 2},
	} {
		for _, first := range []bool{true, false} { // the end comes first, or after a refusal
			clock := storetest.NewClock()
			s := New(Options{Now: clock.Now})
			ask := func(kind weir.Kind, id string, cost int64) *weir.Act {
				a := storetest.NewAct(weir.Charge{Key: "k", Limit: units, Cost: cost})
				if a.Kind, a.ID, a.Scope.Owner = kind, id, "owner"; kind == acts.KindTake || kind == acts.KindWithdraw {
					a.Attempt = 7
				}
				if kind == acts.KindAmend {
					a.Decisions[0] = weir.Decision{Outcome: weir.Granted, Granted: cost}
				}
				s.Take(context.Background(), []*weir.Act{a})
				return a
			}
			ask(acts.KindTake, "", c.before)
			end := func() {
				clock.Advance(6 * time.Second)
				if a := ask(acts.KindRelease, "id", 0); !errors.Is(a.Err, weir.ErrUnknownID) {
					t.Errorf("%s: %v", name, a.Err)
				}
				clock.Advance(6 * time.Second)
			}
			if first {
				end()
			}
			for _, kind := range c.acts {
				ask(kind, "id", 7)
			}
			if !first && c.before == 0 {
				continue
			} else if !first {
				end()
			}
			if a := ask(acts.KindAmend, "id", 7); a.Err != nil {
				t.Errorf("%s: %v", name, a.Err)
			}
			peek := ask(acts.KindTake, "", 0)
			if got := peek.Decisions[0].Remaining; got != c.left {
				t.Errorf("%s: %d remain, want %d", name, got, c.left)
			}
		}
	}
}
