package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// idCases have the contract's sentences about IDs and holds.
var idCases = []testCase{
	{"an id that was made for a take is not kept if that is refused", notRepeated},
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

// notRepeated refuses takes whose IDs were made for them: a repeat with such an ID is
// decided again.
func notRepeated(b *bench) {
	for _, l := range limits() {
		b.charge("new", l, 10)
		for _, granted := range []bool{false, true, true} {
			a := about(acts.KindTake, "new "+l.Algorithm.String(), weir.Charge{Key: "new", Limit: l, Cost: 1})
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
