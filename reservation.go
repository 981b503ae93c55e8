package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// A Reservation is the result of [Limiter.Reserve]: the booking, or the refusal. It is
// safe for concurrent use.
type Reservation struct {
	limiter   *Limiter
	key       string
	decision  Decision
	decisions []Decision // one for each limit
	due       time.Time
	needed    time.Duration // if refused: from asking on
	cancelled atomic.Bool
}

// Reserve charges n units now, for use at once or after a delay of at most maxWait,
// which is at most the constant [MaxWait]. All hosts see the
// booking, so no other caller gets these units. If the delay would be
// longer under any of the limits, nothing is charged and OK is false.
//
// Limits can be booked ahead if they are gcra, token_bucket or leaky_bucket.
// With other limits a maxWait above 0 is an [*InvalidError]. A maxWait of 0 means now
// or not at all. Slots of a concurrency limit cannot be reserved; use
// [Limiter.Hold].
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, maxWait time.Duration) (*Reservation, error) {
	if err := l.checkUnits(n); err != nil {
		return nil, err
	}
	c := l.begin(kindTake, key, n)
	defer l.end(c)
	c.act.MaxWait = maxWait
	if maxWait >= 0 && maxWait < time.Microsecond {
		// Stores count microseconds.
		c.act.MaxWait, c.act.Immediate = 0, true
	}
	r := &Reservation{limiter: l, key: key}
	if err := l.ask(ctx, c, &r.decision); err != nil {
		return nil, err
	}
	r.due = time.Now().Add(r.decision.Delay)
	switch {
	case r.OK():
		r.decisions = append(r.decisions, c.act.Decisions...)
	case l.options != nil:
		r.needed = r.decision.RetryAfter
	default:
		r.needed = needed(&c.act)
	}
	return r, nil
}

// needed is how long it would take until the units of a refused act may be used.
// Those of a leaky_bucket may once all that is in the queue now is out.
func needed(a *Act) time.Duration {
	longest := time.Duration(0)
	for i := range a.Decisions {
		d := &a.Decisions[i]
		wait := d.RetryAfter
		switch {
		case d.Outcome != Refused || wait == Never:
		case algo.TraitsOf(a.Charges[i].Limit.Algorithm).Delays:
			wait = d.ResetAfter
		default:
			// After the wait that is told the same act would book the rest.
			wait += a.MaxWait
		}
		longest = max(longest, wait)
	}
	return longest
}

// OK reports whether the units were charged.
func (r *Reservation) OK() bool { return r.decision.Allowed() }

// Decision returns the decision of the strictest limit. Its Delay is the longest of all
// limits, measured from the time of the decision.
func (r *Reservation) Decision() Decision { return r.decision }

// Delay returns the time from now until the reserved units may be used: 0
// once they are due, [Never] if the reservation is not OK.
func (r *Reservation) Delay() time.Duration {
	if !r.OK() {
		return Never
	}
	return max(0, time.Until(r.due))
}

// Cancel refunds units that will not be used, as far as no other caller is harmed. A
// booking that is not due yet is refunded completely if nothing was booked after it, and
// otherwise not at all. After it is due, the units that have not drained are refunded.
// Cancel returns the smallest number of units for which a limit has room again.
//
// Only the first Cancel has an effect, unless it failed with an [ErrNotApplied]. It continues
// for up to a second after ctx has ended.
func (r *Reservation) Cancel(ctx context.Context) (given int64, err error) {
	if !r.OK() || r.cancelled.Swap(true) {
		return 0, nil
	}
	ctx, done := r.limiter.outlive(ctx)
	defer done()
	c := r.limiter.begin(kindRefund, r.key, 0)
	for i := range c.act.Charges {
		d, charge := r.decisions[i], &c.act.Charges[i]
		charge.Cost, charge.At, charge.Delay = d.Granted, d.At.UnixMicro(), d.Delay
	}
	if r.limiter.alternatives() {
		c.choose(r.decision.Alternative)
	}
	// No store has charged what was granted without one.
	c.keep(func(charge *Charge) bool { return charge.At > 0 })
	switch len(c.act.Charges) {
	case 0:
		return 0, nil
	case len(r.limiter.limits):
		defer r.limiter.end(c)
	}
	given, err = r.limiter.askRefund(ctx, c)
	if errors.Is(err, ErrNotApplied) {
		r.cancelled.Store(false)
	}
	return given, err
}
