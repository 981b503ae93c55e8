package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A Holding is what [Limiter.Hold] charged ahead of knowing the cost, or the
// place that it took, or why it did not. It is safe for concurrent use.
type Holding struct {
	limiter  *Limiter
	key, id  string
	decision Decision
	closed   atomic.Bool
}

// Hold charges an estimate of a cost that is known only afterwards (model
// tokens, bytes), and takes a place under each concurrency limit. It is granted
// under all limits or refused; OK and Decision say which. Settle corrects the
// estimate once the cost is known, Release gives all of it back.
//
// An estimate that is neither settled nor released stays charged, and drains as any charge
// does; a place is free again when its lease, the limit's Period, ends. It can be
// settled for d, at most [MaxWait], and for [IDLife] at least. For a place alone
// the estimate is 1 and d is 0.
//
// The error says that no decision was reached. After an [ErrAmbiguous] the
// estimate may have been charged.
func (l *Limiter) Hold(ctx context.Context, key string, estimate int64, d time.Duration) (*Holding, error) {
	c := l.begin(KindTake, key, estimate)
	defer l.end(c)
	c.act.ID, c.act.NewID, c.act.Hold = rand.Text(), true, d
	for i := range c.act.Charges {
		if charge := &c.act.Charges[i]; charge.Limit.Algorithm.Traits().HoldsSlots {
			charge.Cost = min(charge.Cost, 1)
		}
	}
	h := &Holding{limiter: l, key: key, id: c.act.ID}
	if err := l.ask(ctx, c, &h.decision); err != nil {
		return nil, err
	}
	return h, nil
}

// OK reports whether the estimate was charged and the places were taken.
func (h *Holding) OK() bool { return h.decision.Allowed() }

// Decision is that of the strictest limit.
func (h *Holding) Decision() Decision { return h.decision }

// ID names the holding in the store: random, and no secret.
func (h *Holding) ID() string { return h.id }

// Settle replaces the estimate by the actual cost: gives back what was too much,
// or charges what was missing, even if it does not fit, up to a debt of one full
// drain. Places are free again. The decision of the strictest limit says what
// remains.
//
// A Settle that failed can be repeated with the same cost, and is done once.
// After another Settle the error is an [ErrSettled], after a Release an
// [ErrReleased]; for a holding that was refused or forgotten an [ErrUnknownID].
func (h *Holding) Settle(ctx context.Context, actual int64) (Decision, error) {
	c := h.limiter.begin(KindSettle, h.key, actual)
	defer h.limiter.end(c)
	for i := range c.act.Charges {
		if charge := &c.act.Charges[i]; charge.Limit.Algorithm.Traits().HoldsSlots {
			charge.Cost = 0
		}
	}
	return h.ask(ctx, c)
}

// Release gives back all that was charged, as far as it still counts, and frees
// the places. It does nothing for a holding that was refused or released before,
// or after a Settle, so that it can be deferred; also where that Settle failed,
// because the cost was there all the same.
func (h *Holding) Release(ctx context.Context) error {
	if !h.OK() || h.closed.Load() {
		return nil
	}
	c := h.limiter.begin(KindRelease, h.key, 0)
	defer h.limiter.end(c)
	_, err := h.ask(ctx, c)
	return err
}

// Renew extends the leases of the places to d from now, or by the limit's Period
// if d is 0, and the time in which the holding can be settled. The error is an
// [ErrUnknownID] if a lease has ended.
func (h *Holding) Renew(ctx context.Context, d time.Duration) error {
	c := h.limiter.begin(KindRenew, h.key, 0)
	defer h.limiter.end(c)
	c.act.Hold = d
	_, err := h.ask(ctx, c)
	return err
}

// ask puts a question about the holding, and notes what closes it.
func (h *Holding) ask(ctx context.Context, c *call) (d Decision, err error) {
	if !h.OK() {
		return Decision{}, fmt.Errorf("weir: %v: %w", c.act.Kind, ErrUnknownID)
	}
	c.act.ID = h.id
	err = h.limiter.ask(ctx, c, &d)
	if c.act.Kind == KindSettle && !errors.Is(err, ErrInvalid) || c.act.Kind == KindRelease && err == nil {
		h.closed.Store(true)
	}
	return d, err
}
