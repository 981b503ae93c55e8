package gate

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
)

// renewals is how often a place is renewed in the time that its lease lasts.
const renewals = 3

// A Request is what somebody asks who wants to enter.
type Request struct {
	Limiter *weir.Limiter
	Key     string
	// Cost is in units; what is outside of the contract becomes the nearest
	// within.
	Cost int64
	// Later says that the cost will be known only when the request leaves: one
	// of 0 is refused where not one unit is left.
	Later bool
	// Failed, if set, hears why places were not renewed. It is called by another
	// goroutine, which has ended once the request has left.
	Failed func(error)
}

// A Visit is a request that has asked to enter. If its act was granted it holds a
// place under each concurrency limit, which is renewed until it leaves.
type Visit struct {
	Act  *weir.Act // decided
	gate *Gate
	req  Request
	cost int64
	stop func() // ends the renewals; nil where there is no place
}

// Enter charges the request, all or nothing and at once. A visit that was granted
// has to leave.
func (g *Gate) Enter(ctx context.Context, r Request) *Visit {
	v := &Visit{gate: g, req: r, cost: within(r.Cost)}
	v.Act = g.hold(ctx, r.Limiter, r.Key, v.cost)
	if r.Later && v.cost == 0 && usedUp(v.Act) {
		// Only a charge is told when to come back. Should it be granted, room
		// has come up in between, and leaving gives it back.
		g.release(ctx, r, v.Act)
		v.cost = 1
		v.Act = g.hold(ctx, r.Limiter, r.Key, v.cost)
	}
	if shortest, ok := lease(v.Act); ok && v.Act.Allowed() {
		v.stop = v.renewEvery(ctx, max(shortest/renewals, time.Millisecond))
	}
	return v
}

// usedUp reports whether an act that was granted for nothing finds a limit with
// nothing left.
func usedUp(act *weir.Act) bool {
	for i := range act.Decisions {
		if act.Allowed() && act.Charges[i].Limit.Algorithm != weir.Concurrency && act.Decisions[i].Remaining == 0 {
			return true
		}
	}
	return false
}

// Holds reports whether the visit holds places.
func (v *Visit) Holds() bool { return v.stop != nil }

// Leave frees the places of a visit that was granted. The charge stays.
func (v *Visit) Leave(ctx context.Context) error { return v.LeaveAt(ctx, v.cost) }

// LeaveAt is Leave once it is known what the request has cost: the difference to
// what was charged is given back or charged, even if it does not fit. A place
// that cannot be freed is free when its lease ends.
func (v *Visit) LeaveAt(ctx context.Context, cost int64) error {
	if !v.Holds() {
		return v.gate.correct(ctx, v.req.Limiter, v.Act, cost)
	}
	v.stop()
	settled := v.gate.act(weir.KindSettle, v.req.Limiter, v.req.Key, cost)
	for i := range settled.Charges {
		if charge := &settled.Charges[i]; charge.Limit.Algorithm == weir.Concurrency {
			charge.Cost = 0
		}
	}
	return v.ask(ctx, settled)
}

// ask puts a question about what the visit holds.
func (v *Visit) ask(ctx context.Context, act *weir.Act) error {
	act.ID = v.Act.ID
	v.gate.ask(ctx, v.req.Limiter, act)
	return act.Err
}

// release frees what an act holds that is replaced by another. Where that fails
// the end of the lease does it.
func (g *Gate) release(ctx context.Context, r Request, act *weir.Act) {
	if act.ID == "" {
		return
	}
	released := g.act(weir.KindRelease, r.Limiter, r.Key, 0)
	released.ID = act.ID
	g.ask(ctx, r.Limiter, released)
}

// renewEvery renews the visit's places until the function that it returns has
// returned. Requests that are quicker than the first renewal cost no goroutine.
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
		err := v.ask(ctx, v.gate.act(weir.KindRenew, v.req.Limiter, v.req.Key, 0))
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
