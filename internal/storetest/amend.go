package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// amendCases have the contract's sentences about amending a take.
var amendCases = []testCase{
	{"a take that its caller was refused is charged nothing", answeredRefused},
	{"a take that its caller was granted is charged, even if it does not fit", answeredGranted},
	{"a take that comes after its amendment charges nothing", answeredFirst},
	{"each charge is amended to its own amount", answeredSeparately},
	{"an amount between cost and up to", answeredUpTo},
	{"a holder who is there has a slot above the count", answeredSlotHeld},
	{"a holder who was refused leaves its slot", answeredSlotLost},
	{"a booking that its caller was refused is cancelled", answeredUnbooked},
	{"what was closed is not amended", answeredClosed},
	{"a limit that charges what it refuses keeps that charge", answeredAndCharged},
	{"a debt from amending has a cap", answeredFar},
	{"what cannot be amended is an error", notAmended},
}

// amendment is a take as an Amend that says that all charges were granted, or none.
func amendment(take *weir.Act, granted bool) *weir.Act {
	a := again(take)
	a.Kind = weir.KindAmend
	for i := range a.Decisions {
		a.Decisions[i] = weir.Decision{Outcome: weir.Refused, RetryAfter: time.Second}
		if granted {
			a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: a.Charges[i].Cost}
		}
	}
	return a
}

// amend amends a take twice, which must not differ from once.
func (b *bench) amend(take *weir.Act, granted bool) weir.Decision {
	b.Helper()
	first, second := amendment(take, granted), amendment(take, granted)
	b.take(first)
	b.take(second)
	for i := range first.Decisions {
		if first.Decisions[i] != second.Decisions[i] {
			b.Errorf("amended twice: %+v, then %+v", first.Decisions[i], second.Decisions[i])
		}
	}
	return first.Decisions[0]
}

// repeats takes once more and wants a decision that says granted or not.
func (b *bench) repeats(take *weir.Act, granted bool) {
	b.Helper()
	a := again(take)
	if b.take(a); a.Allowed() != granted {
		b.Errorf("%q repeated: %+v, want granted: %v", take.ID, a.Decisions, granted)
	}
}

func answeredRefused(b *bench) {
	for _, l := range limits() {
		take := b.withID("told "+l.Algorithm.String(), weir.Charge{Key: "refused", Limit: l, Cost: 4})
		b.clock.Advance(time.Millisecond)
		if d := b.amend(take, false); d.Outcome != weir.Refused || d.Granted != 0 || d.Remaining != 10 || d.RetryAfter != time.Second {
			b.Errorf("%v: %+v", l, d)
		}
		b.repeats(take, false)
		b.remains("told refused", "refused", l, 10)
		b.fails(about(weir.KindRelease, take.ID, take.Charges...), weir.ErrUnknownID)
	}
}

func answeredGranted(b *bench) {
	for _, l := range limits() {
		b.charge("granted", l, 8)
		take := b.withID("told "+l.Algorithm.String(), weir.Charge{Key: "granted", Limit: l, Cost: 4})
		if take.Allowed() {
			b.Fatalf("%v: %+v", l, take.Decisions)
		}
		if d := b.amend(take, true); d.Outcome != weir.Granted || d.Granted != 4 || d.Remaining != 0 {
			b.Errorf("%v: %+v", l, d)
		}
		b.repeats(take, true)
		b.remains("in debt", "granted", l, 0)
		release := about(weir.KindRelease, take.ID, take.Charges...)
		if b.take(release); release.Decisions[0].Granted != 4 || release.Decisions[0].Remaining != 2 {
			b.Errorf("%v: released: %+v", l, release.Decisions[0])
		}
	}
}

func answeredFirst(b *bench) {
	for _, l := range limits() {
		for _, granted := range []bool{false, true} {
			key := fmt.Sprint(l.Algorithm, granted)
			take := about(weir.KindTake, key, weir.Charge{Key: key, Limit: l, Cost: 3})
			b.amend(take, granted)
			b.repeats(take, granted)
			b.repeats(take, granted)
			want := int64(10)
			if granted {
				want = 7
			}
			b.remains("take after amend", key, l, want)
		}
	}
}

