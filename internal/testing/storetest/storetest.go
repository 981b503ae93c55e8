// Package storetest tests implementations of [weir.Taker], stores and layers alike. It
// has named cases from the contract, a comparison of two Takers by random histories, and exact
// models of the algorithms, which judge the store in memory. It starts no servers.
package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
)

// Open returns an empty Taker that uses the clock. It registers cleanup with t.
type Open func(t testing.TB, clock *Clock) weir.Taker

// Run runs the whole suite, in parallel.
func Run(t *testing.T, open Open) {
	unwatched := open
	open = func(t testing.TB, clock *Clock) weir.Taker { return Unchanged(t, unwatched(t, clock)) }
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			c.run(&bench{T: t, taker: open(t, clock), clock: clock})
		})
	}
}

// RunBeside runs the suite, and compares the answers to a random history with those of a twin.
// Acts about a take list its limits, because a layer may decide the others at once.
func RunBeside(t *testing.T, twin, open Open) {
	Run(t, open)
	t.Run("history", func(t *testing.T) {
		t.Parallel()
		clock := NewClock()
		if err := (Twins{A: twin(t, clock), B: Unchanged(t, open(t, clock)), Clock: clock, Seed: 1, Listed: true}).Compare(5_000); err != nil {
			t.Error(err)
		}
	})
}

// Unchanged returns a Taker that delegates to the taker and fails the test if the taker
// changes the acts of its caller, except for decisions and errors. With -race it also
// finds temporary changes.
func Unchanged(t testing.TB, taker weir.Taker) weir.Taker {
	if one, ok := taker.(oneTaker); ok {
		return struct {
			unchanged
			oneTaker
		}{unchanged{taker, t}, one}
	}
	return unchanged{taker, t}
}

type unchanged struct {
	weir.Taker
	t testing.TB
}

// A oneTaker is a Taker that may decide a single charge without an act.
type oneTaker interface {
	TakeOne(prefix, key string, limit *weir.Limit, cost int64) (d weir.Decision, decided bool)
}

// Take delegates the acts and compares them with copies from before.
func (u unchanged) Take(ctx context.Context, acts []*weir.Act) {
	before := make([]weir.Act, len(acts))
	for i, a := range acts {
		before[i] = *a
		before[i].Charges = slices.Clone(a.Charges)
	}
	all := slices.Clone(acts)
	var reading sync.WaitGroup
	reading.Go(func() {
		if !slices.EqualFunc(acts, before, same) {
			u.t.Error("Take changed acts for a time")
		}
	})
	u.Taker.Take(ctx, acts)
	reading.Wait()
	if !slices.Equal(acts, all) {
		u.t.Error("Take changed the caller's list of acts")
	}
	for i, a := range all {
		b := &before[i]
		if !same(a, *b) {
			u.t.Errorf("Take changed the act\n from %+v\n to   %+v", *b, *a)
		}
		if len(a.Decisions) != len(b.Decisions) || len(a.Decisions) > 0 && &a.Decisions[0] != &b.Decisions[0] {
			u.t.Error("Take changed the caller's slice of decisions")
		}
	}
}

// same reports whether an act asks for the same as another one.
func same(a *weir.Act, b weir.Act) bool {
	return a.Kind == b.Kind && a.ID == b.ID && a.Scope == b.Scope && a.NewID == b.NewID && a.ForgetRefused == b.ForgetRefused && a.Anonymous == b.Anonymous &&
		a.Hold == b.Hold && a.MaxWait == b.MaxWait && a.Immediate == b.Immediate && a.Dry == b.Dry && slices.Equal(a.Charges, b.Charges)
}

// A bench has the Taker and the clock of a case.
type bench struct {
	*testing.T
	taker weir.Taker
	clock *Clock
}

// take puts acts to the Taker in one call and fails on their errors.
func (b *bench) take(acts ...*weir.Act) {
	b.Helper()
	b.taker.Take(context.Background(), acts)
	for _, a := range acts {
		if a.Err != nil {
			b.Fatalf("take: %v", a.Err)
		}
	}
}

// charge takes a single charge.
func (b *bench) charge(key string, limit *weir.Limit, cost int64) weir.Decision {
	b.Helper()
	a := NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	b.take(a)
	return a.Decisions[0]
}

// granted takes single units one after another and counts those granted.
func (b *bench) granted(key string, limit *weir.Limit, tries int) int {
	b.Helper()
	n := 0
	for range tries {
		if b.charge(key, limit, 1).Allowed() {
			n++
		}
	}
	return n
}
