package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

// anonymousCases have the contract's sentences about callers that cannot name their
// takes.
var anonymousCases = []testCase{
	{"an anonymous refund returns the oldest slot", oldestSlot},
	{"an anonymous refund of a refused take returns no slot", refusedSlot},
	{"more anonymous refunds than slots return no more than there are", emptySlots},
	{"an anonymous slot is free when its lease ends", lostSlot},
	{"anonymous takes of several slots", severalSlots},
	{"an anonymous refund leaves named holders alone", namedSlot},
	{"an anonymous record takes slots above the count", recordedSlot},
	{"an anonymous refund gives back the newest units", newestUnits},
	{"an anonymous refund floors at zero", floorUnits},
}

// anonymous runs an anonymous act.
func (b *bench) anonymous(kind weir.Kind, l *weir.Limit, cost int64) weir.Decision {
	b.Helper()
	a := NewAct(weir.Charge{Key: "anonymous", Limit: l, Cost: cost})
	a.Kind, a.Anonymous = kind, true
	b.take(a)
	return a.Decisions[0]
}

func oldestSlot(b *bench) {
	l := rooms(2)
	b.want(b.anonymous(weir.KindTake, l, 1), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 1, ResetAfter: time.Minute})
	b.clock.Advance(10 * time.Second)
	b.want(b.anonymous(weir.KindTake, l, 1), weir.Decision{Outcome: weir.Granted, Granted: 1, ResetAfter: time.Minute})
	b.clock.Advance(10 * time.Second)
	b.want(b.anonymous(weir.KindRefund, l, 1), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 1, ResetAfter: 50 * time.Second})
	b.want(b.anonymous(weir.KindTake, l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 1, ResetAfter: 50 * time.Second})
	b.want(b.anonymous(weir.KindRefund, l, 1), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 2})
}

func refusedSlot(b *bench) {
	l := rooms(1)
	b.anonymous(weir.KindTake, l, 1)
	b.clock.Advance(time.Second)
	for range 3 {
		b.want(b.anonymous(weir.KindTake, l, 1), weir.Decision{Outcome: weir.Refused, RetryAfter: 59 * time.Second, ResetAfter: time.Minute})
	}
	for range 3 {
		if d := b.anonymous(weir.KindRefund, l, 1); d.Remaining != 0 {
			b.Errorf("the refund of a refused take returned a slot: %+v", d)
		}
	}
	if d := b.anonymous(weir.KindRefund, l, 1); d.Remaining != 1 {
		b.Errorf("the refund of the granted take returned no slot: %+v", d)
	}
	b.anonymous(weir.KindTake, l, 1)
	b.anonymous(weir.KindTake, l, 1)
	b.clock.Advance(30 * time.Second)
	b.anonymous(weir.KindRefund, l, 1)
	b.anonymous(weir.KindRefund, l, 1)
	b.anonymous(weir.KindTake, l, 1)
	if b.anonymous(weir.KindTake, l, 1).Allowed() {
		b.Error("two slots of one")
	}
	// Refused takes are forgotten after a lease.
	b.clock.Advance(time.Minute)
	b.anonymous(weir.KindTake, l, 1)
	if d := b.anonymous(weir.KindRefund, l, 1); d.Remaining != 1 {
		b.Errorf("a refused take was remembered for too long: %+v", d)
	}
}

func emptySlots(b *bench) {
	l := rooms(3)
	b.want(b.anonymous(weir.KindRefund, l, 1), weir.Decision{Outcome: weir.Granted, Remaining: 3})
	b.anonymous(weir.KindTake, l, 1)
	b.want(b.anonymous(weir.KindRefund, l, 5), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 3})
	for i := range int64(4) {
		if d := b.anonymous(weir.KindTake, l, 1); d.Allowed() != (i < 3) {
			b.Errorf("take %d: %+v", i, d)
		}
	}
}

func lostSlot(b *bench) {
	l := rooms(1)
	b.anonymous(weir.KindTake, l, 1)
	b.clock.Advance(time.Minute - time.Microsecond)
	if b.anonymous(weir.KindTake, l, 1).Allowed() {
		b.Error("granted before the lease ended")
	}
	b.clock.Advance(time.Microsecond)
	b.want(b.anonymous(weir.KindTake, l, 1), weir.Decision{Outcome: weir.Granted, Granted: 1, ResetAfter: time.Minute})
}

func severalSlots(b *bench) {
	l := rooms(5)
	b.want(b.anonymous(weir.KindTake, l, 3), weir.Decision{Outcome: weir.Granted, Granted: 3, Remaining: 2, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindTake, l, 3), weir.Decision{Outcome: weir.Refused, Remaining: 2, RetryAfter: time.Minute, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindTake, l, 6), weir.Decision{Outcome: weir.Refused, Remaining: 2, RetryAfter: weir.Never, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindTake, l, 2), weir.Decision{Outcome: weir.Granted, Granted: 2, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindRefund, l, 9), weir.Decision{Outcome: weir.Granted, Granted: 9, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindRefund, l, 4), weir.Decision{Outcome: weir.Granted, Granted: 4, Remaining: 4, ResetAfter: time.Minute})
}

func namedSlot(b *bench) {
	l := rooms(2)
	enter(b, l, "anonymous", "named")
	b.clock.Advance(time.Second)
	b.anonymous(weir.KindTake, l, 1)
	b.want(b.anonymous(weir.KindRefund, l, 2), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 1, ResetAfter: 59 * time.Second})
	a := about(weir.KindRelease, "named", weir.Charge{Key: "anonymous", Limit: l, Cost: 1})
	b.take(a)
	b.want(a.Decisions[0], weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 2})
}

func recordedSlot(b *bench) {
	l := rooms(2)
	b.want(b.anonymous(weir.KindRecord, l, 3), weir.Decision{Outcome: weir.Granted, Granted: 3, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindRecord, l, 3), weir.Decision{Outcome: weir.Granted, Granted: 1, ResetAfter: time.Minute})
	b.want(b.anonymous(weir.KindRefund, l, 3), weir.Decision{Outcome: weir.Granted, Granted: 3, Remaining: 1, ResetAfter: time.Minute})
}

// newestUnits charges twice, a little apart, and gives back more than the second charge.
func newestUnits(b *bench) {
	for _, l := range limits() {
		a := NewAct(weir.Charge{Key: "newest", Limit: l, Cost: 5})
		b.take(a)
		b.clock.Advance(time.Millisecond)
		b.take(again(a))
		before := b.charge("newest", l, 0)
		back := NewAct(weir.Charge{Key: "newest", Limit: l, Cost: 7})
		back.Kind, back.Anonymous = weir.KindRefund, true
		b.clock.Advance(time.Millisecond)
		b.take(back)
		if d := back.Decisions[0]; d.Granted != 7 || d.Remaining != before.Remaining+7 {
			b.Errorf("%v: 7 of 10 refunded: %+v after %+v", l, d, before)
		}
		if d := b.charge("newest", l, 8); d.Allowed() {
			b.Errorf("%v: 11 of 10: %+v", l, d)
		}
	}
}

func floorUnits(b *bench) {
	for _, l := range limits() {
		b.charge("floor", l, 6)
		b.clock.Advance(time.Millisecond)
		a := NewAct(weir.Charge{Key: "floor", Limit: l, Cost: 1_000_000})
		a.Kind, a.Anonymous = weir.KindRefund, true
		b.take(a)
		if d := a.Decisions[0]; d.Granted != 6 || d.Remaining != 10 {
			b.Errorf("%v: all refunded: %+v", l, d)
		}
		b.remains("refunded more than there was", "floor", l, 10)
	}
}
