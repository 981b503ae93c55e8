package remote

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/outage"
)

// Stats are counts since the Remote was created.
type Stats struct {
	// Calls counts the calls of the store.
	Calls calls.Stats
	// Local, Allowed, Denied and Errors count the acts decided by each policy.
	Local, Allowed, Denied, Errors int64
	// Deadline, Silence and Refusal count them by cause: the call's time had passed, the
	// store was silent, or it replied that it cannot decide or broke the connection.
	Deadline, Silence, Refusal int64
	// Left counts acts that had no decision when their callers had left.
	Left int64
	// Late counts acts decided by policy whose replies came afterwards, Reconciled those
	// whose replies agreed with the answer, or that the store has amended.
	Late, Reconciled int64
	// Refunded counts units refunded that the store charged and the caller was not granted.
	Refunded int64
	// Overgranted counts units granted from local shares that the store refused.
	Overgranted int64
	// Recorded counts units granted from local shares that the store has recorded.
	Recorded int64
	// Doubtful counts units granted from local shares that the store may not have charged,
	// because a reply was lost or MaxKeys reached.
	Doubtful int64
	// Undelivered counts ends of takes that the store had not acknowledged when it forgot their
	// IDs.
	Undelivered int64
	// Outstanding is the number of keys, IDs, refunds and withdrawals that are to be reconciled
	// now, Withdrawals how many of them are takes to be withdrawn.
	Outstanding, Withdrawals int
}

// counts are the figures of Stats.
type counts struct {
	local, allowed, denied, errors         atomic.Int64
	deadline, silence, refusal, left       atomic.Int64
	late, reconciled, refunded, overgrants atomic.Int64
	recorded, doubtful, undelivered        atomic.Int64
}

// reason counts why the store did not decide an act.
func (c *counts) reason(err error) {
	var out *outage.Error
	switch {
	case errors.As(err, &out) && out.Silent():
		c.silence.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		c.deadline.Add(1)
	default:
		c.refusal.Add(1)
	}
}

// Stats returns the counts.
func (r *Remote) Stats() Stats {
	c := &r.counts
	outstanding, withdrawals := 0, 0
	r.ledgers.each(func(l *ledger) {
		all, some := l.outstanding()
		outstanding, withdrawals = outstanding+all, withdrawals+some
	})
	return Stats{
		Calls: r.calls.Stats(),
		Local: c.local.Load(), Allowed: c.allowed.Load(), Denied: c.denied.Load(), Errors: c.errors.Load(),
		Deadline: c.deadline.Load(), Silence: c.silence.Load(), Refusal: c.refusal.Load(), Left: c.left.Load(),
		Late: c.late.Load(), Reconciled: c.reconciled.Load(), Refunded: c.refunded.Load(), Overgranted: c.overgrants.Load(),
		Recorded: c.recorded.Load(), Doubtful: c.doubtful.Load(), Undelivered: c.undelivered.Load(), Outstanding: outstanding, Withdrawals: withdrawals,
	}
}

// Ask asks the store for a decision, under no policy.
func (r *Remote) Ask(ctx context.Context, acts []*weir.Act) { r.calls.Take(ctx, acts) }

// Outages returns the outages that last, one for each unreachable node.
func (r *Remote) Outages() []*outage.Error { return r.calls.Outages() }
