// Package gate is what the doors of a server have in common: they ask a limiter
// once for each request, within a bound of time, and may correct the charge once
// the request is done.
package gate

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// DefaultTimeout is how long a request may wait for its decision by default.
const DefaultTimeout = time.Second

// A Gate asks limiters. The zero value has no prefix and [DefaultTimeout].
type Gate struct {
	Prefix  string // stands before every key
	Timeout time.Duration
}

// Take charges the cost, all or none and at once, and returns the decided act.
// A cost outside of the contract becomes the nearest within.
func (g *Gate) Take(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := limiter.Act(weir.Take, g.Prefix+Bounded(key), within(cost))
	act.Immediate = true
	g.ask(ctx, limiter, act)
	return act
}

// Look is Take for a cost of 0 that is refused where not one unit is left.
func (g *Gate) Look(ctx context.Context, limiter *weir.Limiter, key string) *weir.Act {
	act := g.Take(ctx, limiter, key, 0)
	for i := range act.Decisions {
		if act.Err == nil && act.Decisions[i].Remaining == 0 {
			// Only a charge is told when to come back. Should it be granted, room
			// has come up in between, and the correction gives it back.
			return g.Take(ctx, limiter, key, 1)
		}
	}
	return act
}

// Correct makes the charge of an act that was granted what it should have been.
// What no store has charged cannot be given back.
func (g *Gate) Correct(ctx context.Context, limiter *weir.Limiter, act *weir.Act, cost int64) error {
	more := within(cost) - act.Charges[0].Cost
	if more == 0 || more < 0 && act.Decisions[0].At == 0 {
		return nil
	}
	correction := &weir.Act{Kind: weir.Record, Decisions: make([]weir.Decision, len(act.Charges))}
	if more < 0 {
		correction.Kind = weir.Refund
	}
	for i, charge := range act.Charges {
		charge.Cost, charge.At, charge.Delay = max(more, -more), act.Decisions[i].At, act.Decisions[i].Delay
		correction.Charges = append(correction.Charges, charge)
	}
	g.ask(ctx, limiter, correction)
	return correction.Err
}

func (g *Gate) ask(ctx context.Context, limiter *weir.Limiter, act *weir.Act) {
	timeout := g.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	// A client who hangs up must not leave a charge half known; the wait is
	// bounded anyway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	limiter.Take(ctx, []*weir.Act{act})
}

func within(cost int64) int64 { return min(max(cost, 0), weir.MaxCost) }
