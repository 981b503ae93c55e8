package acts

import (
	"context"

	"github.com/weirlimit/weir"
)

// A TakerFunc is a Taker that is a function.
type TakerFunc func(context.Context, []*weir.Act)

// Take calls f.
func (f TakerFunc) Take(ctx context.Context, list []*weir.Act) { f(ctx, list) }

// Check sets the Err of each act: nil if the act is valid.
func Check(list ...*weir.Act) {
	weir.TakeValid(context.Background(), list, func(context.Context, []*weir.Act) {})
}

// Prepare clears the Err of a valid act, and decides a take that a limit with a count of 0
// refuses. It reports whether the act is decided. Stores call it first.
func Prepare(a *weir.Act) bool {
	a.Err = nil
	if a.Kind != KindTake || !anyDenied(a.Charges) || !deniedGroup(a) {
		return false
	}
	for i := range a.Charges {
		a.Decisions[i] = weir.Decision{}
		if anyDenied(a.Charges[i : i+1]) {
			a.Decisions[i] = weir.Decision{Outcome: weir.Refused, Source: SourceLimit, RetryAfter: weir.Never}
		}
	}
	return true
}

// deniedGroup reports whether each alternative of a Group has a limit with a count of 0.
func deniedGroup(a *weir.Act) bool {
	for i := 0; i < len(a.Charges); {
		every := true
		for end := GroupEnd(a, i); i < end; {
			next := AltEnd(a, i)
			every = every && anyDenied(a.Charges[i:next])
			i = next
		}
		if every {
			return true
		}
	}
	return false
}

func anyDenied(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Limit.Count == 0 && charges[i].Cost > 0 {
			return true
		}
	}
	return false
}
