package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// Costs are the numbers of several meters of one piece of work, such as the requests,
// tokens and micro-dollars of a call to a language model. Each limit of a [Limiter] is
// charged the number that its Meter names; numbers that no limit names are ignored. Each
// is 0 … [MaxCost]. Without a number for "requests" that is 1.
type Costs map[string]int64

// requests is the meter of limits that name none.
const requests = "requests"

// of returns the units to charge under a limit. A holder takes one slot, whatever the work
// costs.
func (c Costs) of(l *Limit) (int64, error) {
	if l.Algorithm.Traits().HoldsSlots {
		return 1, nil
	}
	meter := cmp.Or(l.Meter, requests)
	n, given := c[meter]
	switch {
	case !given && meter == requests:
		return 1, nil
	case !given:
		return 0, invalid("costs", "without "+quoted(meter), "a number for each meter of the limits")
	case n < 0 || n > MaxCost:
		return 0, invalid("costs", quoted(meter)+" "+strconv.FormatInt(n, 10), "0 … "+strconv.Itoa(MaxCost))
	}
	return n, nil
}

// spread sets the costs of an act's charges.
func (c *call) spread(costs Costs) error {
	for i := range c.act.Charges {
		n, err := costs.of(c.act.Charges[i].Limit)
		if err != nil {
			return err
		}
		c.act.Charges[i].Cost = n
	}
	return nil
}

// HoldCosts is like [Limiter.Hold], but charges each limit the number that its
// [Limit.Meter] names. The limits of one piece of work are thus charged together or not at
// all, although each counts something else. A number that a limit needs and the costs lack
// is an [*InvalidError], and nothing is charged.
func (l *Limiter) HoldCosts(ctx context.Context, key string, estimate Costs, d time.Duration) (*Hold, error) {
	c := l.begin(KindTake, key, 0)
	defer l.end(c)
	if err := c.spread(estimate); err != nil {
		return nil, err
	}
	return l.hold(ctx, c, key, d)
}

// SettleCosts is like [Hold.Settle] for what [Limiter.HoldCosts] charged: it replaces
// each estimate by the actual number.
func (h *Hold) SettleCosts(ctx context.Context, actual Costs) (Decision, error) {
	c := h.limiter.begin(KindSettle, h.key, 0)
	defer h.limiter.end(c)
	if err := c.spread(actual); err != nil {
		return Decision{}, err
	}
	return h.settle(ctx, c)
}

// hold takes what the call charges, under a new ID.
func (l *Limiter) hold(ctx context.Context, c *call, key string, d time.Duration) (*Hold, error) {
	c.act.ID, c.act.NewID, c.act.Hold = rand.Text(), true, d
	for i := range c.act.Charges {
		if charge := &c.act.Charges[i]; charge.Limit.Algorithm.Traits().HoldsSlots {
			charge.Cost = min(charge.Cost, 1)
		}
	}
	h := &Hold{limiter: l, key: key, id: c.act.ID}
	if err := l.ask(ctx, c, &h.decision); err != nil {
		return nil, err
	}
	return h, nil
}

// settle settles the holding with the costs of the call, and frees the slots.
func (h *Hold) settle(ctx context.Context, c *call) (Decision, error) {
	for i := range c.act.Charges {
		if charge := &c.act.Charges[i]; charge.Limit.Algorithm.Traits().HoldsSlots {
			charge.Cost = 0
		}
	}
	return h.ask(ctx, c)
}
