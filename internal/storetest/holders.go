package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// holderCases have the contract's sentences about concurrency.
var holderCases = []testCase{
	{"as many holders as there are places", slots},
	{"a refused holder is decided again", waiting},
	{"a release frees the place at once, once", released},
	{"a dead holder's place is free when its lease ends", dead},
	{"a renewed lease lasts longer", renewed},
	{"a renewal for a time of its own", renewedFor},
	{"what has ended is not renewed", renewedLate},
	{"a holder enters all doors of an act or none", slotAndUnits},
	{"exactly the places at many at once", crush},
	{"a look at places takes none", slotsPeeked},
	{"a holder leaves the places that it keeps free", slotsKept},
	{"a lease as long as the limit says now", shorterLease},
}

// rooms returns a limit of that many slots with leases of a minute.
func rooms(count int64) *weir.Limit { return of(weir.Concurrency, weir.PerMinute(count)) }

func enter(b *bench, l *weir.Limit, key, id string) weir.Decision {
	b.Helper()
	return b.withID(id, weir.Charge{Key: key, Limit: l, Cost: 1}).Decisions[0]
}

// about is an act on the take of an id.
func about(kind weir.Kind, id string, charges ...weir.Charge) *weir.Act {
	a := NewAct(charges...)
	a.Kind, a.ID = kind, id
	return a
}

func slots(b *bench) {
	l := rooms(3)
	for i := range int64(3) {
		d := enter(b, l, "room", fmt.Sprint("holder ", i))
		b.want(d, weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 2 - i, ResetAfter: time.Minute})
		b.clock.Advance(time.Second)
	}
	b.want(enter(b, l, "room", "late"), weir.Decision{
		Outcome: weir.Refused, RetryAfter: time.Second, ResetAfter: 59 * time.Second,
	})
	if d := enter(b, l, "room", "holder 0"); !d.Allowed() || d.Remaining != 2 {
		b.Errorf("a repeat did not get its first answer: %+v", d)
	}
}

// waiting has a holder poll for a slot under one ID: alone, and with units beside the slot.
func waiting(b *bench) {
	l, short, rate := rooms(1), of(weir.Concurrency, weir.Per(1, 100*time.Millisecond)), weir.PerHour(10).MustCompile()
	inside := "first"
	enter(b, l, "room", inside)
	room := weir.Charge{Key: "room", Limit: l, Cost: 1}
	for _, charges := range [][]weir.Charge{{room}, {room, {Key: "rate", Limit: rate, Cost: 4}}} {
		id := fmt.Sprint("waits for ", len(charges))
		for range 2 {
			if d := b.withID(id, charges...).Decisions[0]; d.Allowed() || d.RetryAfter != time.Second {
				b.Errorf("all slots are taken: %+v", d)
			}
		}
		b.take(about(weir.KindRelease, inside, room))
		if a := b.withID(id, charges...); !a.Allowed() {
			b.Errorf("a slot was released: %+v", a.Decisions)
		}
		if a := b.withID(id, charges...); !a.Allowed() {
			b.Errorf("a repeat of a granted take: %+v", a.Decisions)
		}
		inside = id
	}
	enter(b, short, "closet", "first")
	if d := enter(b, short, "closet", "second"); d.RetryAfter != 100*time.Millisecond {
		b.Errorf("a lease of 100 ms: %+v", d)
	}
}

// slotsKept has a holder that leaves one of three slots to other holders.
func slotsKept(b *bench) {
	l := rooms(3)
	kept := weir.Charge{Key: "room", Limit: l, Cost: 1, Keep: 1}
	for i := range int64(2) {
		if d := b.withID(fmt.Sprint("holder ", i), kept).Decisions[0]; !d.Allowed() || d.Remaining != 1-i {
			b.Errorf("holder %d of 2: %+v", i, d)
		}
		b.clock.Advance(time.Second)
	}
	b.want(b.withID("third", kept).Decisions[0], weir.Decision{
		Outcome: weir.Refused, RetryAfter: time.Second, ResetAfter: 59 * time.Second,
	})
	if d := enter(b, l, "room", "another"); !d.Allowed() {
		b.Errorf("the place that was kept: %+v", d)
	}
	if d := b.withID("third", kept).Decisions[0]; d.RetryAfter != time.Second {
		b.Errorf("with 3 of 3 taken: %+v", d)
	}
	if d := b.withID("too many", weir.Charge{Key: "room", Limit: l, Cost: 1, Keep: 3}).Decisions[0]; d.RetryAfter != weir.Never {
		b.Errorf("1 + 3 kept of 3: %+v", d)
	}
}

func released(b *bench) {
	l := rooms(1)
	room := weir.Charge{Key: "room", Limit: l}
	enter(b, l, "room", "first")
	if enter(b, l, "room", "second").Allowed() {
		b.Error("two in a room for one")
	}
	a := about(weir.KindRelease, "first", weir.Charge{Key: "room", Limit: l, Cost: 1})
	b.take(a)
	b.want(a.Decisions[0], weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 1})
	if !enter(b, l, "room", "third").Allowed() {
		b.Error("a released slot was not free")
	}
	again := about(weir.KindRelease, "first", weir.Charge{Key: "room", Limit: l, Cost: 1})
	if b.take(again); again.Decisions[0] != a.Decisions[0] || b.charge(room.Key, l, 0).Remaining != 0 {
		b.Errorf("a second release let somebody else go: %+v", again.Decisions)
	}
}

