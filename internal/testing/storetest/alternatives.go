package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

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

func badAlternatives(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	refused := weir.Limit{Count: 5, Period: time.Second, ChargeRefused: true}.MustCompile()
	window := weir.Limit{Algorithm: weir.FixedWindow, Count: 5, Period: time.Second}.MustCompile()
	for name, c := range map[string]struct {
		change func(*weir.Act)
		field  string
	}{
		"groups out of order":       {func(a *weir.Act) { a.Charges[0].Group = 1 }, "charges[1].group"},
		"alternatives out of order": {func(a *weir.Act) { a.Charges[0].Alt = 2 }, "charges[1].alt"},
		"booked ahead":              {func(a *weir.Act) { a.MaxWait = time.Second }, "max_wait"},
		"charges refused":           {func(a *weir.Act) { a.Charges[1].Limit = refused }, "charges[1].limit"},
		"another hash tag":          {func(a *weir.Act) { a.Charges[1].HashTag = "" }, "charges[1].hash_tag"},
		"record":                    {func(a *weir.Act) { a.Kind = acts.KindRecord }, "charges[0].alt"},
		"refund without an id": {func(a *weir.Act) {
			a.Kind, a.Charges[0].At, a.Charges[1].At, a.Charges[2].At = acts.KindRefund, 1, 1, 1
		}, "charges[0].alt"},

		"the first guaranteed":                   {func(a *weir.Act) { a.Charges[0].Guaranteed = true }, "charges[0].guaranteed"},
		"the first of an alternative guaranteed": {func(a *weir.Act) { a.Charges[1].Guaranteed = true }, "charges[1].guaranteed"},
		"guaranteed and keeps":                   {func(a *weir.Act) { a.Charges[2].Guaranteed, a.Charges[2].Keep = true, 1 }, "charges[2].guaranteed"},
		"another algorithm guaranteed":           {func(a *weir.Act) { a.Charges[2].Guaranteed, a.Charges[2].Limit = true, window }, "charges[2].guaranteed"},
	} {
		a := NewAct(alt("one", l, 1, 0, 0), alt("two", l, 1, 0, 1), alt("three", l, 1, 0, 1))
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

// amendedToNothing amends a take whose answer was that no alternative was evaluated. The amendment
// grants nothing, and the same take, repeated, is granted nothing either.
func amendedToNothing(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	take := func(kind weir.Kind, id string) *weir.Act {
		a := NewAct(alt("one", l, 2, 0, 0), alt("two", l, 2, 0, 1))
		a.Kind, a.ID, a.Scope.Owner = kind, id, "owner"
		return a
	}
	for id, first := range map[string][]*weir.Act{"known": {take(acts.KindTake, "known")}, "unknown": nil} {
		b.take(first...)
		amend, repeat := take(acts.KindAmend, id), take(acts.KindTake, id)
		b.take(amend)
		if b.take(repeat); amend.Allowed() || repeat.Allowed() {
			b.Errorf("%s: amended: %v, repeated: %v", id, amend.Decisions, repeat.Decisions)
		}
		if x, y := b.left("one", l), b.left("two", l); x != 5 || y != 5 {
			b.Errorf("%s: %d and %d left", id, x, y)
		}
	}
}

// guaranteeBeyondTheBound: units that a guaranteed charge was granted beyond its limit's bound were
// not charged, so that they are not given back.
func guaranteeBeyondTheBound(b *bench) {
	class, budget := weir.PerSecond(1000).MustCompile(), weir.Limit{Count: 5, Period: time.Hour}.MustCompile()
	about := func(kind weir.Kind, id string, cost int64) *weir.Act {
		a := NewAct(alt("class", class, cost, 0, 0), alt("budget", budget, cost, 0, 0))
		a.Kind, a.ID, a.Scope.Owner, a.Charges[1].Guaranteed = kind, id, "owner", true
		return a
	}
	level := func() weir.Decision {
		a := NewAct(alt("budget", budget, 0, 0, 0))
		b.take(a)
		return a.Decisions[0]
	}
	b.take(about(acts.KindTake, "first", 8))
	want := level()
	for kind, cost := range map[weir.Kind]int64{acts.KindRelease: 8, acts.KindRefund: 8, acts.KindSettle: 0} {
		take, end := about(acts.KindTake, kind.String(), 8), about(kind, kind.String(), cost)
		if b.take(take, end); take.Decisions[1].Granted != 8 {
			b.Errorf("%v: granted %v", kind, take.Decisions)
		}
		if got := level(); got != want {
			b.Errorf("after a %v: %v, before the take %v", kind, got, want)
		}
	}
}

// amendedRefusal: units that a refusal was charged go back as those of a grant do.
func amendedRefusal(b *bench) {
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket, weir.LeakyBucket} {
		l := (&weir.Limit{Algorithm: algorithm, Count: 6, Period: time.Minute, ChargeRefused: true}).MustCompile()
		take := NewAct(weir.Charge{Key: "refused", Limit: l, Cost: 3})
		take.ID, take.Scope.Owner = "refused", "owner"
		for _, key := range []string{"refused", "other"} {
			b.charge(key, l, 5)
		}
		b.take(take)
		b.clock.Advance(5 * time.Second)
		take.Kind, take.Decisions[0] = acts.KindAmend, weir.Decision{Outcome: weir.Granted}
		b.take(take)
		if got, want := b.charge("refused", l, 0), b.charge("other", l, 0); got != want {
			b.Errorf("%v: %v, without the refusal %v", l, got, want)
		}
	}
}
