package memengine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A lawfulTake is what the model of TestLaws knows of a take.
type lawfulTake struct {
	standing, withdrawn map[uint64]bool
	firm, open, closed  bool
	took                [2]int64 // what the take was granted
	held                [2]int64
	early               *weir.Act
}

// A lawful model holds units of two keys for entries, by the rules alone. Nothing drains, and
// nothing is forgotten.
type lawful struct {
	limit   *weir.Limit
	entries map[string]*lawfulTake
	plain   [2]int64 // charged without an ID
}

func (m *lawful) level(key int) int64 {
	sum := m.plain[key]
	for _, e := range m.entries {
		sum += e.held[key]
	}
	return sum
}

// do applies an act that lists both keys.
func (m *lawful) do(a *weir.Act) {
	e := m.entries[a.ID]
	if e == nil {
		e = &lawfulTake{standing: map[uint64]bool{}, withdrawn: map[uint64]bool{}}
		if a.ID != "" {
			m.entries[a.ID] = e
		}
	}
	fits := true
	for i := range a.Charges {
		fits = fits && m.level(i)+a.Charges[i].Cost <= m.limit.Capacity()
	}
	number, known := a.Attempt, e.open || e.closed
	switch a.Kind {
	case acts.KindTake:
		switch {
		case a.ID == "":
			for i := range a.Charges {
				if fits {
					m.plain[i] += a.Charges[i].Cost
				}
			}
		case e.withdrawn[number] && number != 0, e.closed:
		case known, fits:
			for i := range a.Charges {
				if !known {
					e.took[i], e.held[i] = a.Charges[i].Cost, a.Charges[i].Cost
				}
			}
			if e.open = true; number == 0 {
				e.firm = true
			} else {
				e.standing[number] = true
			}
		}
	case acts.KindWithdraw:
		if e.closed {
			return
		}
		delete(e.standing, number)
		if e.withdrawn[number] = true; e.open && !e.firm && len(e.standing) == 0 {
			e.open, e.held = false, [2]int64{}
		}
	case acts.KindAmend:
		if e.closed {
			return
		}
		e.open, e.firm = true, true
		for i := range a.Charges {
			e.took[i], e.held[i] = a.Decisions[i].Granted, a.Decisions[i].Granted
		}
		if e.early != nil {
			m.end(e, e.early)
		}
	case acts.KindRenew:
		if e.open {
			e.firm, e.early = true, nil
		}
	default:
		if e.open {
			m.end(e, a)
		} else if !e.closed && e.early == nil {
			e.early = a
		}
	}
}

func (m *lawful) end(e *lawfulTake, a *weir.Act) {
	for i := range a.Charges {
		switch cost := a.Charges[i].Cost; a.Kind {
		case acts.KindRelease:
			e.held[i] = 0
		case acts.KindSettle:
			if e.held[i] > 0 || e.early == nil { // nothing was charged that could be settled
				e.held[i] = cost
			}
		case acts.KindRefund:
			e.held[i] = max(0, e.held[i]-cost)
		}
	}
	e.open, e.closed, e.early = false, true, nil
}

// TestLaws draws histories of all acts about a few takes, each of which may arrive twice. After
// each act the level of a key is what the open acts hold, and no more than a debt.
func TestLaws(t *testing.T) {
	t.Parallel()
	limit := (&weir.Limit{Name: "units", Algorithm: weir.FixedWindow, Count: 40, Period: 8784 * time.Hour, Anchor: weir.AnchorFirst}).MustCompile()
	kinds := []weir.Kind{acts.KindTake, acts.KindTake, acts.KindTake, acts.KindWithdraw, acts.KindAmend, acts.KindSettle, acts.KindRelease, acts.KindRefund, acts.KindRenew}
	for seed := range uint64(storetest.Length(1000)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		clock := storetest.NewClock()
		s := New(Options{Now: clock.Now})
		m := &lawful{limit: limit, entries: map[string]*lawfulTake{}}
		var history []string
		for range 60 {
			id := rng.IntN(5)
			cost := int64(1 + id) // of the take, so that it is always the same
			a := storetest.NewAct(weir.Charge{Key: "a", Limit: limit, Cost: cost}, weir.Charge{Key: "b", Limit: limit, Cost: 2 * cost})
			a.Kind, a.ID, a.Scope.Owner, a.ForgetRefused = kinds[rng.IntN(len(kinds))], fmt.Sprint(id), "owner", true
			switch a.Kind {
			case acts.KindTake:
				if a.Attempt = uint64(rng.IntN(5)); a.Attempt == 0 && rng.IntN(3) > 0 {
					a.ID = ""
				}
			case acts.KindWithdraw:
				a.Attempt = uint64(1 + rng.IntN(4))
			case acts.KindAmend:
				for i := range a.Decisions {
					a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: a.Charges[i].Cost}
				}
			case acts.KindSettle, acts.KindRefund:
				for i := range a.Charges {
					a.Charges[i].Cost = rng.Int64N(a.Charges[i].Cost + 1)
				}
			case acts.KindRelease, acts.KindRenew:
			}
			again := *a
			again.Decisions = slices.Clone(a.Decisions)
			history = append(history, fmt.Sprintf("%v %q #%d %d %d", a.Kind, a.ID, a.Attempt, a.Charges[0].Cost, a.Charges[1].Cost))
			m.do(&again)
			if s.Take(context.Background(), []*weir.Act{a}); errors.Is(a.Err, weir.ErrOverRefund) || errors.Is(a.Err, weir.ErrIDReused) {
				t.Fatalf("seed %d: %v", seed, a.Err)
			}
			if a.ID != "" && rng.IntN(3) == 0 {
				history = append(history, "again")
				s.Take(context.Background(), []*weir.Act{&again})
			}
			for i, key := range []string{"a", "b"} {
				peek := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
				s.Take(context.Background(), []*weir.Act{peek})
				if want := max(0, limit.Capacity()-m.level(i)); peek.Decisions[0].Remaining != want {
					t.Fatalf("seed %d: %d of %s remain, want %d, after %q", seed, peek.Decisions[0].Remaining, key, want, history)
				}
			}
		}
	}
}

