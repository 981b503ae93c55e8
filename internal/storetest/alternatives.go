package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// altCases have the contract's sentences about acts with alternatives.
var altCases = []testCase{
	{"the first alternative that fits is granted", firstThatFits},
	{"an alternative is charged as a whole", wholeAlternative},
	{"groups see what earlier ones take", laterGroups},
	{"an act waits for the soonest alternative of its slowest group", soonest},
	{"a peek evaluates all alternatives", peekAlternatives},
	{"an id belongs to the alternative that was granted", alternativeID},
	{"an amendment moves a charge to another alternative", amendedAlternative},
	{"a holder has a slot of one alternative", slotOfAlternative},
	{"best effort takes the alternative that has most", bestAlternative},
	{"alternatives that cannot be decided are an error", badAlternatives},
}

// alt returns a charge of an alternative of a group.
func alt(key string, l *weir.Limit, cost int64, group, alt uint8) weir.Charge {
	return weir.Charge{Key: key, HashTag: "alternatives", Limit: l, Cost: cost, Group: group, Alt: alt}
}

// left is how many units of the key of a charge remain.
func (b *bench) left(key string, l *weir.Limit) int64 {
	b.Helper()
	a := NewAct(weir.Charge{Key: key, HashTag: "alternatives", Limit: l})
	b.take(a)
	return a.Decisions[0].Remaining
}

func outcomes(a *weir.Act) (all []weir.Outcome) {
	for _, d := range a.Decisions {
		all = append(all, d.Outcome)
	}
	return all
}

func (b *bench) outcomes(a *weir.Act, want ...weir.Outcome) {
	b.Helper()
	if got := outcomes(a); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("%v: %v, want %v", a.Charges, got, want)
	}
	if allowed := a.Allowed(); allowed != (weir.Strictest(a.Charges, a.Decisions) >= 0 && a.Decisions[weir.Strictest(a.Charges, a.Decisions)].Allowed()) {
		b.Errorf("%v: allowed %v, but the strictest is %d of %v", a.Charges, allowed, weir.Strictest(a.Charges, a.Decisions), a.Decisions)
	}
	for _, d := range a.Decisions {
		if d.Outcome == weir.NotEvaluated && d != (weir.Decision{Remaining: d.Remaining}) {
			b.Errorf("not evaluated, but %+v", d)
		}
	}
}

func firstThatFits(b *bench) {
	for _, l := range limits() {
		one, two := fmt.Sprint("one ", l), fmt.Sprint("two ", l)
		for i, want := range [][]weir.Outcome{
			{weir.Granted, weir.NotEvaluated}, {weir.NotEvaluated, weir.Granted}, {weir.NotEvaluated, weir.Granted}, {weir.Refused, weir.Refused},
		} {
			a := NewAct(alt(one, l, 6, 1, 0), alt(two, l, 5, 1, 1))
			b.take(a)
			b.outcomes(a, want...)
			if i == 1 && (a.Decisions[1].Granted != 5 || a.Decisions[1].Remaining != 5) {
				b.Errorf("%v: %+v", l, a.Decisions)
			}
		}
		if x, y := b.left(one, l), b.left(two, l); x != 4 || y != 0 {
			b.Errorf("%v: %d and %d left, want 4 and 0", l, x, y)
		}
	}
}

// wholeAlternative has two limits in the first alternative, one of which is spent.
func wholeAlternative(b *bench) {
	for _, l := range limits() {
		key := func(name string) string { return fmt.Sprint(name, " ", l) }
		b.take(NewAct(alt(key("spent"), l, 10, 0, 0)))
		take := func() *weir.Act {
			a := NewAct(alt(key("pool"), l, 4, 0, 0), alt(key("spent"), l, 1, 0, 0), alt(key("other"), l, 4, 0, 2))
			b.take(a)
			return a
		}
		for range 2 {
			b.outcomes(take(), weir.NotEvaluated, weir.NotEvaluated, weir.Granted)
		}
		a := take()
		b.outcomes(a, weir.NotCharged, weir.Refused, weir.Refused)
		if a.Decisions[0].Remaining != 10 || b.left(key("pool"), l) != 10 || b.left(key("other"), l) != 2 {
			b.Errorf("%v: charged for nothing: %+v", l, a.Decisions)
		}
	}
}