func dead(b *bench) {
	l := rooms(1)
	enter(b, l, "room", "dead")
	b.clock.Advance(time.Minute - time.Microsecond)
	if d := enter(b, l, "room", "early"); d.Allowed() {
		b.Errorf("1 µs before the end: %+v", d)
	}
	b.clock.Advance(time.Microsecond)
	if !enter(b, l, "room", "next").Allowed() {
		b.Error("the dead hold on")
	}
}

func renewed(b *bench) {
	l := rooms(1)
	enter(b, l, "room", "holder")
	for range 20 {
		b.clock.Advance(50 * time.Second)
		a := about(weir.KindRenew, "holder", weir.Charge{Key: "room", Limit: l})
		b.take(a)
		b.want(a.Decisions[0], weir.Decision{Outcome: weir.Granted, Granted: 1, ResetAfter: time.Minute})
	}
	if enter(b, l, "room", "other").Allowed() {
		b.Error("a renewed slot was free")
	}
}

func renewedFor(b *bench) {
	l := rooms(1)
	enter(b, l, "room", "holder")
	a := about(weir.KindRenew, "holder", weir.Charge{Key: "room", Limit: l})
	a.Hold = 2 * time.Hour
	b.take(a)
	if d := enter(b, l, "room", "other"); d.Allowed() || d.ResetAfter != 2*time.Hour {
		b.Errorf("renewed for 2h: %+v", d)
	}
	b.clock.Advance(2*time.Hour - time.Second)
	a = about(weir.KindRelease, "holder", weir.Charge{Key: "room", Limit: l})
	if b.take(a); a.Decisions[0].Granted != 1 {
		b.Errorf("released after a long hold: %+v", a.Decisions[0])
	}
}

func renewedLate(b *bench) {
	l := rooms(1)
	enter(b, l, "room", "holder")
	b.clock.Advance(time.Minute)
	b.fails(about(weir.KindRenew, "holder", weir.Charge{Key: "room", Limit: l}), weir.ErrUnknownID)
	b.fails(about(weir.KindRenew, "nobody", weir.Charge{Key: "room", Limit: l}), weir.ErrUnknownID)
	if !enter(b, l, "room", "next").Allowed() {
		b.Error("a renewal after the end took the slot")
	}
}

func slotAndUnits(b *bench) {
	room, rate := rooms(2), weir.PerHour(10).MustCompile()
	act := func(id string) *weir.Act {
		return b.withID(id, weir.Charge{Key: "room", Limit: room, Cost: 1}, weir.Charge{Key: "rate", Limit: rate, Cost: 4})
	}
	first, second := act("first"), act("second")
	if !first.Allowed() || !second.Allowed() {
		b.Errorf("%+v, %+v", first.Decisions, second.Decisions)
	}
	if a := act("third"); a.Allowed() || b.charge("rate", rate, 0).Remaining != 2 {
		b.Errorf("no place, but charged: %+v", a.Decisions)
	}
	b.take(about(weir.KindRelease, "first", first.Charges...))
	if d := b.charge("rate", rate, 0); d.Remaining != 6 {
		b.Errorf("a release gives back all of the act: %+v", d)
	}
	b.charge("rate", rate, 3)
	if a := act("fourth"); a.Allowed() || a.Decisions[0].Outcome != weir.NotCharged || b.charge("room", room, 0).Remaining != 1 {
		b.Errorf("no units, but a place taken: %+v", a.Decisions)
	}
}

func crush(b *bench) {
	l := rooms(10)
	var inside atomic.Int64
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			for j := range 4 {
				a := NewAct(weir.Charge{Key: "crush", Limit: l, Cost: 1})
				a.ID = fmt.Sprint("holder ", i, " ", j)
				if b.taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
					b.Errorf("%v", a.Err)
				} else if a.Allowed() {
					inside.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if inside.Load() != 10 {
		b.Errorf("%d of 10", inside.Load())
	}
}

func slotsPeeked(b *bench) {
	l := rooms(2)
	for range 5 {
		b.want(b.charge("room", l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 2})
	}
	enter(b, l, "room", "holder")
	b.want(b.charge("room", l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 1, ResetAfter: time.Minute})
	a := NewAct(weir.Charge{Key: "room", Limit: l, Cost: 1})
	b.taker.Take(context.Background(), []*weir.Act{a})
	var invalid *weir.InvalidError
	if !errors.As(a.Err, &invalid) || invalid.Path() != "id" {
		b.Errorf("a holder without an id: %+v %v", a.Decisions, a.Err)
	}
	a.ID, a.Charges[0].UpTo = "greedy", 2
	b.taker.Take(context.Background(), []*weir.Act{a})
	if !errors.As(a.Err, &invalid) || invalid.Path() != "charges[0].up_to" {
		b.Errorf("a holder of up to two places: %+v %v", a.Decisions, a.Err)
	}
}

// shorterLease changes count and lease while holders are inside.
func shorterLease(b *bench) {
	for i := range 5 {
		enter(b, rooms(5), "room", fmt.Sprint("old ", i))
	}
	cut := of(weir.Concurrency, weir.Per(2, 10*time.Second))
	b.want(enter(b, cut, "room", "new"), weir.Decision{Outcome: weir.Refused, RetryAfter: time.Second, ResetAfter: time.Minute})
	b.clock.Advance(time.Minute)
	b.want(enter(b, cut, "room", "newer"), weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 1, ResetAfter: 10 * time.Second})
	if d := enter(b, rooms(1000), "room", "newest"); d.Remaining != 998 {
		b.Errorf("raised with 1 inside: %+v", d)
	}
}
