package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// idCases have the contract's sentences about IDs and holds.
var idCases = []testCase{
	{"a take with an id happens once", once},
	{"a refusal with an id stays one", refusedOnce},
	{"an id belongs to one content", reused},
	{"an id belongs to its keys", owned},
	{"an id that was made for a take is not kept if that is refused", notRepeated},
	{"the lives of ids", lives},
	{"a hold is settled below, at and above its estimate", settled},
	{"what is settled far above is a debt of one drain", settledFar},
	{"an unsettled hold stays charged", unsettled},
	{"a release gives all back", releasedAll},
	{"what is closed stays closed", closed},
	{"what closes happens once", closedOnce},
	{"what cannot be closed is an error", notClosed},
	{"a refund by id goes up to what was granted", overRefund},
}

// fails puts an act that must end in an error and charge nothing.
func (b *bench) fails(a *weir.Act, want error) {
	b.Helper()
	look := func() []weir.Decision {
		looks := NewAct(slices.Clone(a.Charges)...)
		for i := range looks.Charges {
			looks.Charges[i].Cost, looks.Charges[i].UpTo = 0, 0
		}
		b.take(looks)
		return looks.Decisions
	}
	copied := again(a)
	before := look()
	b.taker.Take(context.Background(), []*weir.Act{copied})
	if !errors.Is(copied.Err, want) || !errors.Is(copied.Err, weir.ErrInvalid) {
		b.Errorf("%v %q: %v, want %v", a.Kind, a.ID, copied.Err, want)
	}
	for i, d := range look() {
		if d != before[i] {
			b.Errorf("%v %q: an error changed something:\n%+v\n%+v", a.Kind, a.ID, before[i], d)
		}
	}
}

// remains returns the remaining units of a limit.
func (b *bench) remains(when, key string, l *weir.Limit, want int64) {
	b.Helper()
	if d := b.charge(key, l, 0); d.Remaining != want {
		b.Errorf("%v, %s: %d remain, want %d", l, when, d.Remaining, want)
	}
}

func once(b *bench) {
	for _, l := range limits() {
		c := weir.Charge{Key: "once", Limit: l, Cost: 3}
		id := "once " + l.Algorithm.String()
		first := b.withID(id, c)
		b.clock.Advance(time.Second)
		for range 3 {
			if a := b.withID(id, c); a.Decisions[0] != first.Decisions[0] {
				b.Errorf("%v: a repeat got %+v, not %+v", l, a.Decisions[0], first.Decisions[0])
			}
		}
		if d := b.charge("once", l, 0); d.Remaining > 8 {
			b.Errorf("%v: %d remain", l, d.Remaining)
		}
		b.withID(id+" other", c)
		if d := b.charge("once", l, 0); d.Remaining > 5 {
			b.Errorf("%v: another id was not charged: %+v", l, d)
		}
	}
}

func refusedOnce(b *bench) {
	for _, l := range limits() {
		id := "refused " + l.Algorithm.String()
		b.charge("refused", l, 10)
		c := weir.Charge{Key: "refused", Limit: l, Cost: 1}
		first := b.withID(id, c)
		b.clock.Advance(weir.RefusedIDLife - time.Second)
		if a := b.withID(id, c); a.Allowed() || a.Decisions[0] != first.Decisions[0] {
			b.Errorf("%v: a repeat of a refusal got %+v", l, a.Decisions[0])
		}
		b.fails(about(weir.KindSettle, id, c), weir.ErrUnknownID)
	}
}

// notRepeated refuses takes whose IDs were made for them: a repeat with such an ID is
// decided again.
func notRepeated(b *bench) {
	for _, l := range limits() {
		b.charge("new", l, 10)
		for _, granted := range []bool{false, true, true} {
			a := about(weir.KindTake, "new "+l.Algorithm.String(), weir.Charge{Key: "new", Limit: l, Cost: 1})
			a.NewID = true
			if b.take(a); a.Allowed() != granted {
				b.Errorf("%v: %+v, want granted: %v", l, a.Decisions[0], granted)
			}
			if !granted {
				b.clock.Advance(20 * time.Second)
			}
		}
		b.remains("granted once", "new", l, 9)
	}
}