// TestEndsCommute has a take recorded and ended in both orders, by acts that list its keys in any
// order and not all of them. Both leave the same levels.
func TestEndsCommute(t *testing.T) {
	t.Parallel()
	var limits []*weir.Limit
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.TokenBucket, weir.SlidingLog} {
		limits = append(limits, (&weir.Limit{Algorithm: algorithm, Count: 100, Period: time.Hour, Name: "units"}).MustCompile())
	}
	for seed := range uint64(storetest.Length(2000)) {
		var levels [2][]int64
		for order := range levels {
			rng := rand.New(rand.NewPCG(seed, 9))
			clock := storetest.NewClock()
			s := New(Options{Now: clock.Now})
			list := func(keys []int) *weir.Act {
				var charges []weir.Charge
				for _, k := range keys {
					charges = append(charges, weir.Charge{Key: fmt.Sprint("key ", k), Limit: limits[k%len(limits)], Cost: 1 + rng.Int64N(9)})
				}
				a := storetest.NewAct(charges...)
				a.ID, a.Scope.Owner = "id", "owner"
				return a
			}
			n := 1 + rng.IntN(5)
			record := list(rng.Perm(n))
			record.Kind = acts.KindAmend
			for i := range record.Decisions {
				record.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: 10 + rng.Int64N(9)}
			}
			end := list(rng.Perm(n + 1)[:1+rng.IntN(n)])
			end.Kind = []weir.Kind{acts.KindSettle, acts.KindRelease, acts.KindRefund}[rng.IntN(3)]
			both := []*weir.Act{record, end}
			if order == 1 {
				slices.Reverse(both)
			}
			for _, a := range both {
				s.Take(context.Background(), []*weir.Act{a})
				clock.Advance(time.Duration(rng.IntN(9)))
			}
			if order == 0 && end.Kind == acts.KindRefund && errors.Is(end.Err, weir.ErrOverRefund) {
				t.Fatalf("seed %d: %v", seed, end.Err)
			}
			for k := range n + 1 {
				peek := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", k), Limit: limits[k%len(limits)]})
				s.Take(context.Background(), []*weir.Act{peek})
				levels[order] = append(levels[order], peek.Decisions[0].Remaining)
			}
		}
		if !slices.Equal(levels[0], levels[1]) {
			t.Fatalf("seed %d: recorded first, %v remain; ended first, %v", seed, levels[0], levels[1])
		}
	}
}

// TestRepeatedEndsCountOnce: the end of an ID that is unknown, or was refused, takes memory once,
// however often it is repeated.
func TestRepeatedEndsCountOnce(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).MustCompile()
	for name, before := range map[string]int64{"unknown": 0, "refused": 10} {
		clock := storetest.NewClock()
		s := New(Options{Now: clock.Now, MaxIDBytes: 8 << 20})
		do := func(kind weir.Kind, id string, cost int64) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: cost})
			a.ID, a.Scope.Owner, a.Kind = id, "owner", kind
			s.Take(context.Background(), []*weir.Act{a})
			return a
		}
		if before > 0 {
			do(acts.KindTake, "", before)
			do(acts.KindTake, "id", 1)
		}
		do(acts.KindRelease, "id", 1)
		once := s.refused.Load()
		for range 1000 {
			if a := do(acts.KindRelease, "id", 1); !errors.Is(a.Err, weir.ErrUnknownID) {
				t.Fatal(a.Err)
			}
		}
		records := int64(0)
		for i := range s.shards {
			if ids := s.shards[i].ids; ids != nil {
				for g := range ids.refused {
					for _, r := range ids.refused[g].records {
						records += r.bytes()
					}
				}
			}
		}
		if got := s.refused.Load(); got != once || got != records {
			t.Errorf("%s: %d bytes after one release, %d after 1001, of records with %d", name, once, got, records)
		}
		clock.Advance(time.Minute)
		if s.Stats(); s.refused.Load() != 0 || s.ids.Load() != 0 {
			t.Errorf("%s: %d and %d bytes are left", name, s.refused.Load(), s.ids.Load())
		}
	}
}