// laterGroups has a plain charge and two groups ask for one key.
func laterGroups(b *bench) {
	for _, l := range limits() {
		pool, spare := fmt.Sprint("pool ", l), fmt.Sprint("spare ", l)
		take := func(cost int64) *weir.Act {
			a := NewAct(alt(pool, l, 1, 0, 0), alt(pool, l, cost, 1, 0), alt(spare, l, 1, 1, 1), alt(pool, l, cost, 2, 0), alt(spare, l, 1, 2, 1))
			b.take(a)
			return a
		}
		b.outcomes(take(5), weir.Granted, weir.Granted, weir.NotEvaluated, weir.NotEvaluated, weir.Granted)
		b.outcomes(take(1), weir.Granted, weir.Granted, weir.NotEvaluated, weir.Granted, weir.NotEvaluated)
		b.outcomes(take(1), weir.Granted, weir.NotEvaluated, weir.Granted, weir.NotEvaluated, weir.Granted)
		if a := take(1); a.Allowed() || a.Decisions[0].Outcome != weir.Refused || weir.Strictest(a.Charges, a.Decisions) != 0 {
			b.Errorf("%v: a plain charge of a spent key: %v", l, a.Decisions)
		}
	}
}

func soonest(b *bench) {
	fast, slow := of(weir.GCRA, weir.Per(10, 10*time.Second)), of(weir.GCRA, weir.Per(10, 100*time.Second))
	b.take(NewAct(alt("fast", fast, 10, 0, 0)))
	b.take(NewAct(alt("slow", slow, 10, 0, 0)))
	take := func() *weir.Act {
		a := NewAct(
			alt("fast", fast, 2, 1, 0), alt("slow", slow, 1, 1, 0), // after 10 s
			alt("fast", fast, 3, 1, 1),  // after 3 s
			alt("fast", fast, 11, 1, 2), // never
			alt("slow", slow, 2, 3, 0),  // after 20 s
			alt("fast", fast, 1, 3, 1),  // after 4 s, beside the other group
		)
		b.take(a)
		return a
	}
	a := take()
	b.outcomes(a, weir.Refused, weir.Refused, weir.Refused, weir.Refused, weir.Refused, weir.Refused)
	for i, want := range []time.Duration{2, 10, 3, 0, 20, 4} {
		if want *= time.Second; want == 0 {
			want = weir.Never
		}
		if a.Decisions[i].RetryAfter != want {
			b.Errorf("charge %d: %v, want retry after %v", i, a.Decisions[i], want)
		}
	}
	if i := weir.Strictest(a.Charges, a.Decisions); i != 5 {
		b.Errorf("charge %d speaks for the act", i)
	}
	b.clock.Advance(4*time.Second - time.Microsecond)
	b.outcomes(take(), weir.NotEvaluated, weir.NotEvaluated, weir.NotCharged, weir.NotEvaluated, weir.Refused, weir.Refused)
	b.clock.Advance(time.Microsecond)
	b.outcomes(take(), weir.NotEvaluated, weir.NotEvaluated, weir.Granted, weir.NotEvaluated, weir.NotEvaluated, weir.Granted)
	never := NewAct(alt("fast", fast, 11, 0, 0), alt("slow", slow, 11, 0, 1))
	if b.take(never); weir.Strictest(never.Charges, never.Decisions) != 0 || never.Decisions[0].RetryAfter != weir.Never {
		b.Errorf("%v", never.Decisions)
	}
}

