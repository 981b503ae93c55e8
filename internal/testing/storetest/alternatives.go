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
