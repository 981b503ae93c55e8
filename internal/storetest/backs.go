package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
)

// refundCases have the contract's sentences about refunds, bookings, records and resets.
var refundCases = []testCase{
	{"a refund gives back what still counts", refunds},
	{"a refund never goes beyond full", refundsTwice},
	{"a refund of what has passed gives nothing", refundsLate},
	{"bookings come one after another", books},
	{"a cancelled booking goes back if it was the last", cancels},
	{"a booking above the burst or the wait is refused", booksTooFar},
	{"a queue lets out one after another", queue},
	{"who cannot wait is refused and told how long", impatient},
	{"a cancelled place in the queue goes back if it was the last", leavesQueue},
	{"a reset forgets the key, and only that", resets},
	{"a recorded cost counts whether it fits or not", records},
	{"large debts are counted to the unit", largeRecords},
	{"who reports refused costs pays for them", reports},
	{"what is outside the contract of acts is an error and charges nothing", badActs},
}

// undo refunds a decision.
func undo(c weir.Charge, d weir.Decision) *weir.Act {
	c.At, c.Delay = d.At.UnixMicro(), d.Delay
	return about(weir.KindRefund, "", c)
}

func refunds(b *bench) {
	for _, l := range limits() {
		c := weir.Charge{Key: "refunds", Limit: l, Cost: 6}
		d := b.charge(c.Key, l, 6)
		c.Cost = 4
		a := undo(c, d)
		b.take(a)
		if got := a.Decisions[0]; got.Outcome != weir.Granted || got.Granted != 4 || got.Remaining != 8 {
			b.Errorf("%v: 4 of 6 refunded: %+v", l, got)
		}
		b.remains("refunded", c.Key, l, 8)
	}
}

func refundsTwice(b *bench) {
	for _, l := range limits() {
		c := weir.Charge{Key: "twice", Limit: l, Cost: 6}
		d := b.charge(c.Key, l, 6)
		b.take(undo(c, d))
		a := undo(c, d)
		b.take(a)
		b.want(a.Decisions[0], weir.Decision{Outcome: weir.Granted, Remaining: 10})
	}
}

func refundsLate(b *bench) {
	for _, l := range limits() {
		c := weir.Charge{Key: "late", Limit: l, Cost: 6}
		d := b.charge(c.Key, l, 6)
		b.clock.Advance(d.ResetAfter)
		left := b.charge(c.Key, l, 5).Remaining
		a := undo(c, d)
		if b.take(a); a.Decisions[0].Granted != 0 {
			b.Errorf("%v: %+v", l, a.Decisions[0])
		}
		b.remains("refunded too late", c.Key, l, left)
	}
}

// book takes a cost in up to a minute.
func (b *bench) book(key string, l *weir.Limit, cost int64) weir.Decision {
	b.Helper()
	a := NewAct(weir.Charge{Key: key, Limit: l, Cost: cost})
	a.MaxWait = time.Minute
	b.take(a)
	return a.Decisions[0]
}

func books(b *bench) {
	for algorithm, delays := range map[weir.Algorithm][3]time.Duration{
		weir.GCRA:        {0, 5 * time.Second, 9 * time.Second},
		weir.TokenBucket: {0, 10 * time.Second, 10 * time.Second},
	} {
		l := of(algorithm, weir.Per(10, 10*time.Second))
		for i, cost := range []int64{10, 5, 4} {
			if d := b.book("books", l, cost); !d.Allowed() || d.Granted != cost || d.Delay != delays[i] || d.Remaining != 0 {
				b.Errorf("%v, booking %d: %+v", l, i, d)
			}
		}
		if d := b.charge("books", l, 1); d.Allowed() || d.RetryAfter != 10*time.Second {
			b.Errorf("%v: one that does not wait: %+v", l, d)
		}
	}
}

func cancels(b *bench) {
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket} {
		l := of(algorithm, weir.Per(10, 10*time.Second))
		b.charge("cancels", l, 10)
		before := b.charge("cancels", l, 0)
		c := weir.Charge{Key: "cancels", Limit: l, Cost: 4}
		first, second := b.book("cancels", l, 4), b.book("cancels", l, 8)
		for i, step := range []struct {
			of       weir.Decision
			cost     int64
			returned int64
		}{{first, 4, 0}, {second, 8, 8}, {first, 4, 4}, {first, 4, 0}} {
			c.Cost = step.cost
			a := undo(c, step.of)
			if b.take(a); (a.Decisions[0].ResetAfter < b.charge("cancels", l, 0).ResetAfter) || a.Decisions[0].Granted != step.returned {
				b.Errorf("%v, cancel %d: %+v", l, i, a.Decisions[0])
			}
		}
		b.want(b.charge("cancels", l, 0), weir.Decision{Outcome: weir.Granted, ResetAfter: before.ResetAfter})
	}
}