func answeredSeparately(b *bench) {
	for _, l := range limits() {
		key := "apart " + l.Algorithm.String()
		take := b.withID(key, weir.Charge{Key: key, Limit: l, Cost: 3}, weir.Charge{Key: key + " more", Limit: l, Cost: 5}, weir.Charge{Key: key + " look", Limit: l})
		a := amendment(take, true)
		a.Decisions[0].Granted, a.Decisions[1].Granted = 1, 4
		b.take(a)
		b.remains("amended to 1", key, l, 9)
		b.remains("amended to 4", key+" more", l, 6)
		take = again(take)
		if b.take(take); !take.Allowed() || take.Decisions[0].Granted != 1 || take.Decisions[1].Granted != 4 || take.Decisions[2].Granted != 0 {
			b.Errorf("%v: repeated: %+v", l, take.Decisions)
		}
		release := about(weir.KindRelease, key, take.Charges...)
		b.take(release)
		b.remains("released", key, l, 10)
		b.remains("released", key+" more", l, 10)
	}
}

func answeredUpTo(b *bench) {
	for _, l := range limits() {
		key := "up to " + l.Algorithm.String()
		b.charge(key, l, 4)
		take := b.withID(key, weir.Charge{Key: key, Limit: l, Cost: 2, UpTo: 9})
		if take.Decisions[0].Granted != 6 {
			b.Fatalf("%v: %+v", l, take.Decisions)
		}
		a := amendment(take, true)
		a.Decisions[0].Granted = 5
		if b.take(a); a.Decisions[0].Granted != 5 || a.Decisions[0].Remaining != 1 {
			b.Errorf("%v: %+v", l, a.Decisions[0])
		}
		take = again(take)
		if b.take(take); take.Decisions[0].Granted != 5 {
			b.Errorf("%v: repeated: %+v", l, take.Decisions[0])
		}
	}
}

func answeredSlotHeld(b *bench) {
	l := rooms(1)
	enter(b, l, "room", "first")
	second := b.withID("second", weir.Charge{Key: "room", Limit: l, Cost: 1})
	third := about(weir.KindTake, "third", second.Charges...)
	for _, take := range []*weir.Act{second, third} {
		b.want(b.amend(take, true), weir.Decision{Outcome: weir.Granted, Granted: 1, ResetAfter: time.Minute})
		b.repeats(take, true)
	}
	for i, id := range []string{"first", "second", "third"} {
		a := about(weir.KindRelease, id, second.Charges...)
		if b.take(a); a.Decisions[0].Granted != 1 || a.Decisions[0].Remaining != int64(i/2) {
			b.Errorf("%s left: %+v", id, a.Decisions[0])
		}
	}
}

func answeredSlotLost(b *bench) {
	l := rooms(1)
	take := b.withID("holder", weir.Charge{Key: "room", Limit: l, Cost: 1})
	d := b.amend(take, false)
	b.want(d, weir.Decision{Outcome: weir.Refused, Remaining: 1, RetryAfter: time.Second})
	b.repeats(take, false)
	if !enter(b, l, "room", "next").Allowed() {
		b.Error("the slot of a holder who was refused is taken")
	}
	b.amend(take, true)
	b.remains("both are there", "room", l, 0)
}

func answeredUnbooked(b *bench) {
	for _, l := range limits() {
		if !bookable(l) {
			continue
		}
		key := "booked " + l.Algorithm.String()
		b.charge(key, l, 10)
		before := b.charge(key, l, 0)
		take := about(weir.KindTake, key, weir.Charge{Key: key, Limit: l, Cost: 3})
		if take.MaxWait = time.Minute; l.Algorithm.Traits().Delays {
			continue
		}
		if b.take(take); take.Decisions[0].Delay == 0 {
			b.Fatalf("%v: %+v", l, take.Decisions)
		}
		b.amend(take, false)
		if after := b.charge(key, l, 0); after != before {
			b.Errorf("%v: a cancelled booking left a trace:\n%+v\n%+v", l, before, after)
		}
	}
}