func peekAlternatives(b *bench) {
	for _, l := range limits() {
		one, two := fmt.Sprint("one ", l), fmt.Sprint("two ", l)
		b.take(NewAct(alt(one, l, 8, 0, 0)))
		b.take(NewAct(alt(two, l, 3, 0, 0)))
		a := NewAct(alt(one, l, 0, 0, 0), alt(two, l, 0, 0, 1), alt(one, l, 0, 0, 2))
		b.take(a)
		b.outcomes(a, weir.Granted, weir.Granted, weir.Granted)
		if i := weir.Strictest(a.Charges, a.Decisions); i != 1 || a.Decisions[1].Remaining != 7 || a.Remaining() != 7 {
			b.Errorf("%v: charge %d speaks for the peek, and %d remain: %+v", l, i, a.Remaining(), a.Decisions)
		}
	}
}

func alternativeID(b *bench) {
	for _, l := range limits() {
		for _, kind := range []weir.Kind{weir.KindRefund, weir.KindSettle, weir.KindRelease} {
			one, two := fmt.Sprint("one ", kind, l), fmt.Sprint("two ", kind, l)
			b.take(NewAct(alt(one, l, 8, 0, 0)))
			take := NewAct(alt(one, l, 3, 1, 0), alt(two, l, 3, 1, 1))
			take.ID, take.Hold = "id", time.Minute
			b.take(take)
			b.outcomes(take, weir.NotEvaluated, weir.Granted)
			repeat := again(take)
			b.take(repeat)
			b.outcomes(repeat, weir.NotEvaluated, weir.Granted)
			other := again(take)
			other.Charges = []weir.Charge{alt(one, l, 3, 1, 0), alt(two, l, 3, 2, 0)}
			if b.taker.Take(context.Background(), []*weir.Act{other}); !errors.Is(other.Err, weir.ErrIDReused) {
				b.Errorf("%v: other groups: %v", l, other.Err)
			}
			change := about(kind, "id", alt(one, l, 2, 1, 0), alt(two, l, 2, 1, 1))
			b.take(change)
			b.outcomes(change, weir.NotEvaluated, weir.Granted)
			want := map[weir.Kind]int64{weir.KindRefund: 9, weir.KindSettle: 8, weir.KindRelease: 10}[kind]
			if x, y := b.left(one, l), b.left(two, l); x != 2 || y != want {
				b.Errorf("%v, %v: %d and %d left, want 2 and %d", kind, l, x, y, want)
			}
		}
	}
}

// amendedAlternative amends a take whose first alternative was granted to the second one.
func amendedAlternative(b *bench) {
	for _, l := range limits() {
		one, two := fmt.Sprint("one ", l), fmt.Sprint("two ", l)
		take := NewAct(alt(one, l, 3, 1, 0), alt(two, l, 4, 1, 1))
		take.ID = "id"
		b.take(take)
		b.outcomes(take, weir.Granted, weir.NotEvaluated)
		amend := again(take)
		amend.Kind, amend.Decisions[1] = weir.KindAmend, weir.Decision{Outcome: weir.Granted, Granted: 4}
		b.take(amend)
		b.outcomes(amend, weir.NotEvaluated, weir.Granted)
		if x, y := b.left(one, l), b.left(two, l); x != 10 || y != 6 {
			b.Errorf("%v: %d and %d left, want 10 and 6", l, x, y)
		}
		repeat := again(take)
		b.take(repeat)
		b.outcomes(repeat, weir.NotEvaluated, weir.Granted)
		b.take(about(weir.KindRelease, "id", take.Charges...))
		if x, y := b.left(one, l), b.left(two, l); x != 10 || y != 10 {
			b.Errorf("%v: %d and %d left after the release", l, x, y)
		}
	}
}