func booksTooFar(b *bench) {
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket} {
		l := of(algorithm, weir.Per(10, 10*time.Second))
		if d := b.book("far", l, 11); d.RetryAfter != weir.Never {
			b.Errorf("%v: above the burst: %+v", l, d)
		}
		for range 7 {
			b.book("far", l, 10)
		}
		d := b.book("far", l, 10)
		b.want(d, weir.Decision{Outcome: weir.Refused, RetryAfter: 10 * time.Second, ResetAfter: 70 * time.Second})
		b.clock.Advance(d.RetryAfter)
		if d := b.book("far", l, 10); !d.Allowed() || d.Delay != time.Minute {
			b.Errorf("%v: after retry after: %+v", l, d)
		}
	}
}

func queue(b *bench) {
	l := of(weir.LeakyBucket, weir.Limit{Count: 1, Period: time.Second, Burst: 3})
	for i := range 3 {
		b.want(b.charge("queue", l, 1), weir.Decision{
			Outcome: weir.Granted, Granted: 1, Remaining: int64(2 - i), ResetAfter: time.Duration(i+1) * time.Second, Delay: time.Duration(i) * time.Second,
		})
	}
	b.want(b.charge("queue", l, 1), weir.Decision{Outcome: weir.Refused, RetryAfter: time.Second, ResetAfter: 3 * time.Second})
	if d := b.book("queue", l, 1); d.Allowed() {
		b.Errorf("no room, but booked: %+v", d)
	}
	b.clock.Advance(1500 * time.Millisecond)
	if d := b.charge("queue", l, 1); d.Delay != 1500*time.Millisecond {
		b.Errorf("half way: %+v", d)
	}
}

func impatient(b *bench) {
	l := of(weir.LeakyBucket, weir.Limit{Count: 1, Period: time.Second, Burst: 3})
	now := func(wait time.Duration) weir.Decision {
		a := NewAct(weir.Charge{Key: "queue", Limit: l, Cost: 1})
		a.Immediate, a.MaxWait = wait == 0, wait
		b.take(a)
		return a.Decisions[0]
	}
	now(0)
	b.want(now(0), weir.Decision{Outcome: weir.Refused, Remaining: 0, RetryAfter: time.Second, ResetAfter: time.Second})
	b.want(now(400*time.Millisecond), weir.Decision{Outcome: weir.Refused, Remaining: 2, RetryAfter: 600 * time.Millisecond, ResetAfter: time.Second})
	b.charge("queue", l, 2)
	b.want(now(0), weir.Decision{Outcome: weir.Refused, RetryAfter: 3 * time.Second, ResetAfter: 3 * time.Second})
	b.clock.Advance(3 * time.Second)
	if d := now(0); !d.Allowed() || d.Delay != 0 {
		b.Errorf("after retry after: %+v", d)
	}
}

func leavesQueue(b *bench) {
	l := of(weir.LeakyBucket, weir.Limit{Count: 1, Period: time.Second, Burst: 9})
	b.charge("queue", l, 2)
	c := weir.Charge{Key: "queue", Limit: l, Cost: 3}
	first, second := b.charge("queue", l, 3), b.charge("queue", l, 3)
	for i, step := range []struct {
		of             weir.Decision
		returned, left int64
	}{{first, 0, 1}, {second, 3, 4}, {first, 3, 7}} {
		a := undo(c, step.of)
		if b.take(a); a.Decisions[0].Granted != step.returned || a.Decisions[0].Remaining != step.left {
			b.Errorf("cancel %d: %+v", i, a.Decisions[0])
		}
	}
}

func resets(b *bench) {
	for _, l := range limits() {
		b.charge("reset", l, 10)
		b.charge("beside", l, 10)
		a := about(weir.KindReset, "", weir.Charge{Key: "reset", Limit: l})
		b.take(a)
		b.want(a.Decisions[0], weir.Decision{Outcome: weir.Granted, Remaining: 10})
		b.want(b.charge("reset", l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 10})
		b.remains("another was reset", "beside", l, 0)
	}
	l := rooms(1)
	enter(b, l, "room", "holder")
	b.take(about(weir.KindReset, "", weir.Charge{Key: "room", Limit: l}))
	if !enter(b, l, "room", "next").Allowed() {
		b.Error("a reset room is not empty")
	}
}

