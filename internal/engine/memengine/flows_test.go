package memengine_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestFlows drives a store with random histories of takes, bookings and refunds, and checks
// that no interval (a, a+Period] holds more than the limit's algorithm allows: a grant
// counts when it is due, a refund at its own instant, or when the refunded grant would
// have been due.
func TestFlows(t *testing.T) {
	t.Parallel()
	histories(t, func(t *rapid.T, p *property) {
		f := &flow{property: p, moves: make(map[int64]int64)}
		t.Repeat(map[string]func(*rapid.T){
			"advance": f.advance, "take": f.take, "book": f.book, "refund": f.refund, "undo": f.undo,
		})
		f.judge(t)
	})
}

type flow struct {
	*property
	grants  []weir.Charge
	moves   map[int64]int64 // units by instant
	largest int64
	early   int64 // units of the past given back while something was booked ahead
}

func (f *flow) ask(t *rapid.T, a *weir.Act) weir.Decision {
	if f.taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatalf("limit %v, %v: %v", f.limit, a.Kind, a.Err)
	}
	return a.Decisions[0]
}

func (f *flow) take(t *rapid.T) { f.charge(t, 0) }

func (f *flow) book(t *rapid.T) {
	if bookable(f.limit) {
		f.charge(t, time.Duration(rapid.Int64Range(1, 2*f.limit.Period.Microseconds()).Draw(t, "max wait"))*time.Microsecond)
	}
}

func (f *flow) charge(t *rapid.T, maxWait time.Duration) {
	a := storetest.NewAct(weir.Charge{Key: f.key, Limit: f.limit, Cost: f.cost(t)})
	a.MaxWait = maxWait
	d := f.ask(t, a)
	if d.Granted > 0 {
		c := a.Charges[0]
		c.At, c.Delay = d.At.UnixMicro(), d.Delay
		f.grants = append(f.grants, c)
		f.moves[due(c)] += d.Granted
		f.largest = max(f.largest, d.Granted)
	}
}

// drains reports whether a limit's level sinks continuously.
func drains(l *weir.Limit) bool { return algo.TraitsOf(l.Algorithm).Drains }

// drained is how long it takes to drain so many units.
func (f *flow) drained(units int64) time.Duration {
	return time.Duration(units) * f.limit.Period / time.Duration(f.limit.Count)
}

func due(c weir.Charge) int64 { return c.At + c.Delay.Microseconds() }

func (f *flow) peek(t *rapid.T) weir.Decision {
	return f.ask(t, storetest.NewAct(weir.Charge{Key: f.key, Limit: f.limit}))
}

// refund gives an earlier grant back, once, and finds that much more room, no
// more.
func (f *flow) refund(t *rapid.T) {
	if len(f.grants) == 0 {
		return
	}
	i := rapid.IntRange(0, len(f.grants)-1).Draw(t, "grant")
	c := f.grants[i]
	f.grants = slices.Delete(f.grants, i, i+1)
	before := f.peek(t)
	a := storetest.NewAct(c)
	a.Kind = acts.KindRefund
	d, after := f.ask(t, a), f.peek(t)
	if d.Granted < 0 || d.Granted > c.Cost || d.Remaining != after.Remaining || after.Remaining > f.limit.Capacity() ||
		after.Remaining-before.Remaining > d.Granted || after.ResetAfter > before.ResetAfter {
		t.Fatalf("limit %v, refund of %+v: %+v, looks %+v and %+v", f.limit, c, d, before, after)
	}
	back := d.Granted
	if drains(f.limit) && after.ResetAfter < before.ResetAfter {
		// Room comes in whole units, a level does not.
		sunk := before.ResetAfter - after.ResetAfter
		if sunk > f.drained(c.Cost)+time.Microsecond {
			t.Fatalf("limit %v, refund of %+v: the level sank by %v", f.limit, c, sunk)
		}
		back = min(c.Cost, int64(sunk)*f.limit.Count/int64(f.limit.Period)+1)
	}
	now := f.clock.Micros()
	f.moves[max(now, due(c))] -= back
	if due(c) <= now && f.booked(now) {
		f.early += back
	}
}

// booked reports whether something is due later, be it that its caller has asked for it
// back in vain.
func (f *flow) booked(now int64) bool {
	for at, units := range f.moves {
		if at > now && units > 0 {
			return true
		}
	}
	return false
}

// undo refunds a take at once, which leaves no trace.
func (f *flow) undo(t *rapid.T) {
	before := f.peek(t)
	granted := len(f.grants)
	f.charge(t, time.Duration(rapid.Int64Range(0, 1).Draw(t, "booked"))*f.longest())
	if len(f.grants) == granted {
		return
	}
	f.refundLast(t)
	if after := f.peek(t); after != before {
		t.Fatalf("limit %v: a refund at the same instant left a trace:\n%+v\n%+v", f.limit, before, after)
	}
}

// refundLast refunds the last grant.
func (f *flow) refundLast(t *rapid.T) {
	last := len(f.grants) - 1
	a := storetest.NewAct(f.grants[last])
	a.Kind = acts.KindRefund
	if d := f.ask(t, a); d.Granted != f.grants[last].Cost {
		t.Fatalf("limit %v: %d given back of %+v", f.limit, d.Granted, f.grants[last])
	}
	f.moves[due(f.grants[last])] -= f.grants[last].Cost
	f.grants = f.grants[:last]
}

func (f *flow) longest() time.Duration {
	if bookable(f.limit) {
		return 3 * f.limit.Period
	}
	return 0
}

// judge compares the fullest interval with the contract's bound.
func (f *flow) judge(t *rapid.T) {
	most, period := int64(0), f.limit.Period.Microseconds()
	instants := slices.Sorted(maps.Keys(f.moves))
	for i, first := range instants {
		sum := int64(0)
		for _, at := range instants[i:] {
			if at >= first+period {
				break
			}
			sum += f.moves[at]
			most = max(most, sum)
		}
	}
	if bound := f.bound(); most > bound {
		t.Fatalf("limit %v: %d within a period, at most %d: %v", f.limit, most, bound, f.moves)
	}
}

func (f *flow) bound() int64 {
	n := f.limit.Count + f.early
	switch f.limit.Algorithm {
	case weir.FixedWindow:
		return 2 * n
	case weir.SlidingCounter:
		return 2*n - 1
	case weir.SlidingLog, weir.RollingWindow:
		return n
	case weir.LeakyBucket:
		return n + f.largest
	}
	return n + f.limit.Burst
}