func answeredClosed(b *bench) {
	for _, l := range limits() {
		for _, kind := range []weir.Kind{weir.KindSettle, weir.KindRelease, weir.KindRefund} {
			id := kind.String() + l.Algorithm.String()
			take := b.withID(id, weir.Charge{Key: id, Limit: l, Cost: 4})
			b.take(about(kind, id, weir.Charge{Key: id, Limit: l, Cost: 3}))
			before := b.charge(id, l, 0)
			for _, granted := range []bool{true, false} {
				if d := b.amend(take, granted); d != take.Decisions[0] {
					b.Errorf("%s: amended: %+v, was %+v", id, d, take.Decisions[0])
				}
			}
			if after := b.charge(id, l, 0); after != before {
				b.Errorf("%s: amended after that: %+v, was %+v", id, after, before)
			}
		}
	}
}

func answeredAndCharged(b *bench) {
	for _, algorithm := range counting() {
		limit := weir.Per(10, 10*time.Second)
		limit.ChargeRefused = true
		l := of(algorithm, limit)
		for _, told := range []weir.Outcome{weir.Refused, weir.NotCharged} {
			for _, first := range []int64{4, 8} {
				key := fmt.Sprint(algorithm, told, first)
				b.charge(key, l, first)
				take := b.withID(key, weir.Charge{Key: key, Limit: l, Cost: 4})
				a := amendment(take, false)
				a.Decisions[0].Outcome = told
				b.take(a)
				want := 10 - first
				if told == weir.Refused {
					want = max(0, want-4)
				}
				b.remains(key, key, l, want)
			}
		}
	}
}

// answeredFar amends a take to more than can be charged beyond the limit. Only the
// charged units are refunded.
func answeredFar(b *bench) {
	for _, l := range limits() {
		if l.Algorithm.Traits().Windows {
			continue
		}
		key := "far " + l.Algorithm.String()
		b.charge(key, l, 5)
		take := b.withID(key, weir.Charge{Key: key, Limit: l, Cost: 50})
		if d := b.amend(take, true); d.Granted != 15 || d.Remaining != 0 {
			b.Errorf("%v: %+v", l, d)
		}
		again := again(take)
		if b.take(again); again.Decisions[0].Granted != 50 {
			b.Errorf("%v: repeated: %+v", l, again.Decisions[0])
		}
		release := about(weir.KindRelease, key, take.Charges...)
		if b.take(release); release.Decisions[0].Granted != 15 || release.Decisions[0].Remaining != 5 {
			b.Errorf("%v: released: %+v", l, release.Decisions[0])
		}
	}
}

func notAmended(b *bench) {
	l := weir.PerHour(10).MustCompile()
	take := b.withID("id", weir.Charge{Key: "key", Limit: l, Cost: 2})
	other := amendment(take, true)
	other.Charges = []weir.Charge{{Key: "key", Limit: l, Cost: 3}}
	nameless, beyond, negative := amendment(take, true), amendment(take, true), amendment(take, false)
	nameless.ID, beyond.Decisions[0].Granted, negative.Decisions[0].RetryAfter = "", weir.MaxCost+1, -1
	b.taker.Take(context.Background(), []*weir.Act{other, nameless, beyond, negative})
	if !errors.Is(other.Err, weir.ErrIDReused) {
		b.Errorf("amended with other content: %v", other.Err)
	}
	for a, field := range map[*weir.Act]string{nameless: "id", beyond: "decisions[0].granted", negative: "decisions[0].retry_after"} {
		var invalid *weir.InvalidError
		if !errors.As(a.Err, &invalid) || invalid.Path() != field {
			b.Errorf("%s: %v", field, a.Err)
		}
	}
	b.remains("not amended", "key", l, 8)
}
