package gate

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// renewals is how often a slot is renewed during its lease.
const renewals = 3

// A Request describes the charge of a request that wants to enter.
type Request struct {
	Limiter *weir.Limiter
	Key     string
	// Cost is in units; a cost outside of the bounds is clamped.
	Cost int64
	// ChargedLater says that the cost is known only when the request leaves. With a
	// Cost of 0 it is then refused if not one unit remains.
	ChargedLater bool
	// Failed, if not nil, is called when slots could not be renewed, by another
	// goroutine, which ends before the request has left.
	Failed func(error)
}

// A Visit is a request that has asked to enter. If it was granted it holds a slot under
// each concurrency limit, which is renewed until it leaves.
type Visit struct {
	Act  *weir.Act // decided
	gate *Gate
	req  Request
	cost int64
	stop func() // ends the renewals; nil without slots
}

// Enter charges the request, all or nothing and at once. A visit that was granted must
// leave.
func (g *Gate) Enter(ctx context.Context, r Request) *Visit {
	v := &Visit{gate: g, req: r, cost: clamp(r.Cost)}
	v.Act = g.hold(ctx, r.Limiter, r.Key, v.cost)
	if r.ChargedLater && v.cost == 0 && (exhausted(v.Act) || v.Act.Alternatives()) {
		// Only a refused charge has a RetryAfter, and only a charge chooses an
		// alternative. If it is granted, leaving refunds it.
		g.release(ctx, r, v.Act)
		v.cost = 1
		v.Act = g.hold(ctx, r.Limiter, r.Key, v.cost)
	}
	if shortest, ok := shortestLease(v.Act); ok && v.Act.Allowed() {
		v.stop = v.renewEvery(ctx, max(shortest/renewals, time.Millisecond))
	}
	return v
}

// exhausted reports whether an act that was granted without a charge finds a limit
// with nothing left.
func exhausted(act *weir.Act) bool {
	for i := range act.Decisions {
		if act.Allowed() && !algo.TraitsOf(act.Charges[i].Limit.Algorithm).HoldsSlots && act.Decisions[i].Remaining == 0 {
			return true
		}
	}
	return false
}

// HoldsSlots reports whether the visit holds slots.
func (v *Visit) HoldsSlots() bool { return v.stop != nil }

// Leave releases the slots of a visit that was granted. The charge stays.
func (v *Visit) Leave(ctx context.Context) error { return v.LeaveAt(ctx, v.cost) }

// LeaveAt is Leave with the final cost: it refunds or charges the difference, even if it
// does not fit. A slot that cannot be released is free when its lease ends.
func (v *Visit) LeaveAt(ctx context.Context, cost int64) error {
	if !v.HoldsSlots() {
		return v.gate.correct(ctx, v.req.Limiter, v.Act, cost)
	}
	v.stop()
	settled := v.gate.act(acts.KindSettle, v.req.Limiter, v.req.Key, cost)
	for i := range settled.Charges {
		if charge := &settled.Charges[i]; algo.TraitsOf(charge.Limit.Algorithm).HoldsSlots {
			charge.Cost = 0
		}
	}
	return v.decide(ctx, settled)
}

// decide decides an act about what the visit holds.
func (v *Visit) decide(ctx context.Context, act *weir.Act) error {
	act.ID, act.Scope = v.Act.ID, v.Act.Scope
	v.gate.decide(ctx, v.req.Limiter, act)
	return act.Err
}

// release releases what an act holds that another one replaces. If that fails, the end
// of the lease does.
func (g *Gate) release(ctx context.Context, r Request, act *weir.Act) {
	if act.ID == "" {
		return
	}
	released := g.act(acts.KindRelease, r.Limiter, r.Key, 0)
	released.ID, released.Scope = act.ID, act.Scope
	g.decide(ctx, r.Limiter, released)
}

// renewEvery renews the visit's slots until stop has returned. Requests that end before
// the first renewal cost no goroutine.
func (v *Visit) renewEvery(ctx context.Context, interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	timer := time.AfterFunc(interval, func() {
		defer close(done)
		v.renew(ctx, interval)
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-done
		}
	}
}

func (v *Visit) renew(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := v.decide(ctx, v.gate.act(acts.KindRenew, v.req.Limiter, v.req.Key, 0))
		if err != nil && v.req.Failed != nil {
			v.req.Failed(err)
		}
		if errors.Is(err, weir.ErrInvalid) {
			return // the lease has ended: nothing is left to renew
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
