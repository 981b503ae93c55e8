// Package gate is what the doors of a server have in common: they ask a limiter
// once for each request, within a bound of time, hold places while the request is
// served, and may correct the charge once it is done.
package gate

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
)

// DefaultTimeout is how long a request may wait for its decision by default.
const DefaultTimeout = 250 * time.Millisecond

// A Gate asks limiters. The zero value has no prefix and [DefaultTimeout], and logs
// nothing. It must not be copied.
type Gate struct {
	Prefix  string // stands before every key
	Timeout time.Duration
	// Logger receives a line when decisions begin to fail, and one when they are
	// reached again.
	Logger  *slog.Logger
	trouble trouble
}

// Take charges the cost, all or none and at once, and returns the decided act.
// A cost outside of the contract becomes the nearest within. Nobody leaves again,
// so that concurrency limits are an error: see [Gate.Enter].
func (g *Gate) Take(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(weir.KindTake, limiter, key, cost)
	act.Immediate = true
	g.ask(ctx, limiter, act)
	return act
}

// Charge is Take for those of the limits that count units: none of them, and
// nothing is asked.
func (g *Gate) Charge(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(weir.KindTake, limiter, key, cost)
	act.Immediate = true
	units := act.Charges[:0]
	for _, charge := range act.Charges {
		if charge.Limit.Algorithm != weir.Concurrency {
			units = append(units, charge)
		}
	}
	act.Charges, act.Decisions = units, act.Decisions[:len(units)]
	if len(units) > 0 {
		g.ask(ctx, limiter, act)
	}
	return act
}

// hold is Take with a place under each concurrency limit, which a request takes
// whatever it costs. The act has an ID if there are such limits.
func (g *Gate) hold(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(weir.KindTake, limiter, key, cost)
	act.Immediate = true
	for i := range act.Charges {
		if charge := &act.Charges[i]; charge.Limit.Algorithm == weir.Concurrency {
			act.ID, act.NewID, charge.Cost = rand.Text(), true, 1
		}
	}
	g.ask(ctx, limiter, act)
	return act
}

func (g *Gate) act(kind weir.Kind, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	return limiter.Act(kind, g.Prefix+Bounded(key), within(cost))
}

// Places reports whether some of the limiter's limits have places to hold.
func Places(limiter *weir.Limiter) bool {
	_, ok := lease(limiter.Act(weir.KindTake, "", 0))
	return ok
}

// lease is the shortest of the leases that an act takes.
func lease(act *weir.Act) (shortest time.Duration, ok bool) {
	for i := range act.Charges {
		limit := act.Charges[i].Limit
		if limit.Algorithm == weir.Concurrency && (!ok || limit.Period < shortest) {
			shortest, ok = limit.Period, true
		}
	}
	return shortest, ok
}

// correct makes the charge of an act without ID that was granted what it should
// have been. What no store has charged cannot be given back.
func (g *Gate) correct(ctx context.Context, limiter *weir.Limiter, act *weir.Act, cost int64) error {
	more := within(cost) - act.Charges[0].Cost
	if more == 0 || more < 0 && act.Decisions[0].At == 0 {
		return nil
	}
	correction := &weir.Act{Kind: weir.KindRecord, Decisions: make([]weir.Decision, len(act.Charges))}
	if more < 0 {
		correction.Kind = weir.KindRefund
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
	g.trouble.note(g.Logger, act.Err)
}

func within(cost int64) int64 { return min(max(cost, 0), weir.MaxCost) }
