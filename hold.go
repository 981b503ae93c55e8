package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// A Hold is the result of [Limiter.Hold]: the estimate that it charged and the slots
// that it took, or the refusal. Its calls continue for up to a second after their context has
// ended, so the caller of a client that has left can settle and release as usual. It is
// safe for concurrent use.
type Hold struct {
	limiter  *Limiter
	key, id  string
	decision Decision
	closed   atomic.Bool
}

// Hold charges an estimate of a cost that is known only afterwards (model
// tokens, bytes), and takes a slot under each concurrency limit. It is granted
// under all limits or refused; OK and Decision say which. Settle corrects the
// estimate once the cost is known, and Release refunds all of it.
//
// An estimate that is neither settled nor released stays charged and drains like any other
// charge. A slot is free again when its lease, the limit's Period, ends. The estimate can
// be settled for d, which is at most [MaxWait], and for at least ten minutes. For slots alone,
// use an estimate of 1 and a d of 0.
//
// An error means that no decision was reached. After an [ErrAmbiguous] the
// estimate may have been charged.
func (l *Limiter) Hold(ctx context.Context, key string, estimate int64, d time.Duration) (*Hold, error) {
	c := l.begin(kindTake, key, estimate)
	defer l.end(c)
	c.act.ID, c.act.NewID, c.act.Hold = rand.Text(), true, d
	c.act.Scope = algo.Scope{Owner: l.owner(key), Asks: strconv.FormatInt(estimate, 10)}
	for i := range c.act.Charges {
		if charge := &c.act.Charges[i]; algo.TraitsOf(charge.Limit.Algorithm).HoldsSlots {
			charge.Cost = min(charge.Cost, 1)
		}
	}
	h := &Hold{limiter: l, key: key, id: c.act.ID}
	if err := l.ask(ctx, c, &h.decision); err != nil {
		return nil, err
	}
	return h, nil
}

// OK reports whether the estimate was charged and the slots were taken.
func (h *Hold) OK() bool { return h.decision.Allowed() }

// Decision returns the decision of the strictest limit.
func (h *Hold) Decision() Decision { return h.decision }

// ID returns the name of the hold in the store. It is random, but no secret.
func (h *Hold) ID() string { return h.id }

// Settle replaces the estimate by the actual cost. It refunds the difference, or charges
// it even if it does not fit, up to one full drain beyond the limit. It also frees the
// slots. The decision of the strictest limit says how many units remain.
//
// A Settle that failed can be repeated with the same cost, and happens once.
// After another Settle the error is an [ErrSettled], after a Release an
// [ErrReleased]. For a hold that was refused or has expired it is an [ErrUnknownID].
//
// One number is the actual cost under all limits. For a hold of [Together] there may be one
// number for each of its costs, in their order.
func (h *Hold) Settle(ctx context.Context, actual ...int64) (Decision, error) {
	costs := 1
	if parts := h.limiter.parts; parts != nil {
		costs = int(parts[len(parts)-1].number) + 1
	}
	if len(actual) != 1 && len(actual) != costs {
		return Decision{}, invalid("actual", fmt.Sprint(len(actual), " numbers"), fmt.Sprintf("one number, or one for each of %d costs", costs))
	}
	c := h.limiter.begin(kindSettle, h.key, 0)
	defer h.limiter.end(c)
	for i := range c.act.Charges {
		c.act.Charges[i].Cost = actual[0]
		if len(actual) > 1 {
			c.act.Charges[i].Cost = actual[h.limiter.parts[i].number]
		}
		if algo.TraitsOf(c.act.Charges[i].Limit.Algorithm).HoldsSlots {
			c.act.Charges[i].Cost = 0
		}
	}
	return h.ask(ctx, c)
}

// Release refunds the units that were charged, as far as they still count, and frees
// the slots. It does nothing for a hold that was refused or released before, or after
// a Settle, so it can be deferred. That is also so if the Settle failed, because the cost
// arose all the same. If a store in Redis has kept the release because Redis is late or
// unreachable, it is delivered later, and the error is nil.
func (h *Hold) Release(ctx context.Context) error {
	if !h.OK() || h.closed.Load() {
		return nil
	}
	c := h.limiter.begin(kindRelease, h.key, 0)
	defer h.limiter.end(c)
	if _, err := h.ask(ctx, c); !kept(err) {
		return err
	}
	h.closed.Store(true)
	return nil
}

// Renew extends the leases of the slots to d from now, or to the limit's Period if d is 0.
// It also extends the time in which the hold can be settled. The error is an
// [ErrUnknownID] if a lease has ended.
func (h *Hold) Renew(ctx context.Context, d time.Duration) error {
	c := h.limiter.begin(kindRenew, h.key, 0)
	defer h.limiter.end(c)
	c.act.Hold = d
	_, err := h.ask(ctx, c)
	return err
}

// ask puts a question about the hold, and notes what closes it.
func (h *Hold) ask(ctx context.Context, c *call) (d Decision, err error) {
	if !h.OK() {
		return Decision{}, fmt.Errorf("weir: %v: %w", c.act.Kind, ErrUnknownID)
	}
	c.act.ID = h.id
	c.act.Scope = algo.Scope{Owner: h.limiter.owner(h.key), Asks: asks(c.act.Charges)}
	ctx, done := h.limiter.outlive(ctx)
	defer done()
	err = h.limiter.ask(ctx, c, &d)
	if c.act.Kind == kindSettle && !errors.Is(err, ErrInvalid) || c.act.Kind == kindRelease && err == nil {
		h.closed.Store(true)
	}
	return d, err
}

// asks says what an act about a hold asks for, for the store.
func asks(charges []Charge) string {
	text := make([]byte, 0, 32)
	for i := range charges {
		text = append(strconv.AppendInt(text, charges[i].Cost, 10), ' ')
	}
	return string(text)
}

// afterlife is the time for which calls that end a charge continue after their caller has
// left.
const afterlife = time.Second

// outlive returns a context that ends an afterlife later than ctx, or never if the store ends each
// call sooner, and a function that releases it.
func (l *Limiter) outlive(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	if store, found := l.taker.(patientTaker); found && store.Patience() <= afterlife {
		return context.WithoutCancel(ctx), func() {}
	}
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(afterlife, end) })
	return longer, func() {
		stop()
		end()
	}
}
