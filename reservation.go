package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A Reservation is what [Limiter.Reserve] booked, or why it did not. It is safe
// for concurrent use.
type Reservation struct {
	limiter   *Limiter
	key       string
	decision  Decision
	decisions []Decision // one a limit
	due       time.Time
	needed    time.Duration // if refused: from asking on
	cancelled atomic.Bool
}

// Reserve charges n units now and says from when on they may be used: at once,
// or up to maxWait, at most the constant [MaxWait], from now. All hosts see the
// booking, so that nobody else gets what it is about to use. If it would take
// longer under any of the limits nothing is charged, and OK is false.
//
// Limits can be booked ahead if they are gcra, token_bucket or leaky_bucket;
// with others a maxWait above 0 is an [*InvalidError]. A maxWait of 0 means now
// or not at all. Places of a concurrency limit are not reserved but held, with
// Hold.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, maxWait time.Duration) (*Reservation, error) {
	c := l.begin(KindTake, key, n)
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
		case a.Charges[i].Limit.Algorithm.Traits().Delays:
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

// Decision is that of the strictest limit. Its Delay is the longest of all
// limits', as of when it was made.
func (r *Reservation) Decision() Decision { return r.decision }

// Delay is how long from now one has to wait before using what was reserved: 0
// once it is due, [Never] if the reservation is not OK.
func (r *Reservation) Delay() time.Duration {
	if !r.OK() {
		return Never
	}
	return max(0, time.Until(r.due))
}

// Cancel gives back what will not be used, as far as that harms nobody: a
// booking that is not due yet goes back whole if nothing was booked after it, and
// not at all otherwise; later, what has not drained meanwhile goes back. It
// returns how many units each limit has room for again at least.
//
// Only the first Cancel does anything, unless it failed with an [ErrNotApplied].
func (r *Reservation) Cancel(ctx context.Context) (given int64, err error) {
	if !r.OK() || r.cancelled.Swap(true) {
		return 0, nil
	}
	c := r.limiter.begin(KindRefund, r.key, 0)
	defer r.limiter.end(c)
	for i := range c.act.Charges {
		d, charge := r.decisions[i], &c.act.Charges[i]
		charge.Cost, charge.At, charge.Delay = d.Granted, d.At, d.Delay
	}
	given, err = r.limiter.askRefund(ctx, c)
	if errors.Is(err, ErrNotApplied) {
		r.cancelled.Store(false)
	}
	return given, err
}