// slotOfAlternative has holders of a room with a slot that the first alternative leaves.
func slotOfAlternative(b *bench) {
	l := rooms(3)
	for i, want := range [][]weir.Outcome{
		{weir.Granted, weir.NotEvaluated}, {weir.Granted, weir.NotEvaluated}, {weir.NotEvaluated, weir.Granted}, {weir.Refused, weir.Refused},
	} {
		first, second := alt("room", l, 1, 0, 0), alt("room", l, 1, 0, 1)
		first.Keep = 1
		b.outcomes(b.withID(fmt.Sprint("holder ", i), first, second), want...)
	}
	b.take(about(weir.KindRenew, "holder 2", alt("room", l, 0, 0, 0), alt("room", l, 0, 0, 1)))
	b.take(about(weir.KindRelease, "holder 2", alt("room", l, 0, 0, 0), alt("room", l, 0, 0, 1)))
	if n := b.left("room", l); n != 1 {
		b.Errorf("%d slots left", n)
	}
	take := b.withID("holder", alt("another room", l, 1, 0, 0), alt("another room", l, 1, 0, 1))
	b.outcomes(take, weir.Granted, weir.NotEvaluated)
	amend := again(take)
	amend.Kind, amend.Decisions[0], amend.Decisions[1] = weir.KindAmend, weir.Decision{}, weir.Decision{Outcome: weir.Granted, Granted: 1}
	b.take(amend)
	b.outcomes(amend, weir.NotEvaluated, weir.Granted)
	if n := b.left("another room", l); n != 2 {
		b.Errorf("%d slots left, want 2", n)
	}
}

// bestAlternative takes up to 7 units: of the alternative that has most, or of the first.
func bestAlternative(b *bench) {
	for _, l := range limits() {
		one, two := fmt.Sprint("one ", l), fmt.Sprint("two ", l)
		for i, want := range [][2]int64{{7, 0}, {0, 7}, {3, 0}, {0, 3}, {0, 0}} {
			x, y := alt(one, l, 1, 0, 0), alt(two, l, 1, 0, 1)
			x.UpTo, y.UpTo = 7, 7
			a := NewAct(x, y)
			if b.take(a); a.Decisions[0].Granted != want[0] || a.Decisions[1].Granted != want[1] {
				b.Errorf("%v, ask %d: %v, want %d", l, i, a.Decisions, want)
			}
		}
	}
}

func badAlternatives(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	refused := weir.Limit{Count: 5, Period: time.Second, ChargeRefused: true}.MustCompile()
	for name, c := range map[string]struct {
		change func(*weir.Act)
		field  string
	}{
		"groups out of order":       {func(a *weir.Act) { a.Charges[0].Group = 1 }, "charges[1].group"},
		"alternatives out of order": {func(a *weir.Act) { a.Charges[0].Alt = 2 }, "charges[1].alt"},
		"booked ahead":              {func(a *weir.Act) { a.MaxWait = time.Second }, "max_wait"},
		"charges refused":           {func(a *weir.Act) { a.Charges[1].Limit = refused }, "charges[1].limit"},
		"another hash tag":          {func(a *weir.Act) { a.Charges[1].HashTag = "" }, "charges[1].hash_tag"},
		"record":                    {func(a *weir.Act) { a.Kind = weir.KindRecord }, "charges[0].alt"},
		"refund without an id":      {func(a *weir.Act) { a.Kind, a.Charges[0].At, a.Charges[1].At = weir.KindRefund, 1, 1 }, "charges[0].alt"},
	} {
		a := NewAct(alt("one", l, 1, 0, 0), alt("two", l, 1, 0, 1))
		c.change(a)
		b.taker.Take(context.Background(), []*weir.Act{a})
		var invalid *weir.InvalidError
		if !errors.As(a.Err, &invalid) || invalid.Path() != c.field {
			b.Errorf("%s: %v", name, a.Err)
		}
	}
	if x, y := b.left("one", l), b.left("two", l); x != 5 || y != 5 {
		b.Errorf("bad acts charged: %d and %d left", x, y)
	}
}