func records(b *bench) {
	for _, l := range limits() {
		for i, want := range []struct{ granted, remains int64 }{{6, 4}, {6, 0}, {6, 0}, {2, 0}} {
			a := about(weir.KindRecord, "", weir.Charge{Key: "records", Limit: l, Cost: 6})
			b.take(a)
			if l.Algorithm.Traits().Windows {
				want.granted = 6
			}
			if d := a.Decisions[0]; d.Granted != want.granted || d.Remaining != want.remains {
				b.Errorf("%v, record %d: %+v", l, i, d)
			}
		}
		b.clock.Advance(b.charge("records", l, 0).ResetAfter)
		b.remains("the debt has drained", "records", l, 10)
	}
}

func largeRecords(b *bench) {
	for _, algorithm := range counting() {
		l := of(algorithm, weir.Per(60_000, time.Minute))
		a := about(weir.KindRecord, "", weir.Charge{Key: "large", Limit: l, Cost: 120_000})
		if b.take(a); a.Decisions[0].Granted != 120_000 {
			b.Errorf("%v: %+v", l, a.Decisions[0])
		}
		b.clock.Advance(a.Decisions[0].ResetAfter)
		b.want(b.charge("large", l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 60_000})
	}
}

// reports asks for costs that do not fit, under limits that charge them all the same.
func reports(b *bench) {
	for _, algorithm := range counting() {
		l := of(algorithm, weir.Limit{Count: 10, Period: 10 * time.Second, ChargeRefused: true})
		b.charge("reports", l, 8)
		d := b.charge("reports", l, 5)
		if d.Outcome != weir.Refused || d.Granted != 0 || d.Remaining != 0 {
			b.Errorf("%v: %+v", l, d)
		}
		b.clock.Advance(d.RetryAfter)
		if d := b.charge("reports", l, 5); !d.Allowed() {
			b.Errorf("%v: after retry after: %+v", l, d)
		}
		for range 100 {
			b.charge("reports", l, 10)
		}
		if d := b.charge("reports", l, 0); d.ResetAfter > 30*time.Second {
			b.Errorf("%v: the debt has no bound: %+v", l, d)
		}
	}
}

func badActs(b *bench) {
	for field, change := range map[string]func(*weir.Act){
		"max_wait":         func(a *weir.Act) { a.MaxWait = weir.MaxWait + 1 },
		"hold":             func(a *weir.Act) { a.ID, a.Hold = "id", weir.MaxWait+time.Second },
		"id":               func(a *weir.Act) { a.Hold = time.Second },
		"charges[0].at":    func(a *weir.Act) { a.Kind = weir.KindRefund },
		"charges[0].cost":  func(a *weir.Act) { a.Kind, a.Charges[0].Cost = weir.KindRecord, weir.MaxCost+1 },
		"anonymous":        func(a *weir.Act) { a.Kind, a.ID, a.Anonymous = weir.KindSettle, "id", true },
		"charges[0].up_to": func(a *weir.Act) { a.Kind, a.Charges[0].UpTo = weir.KindRecord, 3 },
	} {
		for _, l := range limits() {
			if l.Algorithm != weir.GCRA && field == "max_wait" {
				continue
			}
			a := NewAct(weir.Charge{Key: "bad", Limit: l, Cost: 1})
			change(a)
			b.invalid(a, field)
		}
	}
	for _, l := range limits() {
		if !bookable(l) {
			a := NewAct(weir.Charge{Key: "bad", Limit: l, Cost: 1})
			a.MaxWait = time.Second
			b.invalid(a, "max_wait")
		}
	}
}

// invalid puts an act that is outside the contract because of a field.
func (b *bench) invalid(a *weir.Act, field string) {
	b.Helper()
	b.taker.Take(context.Background(), []*weir.Act{a})
	var invalid *weir.InvalidError
	if !errors.As(a.Err, &invalid) || invalid.Path() != field || !errors.Is(a.Err, weir.ErrInvalid) {
		b.Errorf("%v, %s: %v", a.Charges[0].Limit, field, a.Err)
	}
	b.remains("after "+field, a.Charges[0].Key, a.Charges[0].Limit, a.Charges[0].Limit.Capacity())
}
