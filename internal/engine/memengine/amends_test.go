package memengine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestAmends gives a store a take and the answer of its caller in every order, on equal keys:
// they stay equal.
func TestAmends(t *testing.T) {
	t.Parallel()
	for id := range algo.Steps {
		algorithm := weir.Algorithm(id)
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			m := &amending{taker: memengine.New(memengine.Options{Now: clock.Now}), clock: clock}
			rapid.Check(t, func(r *rapid.T) {
				m.runs++
				clock.Advance(time.Duration(rapid.Int64Range(0, 1e9).Draw(r, "start")) * time.Microsecond)
				if m.limit = drawSlots(r); !algo.TraitsOf(algorithm).HoldsSlots {
					m.limit = drawLimit(r, algorithm)
				}
				m.check(r)
			})
		})
	}
}

type amending struct {
	taker weir.Taker
	clock *storetest.Clock
	limit *weir.Limit
	runs  int
}

// orders are the ways in which a take (t) and its amendment (a) may come.
var orders = []string{"ta", "at", "a", "aa", "taat", "atta"}

func (m *amending) check(t *rapid.T) {
	earlier := rapid.SliceOfN(rapid.Int64Range(1, m.limit.Capacity()), 0, 4).Draw(t, "earlier")
	step := time.Duration(rapid.Int64Range(0, m.limit.Period.Microseconds()).Draw(t, "µs")) * time.Microsecond
	take, told := m.draw(t)
	for n, cost := range earlier {
		for i := range orders {
			m.put(t, m.named(take, i, fmt.Sprint("earlier ", n), min(cost, m.cost(cost))))
		}
		m.clock.Advance(step / 4)
	}
	for i, order := range orders {
		for _, what := range order {
			a := m.named(take, i, "take", take.Charges[0].Cost)
			a.Charges[0].UpTo, a.MaxWait = take.Charges[0].UpTo, take.MaxWait
			if what == 'a' {
				a.Kind, a.Decisions[0] = acts.KindAmend, told
			}
			m.put(t, a)
		}
	}
	m.alike(t, take, told)
	m.clock.Advance(step)
	m.alike(t, take, told)
}

func (m *amending) cost(cost int64) int64 {
	if algo.TraitsOf(m.limit.Algorithm).HoldsSlots {
		return 1
	}
	return cost
}

// draw draws a take and the answer that its caller got.
func (m *amending) draw(t *rapid.T) (*weir.Act, weir.Decision) {
	a := storetest.NewAct(weir.Charge{Limit: m.limit, Cost: m.cost(rapid.Int64Range(1, m.limit.Capacity()+2).Draw(t, "cost"))})
	c := &a.Charges[0]
	switch rapid.IntRange(0, 3).Draw(t, "option") {
	case 0:
		if !algo.TraitsOf(m.limit.Algorithm).HoldsSlots {
			c.UpTo = c.Cost + rapid.Int64Range(0, 4).Draw(t, "up to")
		}
	case 1:
		// A booking may go further beyond the limit than refusals; an Amend may not.
		if bookable(m.limit) && !m.limit.ChargeRefused {
			a.MaxWait = m.limit.Period
		}
	}
	if rapid.Bool().Draw(t, "granted") {
		return a, weir.Decision{Outcome: weir.Granted, Granted: rapid.Int64Range(0, max(c.Cost, c.UpTo)).Draw(t, "told")}
	}
	return a, weir.Decision{Outcome: rapid.SampledFrom([]weir.Outcome{weir.Refused, weir.NotCharged}).Draw(t, "outcome"), RetryAfter: time.Second}
}

// named is a take of the i-th key under an id of its own.
func (m *amending) named(take *weir.Act, i int, id string, cost int64) *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: fmt.Sprint(m.limit.Algorithm, m.runs, " ", i), Limit: m.limit, Cost: cost})
	a.ID, a.Scope.Owner = fmt.Sprint(id, m.runs, " ", i), a.Charges[0].Key
	return a
}

func (m *amending) put(t *rapid.T, a *weir.Act) {
	if m.taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatalf("%v of %+v: %v", a.Kind, a.Charges, a.Err)
	}
}

// alike requires that all keys are equal, and that all takes have the caller's answer.
func (m *amending) alike(t *rapid.T, take *weir.Act, told weir.Decision) {
	var first weir.Decision
	for i, order := range orders {
		look := storetest.NewAct(weir.Charge{Key: fmt.Sprint(m.limit.Algorithm, m.runs, " ", i), Limit: m.limit})
		if m.put(t, look); i == 0 {
			first = look.Decisions[0]
		} else if look.Decisions[0] != first {
			t.Fatalf("limit %v, take %+v, told %+v: order %s: %+v; %s: %+v", m.limit, take.Charges, told, orders[0], first, order, look.Decisions[0])
		}
		a := m.named(take, i, "take", take.Charges[0].Cost)
		a.Charges[0].UpTo, a.MaxWait = take.Charges[0].UpTo, take.MaxWait
		m.put(t, a)
		if d := a.Decisions[0]; d.Outcome != told.Outcome || d.Granted != told.Granted || d.RetryAfter != told.RetryAfter && told.Outcome == weir.Refused {
			t.Fatalf("limit %v, take %+v, told %+v: order %s: repeated: %+v", m.limit, take.Charges, told, order, d)
		}
	}
}