// owned uses an ID under another client's keys, in the same hash slot.
func owned(b *bench) {
	for _, l := range limits() {
		id := "owned " + l.Algorithm.String()
		own := weir.Charge{Key: "own", HashTag: "tenant", Limit: l, Cost: 3}
		other := weir.Charge{Key: "other", HashTag: "tenant", Limit: l, Cost: 5}
		b.withID(id, own)
		b.fails(about(weir.KindRelease, id, other), weir.ErrUnknownID)
		b.fails(about(weir.KindRelease, id, own, other), weir.ErrUnknownID)
		if a := b.withID(id, other); !a.Allowed() {
			b.Errorf("%v: %+v", l, a.Decisions)
		}
		b.take(about(weir.KindRelease, id, own))
		own.Cost, other.Cost = 0, 0
		looks := NewAct(own, other)
		if b.take(looks); looks.Decisions[0].Remaining != 10 || looks.Decisions[1].Remaining != 5 {
			b.Errorf("%v: one of two with the same id was released: %+v", l, looks.Decisions)
		}
	}
	room := rooms(2)
	for n, key := range []string{"one", "another"} {
		a := b.withID("same", weir.Charge{Key: "room", Limit: room, Cost: 1}, weir.Charge{Key: key, Limit: room, Cost: 1})
		if !a.Allowed() || a.Decisions[0].Remaining != 1-int64(n) {
			b.Errorf("holder %d with the same id: %+v", n, a.Decisions)
		}
	}
}

func reused(b *bench) {
	for _, l := range limits() {
		id := "reused " + l.Algorithm.String()
		good := weir.Charge{Key: "reused", Limit: l, Cost: 3}
		b.withID(id, good)
		dearer, immediate, held := about(weir.KindTake, id, good), about(weir.KindTake, id, good), about(weir.KindTake, id, good)
		dearer.Charges[0].Cost, immediate.Immediate, held.Hold = 4, true, time.Second
		for _, a := range []*weir.Act{dearer, immediate, held} {
			b.fails(a, weir.ErrIDReused)
		}
	}
}

// lives lets an id's life pass.
func lives(b *bench) {
	l := weir.PerDay(10).MustCompile()
	c := weir.Charge{Key: "lives", Limit: l, Cost: 1}
	first := b.withID("short", c)
	held := about(weir.KindTake, "held", c)
	held.Hold = time.Hour
	b.take(held)
	b.clock.Advance(weir.IDLife - time.Second)
	if a := b.withID("short", c); a.Decisions[0] != first.Decisions[0] {
		b.Errorf("forgotten within its life: %+v", a.Decisions)
	}
	b.clock.Advance(50 * time.Minute)
	a := about(weir.KindRelease, "held", c)
	if b.take(a); a.Decisions[0].Granted != 1 {
		b.Errorf("a hold of an hour was forgotten: %+v", a.Decisions)
	}
}

func settled(b *bench) {
	for _, l := range limits() {
		for _, actual := range []int64{0, 3, 6, 8, 10} {
			id := l.Algorithm.String() + " settled at " + time.Duration(actual).String()
			c := weir.Charge{Key: id, Limit: l, Cost: 6}
			held := about(weir.KindTake, id, c)
			held.Hold = time.Minute
			b.take(held)
			b.remains("held", id, l, 4)
			c.Cost = actual
			a := about(weir.KindSettle, id, c)
			b.take(a)
			if d := a.Decisions[0]; d.Outcome != weir.Granted || d.Granted != actual || d.Remaining != 10-actual {
				b.Errorf("%v: %+v", id, d)
			}
			b.remains("settled", id, l, 10-actual)
		}
	}
}

// settledFar settles at a hundred times the estimate.
func settledFar(b *bench) {
	for _, l := range limits() {
		id := "far " + l.Algorithm.String()
		b.withID(id, weir.Charge{Key: id, Limit: l, Cost: 5})
		a := about(weir.KindSettle, id, weir.Charge{Key: id, Limit: l, Cost: 500})
		b.take(a)
		want := int64(20)
		if l.Algorithm.Traits().Windows {
			want = 500
		}
		if d := a.Decisions[0]; d.Granted != want || d.Remaining != 0 {
			b.Errorf("%v: %+v", l, d)
		}
		d := b.charge(id, l, 1)
		if d.Allowed() || d.RetryAfter > 30*time.Second {
			b.Errorf("%v: in debt: %+v", l, d)
		}
		b.clock.Advance(d.RetryAfter)
		if d := b.charge(id, l, 1); !d.Allowed() {
			b.Errorf("%v: out of debt: %+v", l, d)
		}
	}
}

