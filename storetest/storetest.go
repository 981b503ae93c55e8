// Package storetest tests implementations of [weir.Taker], stores and layers alike.
// It holds named cases from the contract, random histories that are checked against
// an exact model, and a comparison of two Takers with one another. It starts no
// servers.
package storetest

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
)

// Open returns an empty Taker that takes the time from the clock. It registers
// what has to be closed with t.
type Open func(t testing.TB, clock *Clock) weir.Taker

// Run runs the whole suite, in parallel.
func Run(t *testing.T, open Open) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			c.run(&bench{T: t, taker: open(t, clock), clock: clock})
		})
	}
	t.Run("properties", func(t *testing.T) {
		t.Parallel()
		properties(t, open)
	})
}

// A bench is what a case works on.
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

// withID takes charges under an id.
func (b *bench) withID(id string, charges ...weir.Charge) *weir.Act {
	b.Helper()
	a := NewAct(charges...)
	a.ID = id
	b.take(a)
	return a
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

// want compares what a decision says with what it should say, At and Source
// aside.
func (b *bench) want(d, want weir.Decision) {
	b.Helper()
	d.At, d.Source = 0, 0
	if d != want {
		b.Errorf("decision\n got %+v\nwant %+v", d, want)
	}
}