func unsettled(b *bench) {
	for _, l := range limits() {
		a := about(weir.KindTake, "unsettled "+l.Algorithm.String(), weir.Charge{Key: "unsettled", Limit: l, Cost: 10})
		a.Hold = time.Millisecond
		b.take(a)
		b.clock.Advance(2 * time.Millisecond)
		b.remains("after the hold", "unsettled", l, 0)
	}
}

func releasedAll(b *bench) {
	for _, l := range limits() {
		id := "all " + l.Algorithm.String()
		charges := []weir.Charge{{Key: "all", Limit: l, Cost: 4}, {Key: "all", Limit: l, Cost: 3}, {Key: "more", Limit: l, Cost: 2}}
		b.withID(id, charges...)
		b.remains("taken", "all", l, 3)
		b.take(about(weir.KindRelease, id, charges...))
		for _, key := range []string{"all", "more"} {
			b.want(b.charge(key, l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 10})
		}
	}
}

func closed(b *bench) {
	for _, l := range limits() {
		id := "closed " + l.Algorithm.String()
		c := weir.Charge{Key: "closed", Limit: l, Cost: 4}
		b.withID(id+" released", c)
		b.take(about(weir.KindRelease, id+" released", c))
		for _, kind := range []weir.Kind{weir.KindTake, weir.KindSettle, weir.KindRefund, weir.KindRenew} {
			b.fails(about(kind, id+" released", c), weir.ErrReleased)
		}
		b.withID(id+" settled", c)
		c.Cost = 3
		b.take(about(weir.KindSettle, id+" settled", c))
		c.Cost = 2
		for _, kind := range []weir.Kind{weir.KindSettle, weir.KindRelease, weir.KindRefund, weir.KindRenew} {
			b.fails(about(kind, id+" settled", c), weir.ErrSettled)
		}
		c.Cost = 4
		if a := b.withID(id+" settled", c); !a.Allowed() {
			b.Errorf("%v: a take repeated after its settle: %+v", l, a.Decisions)
		}
		b.remains("settled once", "closed", l, 7)
	}
}

func closedOnce(b *bench) {
	for _, kind := range []weir.Kind{weir.KindRefund, weir.KindSettle, weir.KindRelease} {
		for _, l := range limits() {
			id := kind.String() + " " + l.Algorithm.String()
			b.withID(id, weir.Charge{Key: id, Limit: l, Cost: 8})
			c := weir.Charge{Key: id, Limit: l, Cost: 2}
			first := about(kind, id, c)
			b.take(first)
			left := b.charge(id, l, 0)
			again := about(kind, id, c)
			b.take(again)
			if again.Decisions[0] != first.Decisions[0] || b.charge(id, l, 0) != left {
				b.Errorf("%s twice: %+v, %+v", id, first.Decisions[0], again.Decisions[0])
			}
		}
	}
}

func notClosed(b *bench) {
	for _, l := range limits() {
		for _, kind := range []weir.Kind{weir.KindRefund, weir.KindSettle, weir.KindRelease, weir.KindRenew} {
			b.fails(about(kind, "unheard of", weir.Charge{Key: "unknown", Limit: l, Cost: 1}), weir.ErrUnknownID)
		}
	}
}

func overRefund(b *bench) {
	for _, l := range limits() {
		id := "refund " + l.Algorithm.String()
		c := weir.Charge{Key: "refund", Limit: l, Cost: 5}
		b.withID(id, c)
		c.Cost = 6
		b.fails(about(weir.KindRefund, id, c), weir.ErrOverRefund)
		c.Cost = 5
		a := about(weir.KindRefund, id, c)
		if b.take(a); a.Decisions[0].Granted != 5 || a.Decisions[0].Remaining != 10 {
			b.Errorf("%v: %+v", l, a.Decisions[0])
		}
	}
}
