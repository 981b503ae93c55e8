package override

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Take asks the wrapped Taker, for other limits where there are overrides. Keys
// without a limit charge nothing; an act that has no other keys is granted without
// asking.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	all := t.snapshot()
	if all == nil {
		t.next.Take(ctx, acts)
		return
	}
	c := call{all: all, clock: t.now}
	for _, a := range acts {
		c.apply(a)
	}
	if asked := c.asked(acts); len(asked) > 0 {
		t.next.Take(ctx, asked)
	}
	for i := range c.freed {
		c.freed[i].finish()
	}
	if c.ended {
		// Takes are to be as fast as before.
		_ = t.change(c.now, func(overrides) error { return nil })
	}
}

// A call is the state of one Take.
type call struct {
	all   overrides
	clock func() time.Time
	now   time.Time // once an override was found
	freed []freed
	ended bool // an override has ended
}

// freed is an act with keys that have no limit.
type freed struct {
	act *weir.Act
	// costs has the cost of each charge whose key has no limit, 0 for others.
	costs []int64
	// whole acts have no other keys.
	whole bool
	// done acts are not asked for.
	done bool
}

// apply puts the overrides' limits into the act.
func (c *call) apply(a *weir.Act) {
	f := freed{act: a}
	free := 0
	for i := range a.Charges {
		charge := &a.Charges[i]
		e := c.find(charge)
		if e == nil {
			continue
		}
		if e.Limit == nil {
			free++
			f.free(i)
		}
		if takes(a) || e.Limit != nil && !e.blocks() {
			charge.Limit = e.instead(charge.Limit)
		}
	}
	if free > 0 {
		f.whole = free == len(a.Charges)
		c.freed = append(c.freed, f.begin())
	}
}

// find returns the override of a charge, or nil.
func (c *call) find(charge *weir.Charge) *entry {
	e := c.all[charge.Key]
	if e == nil || charge.Limit == nil || charge.Limit.Rule() == nil {
		return nil
	}
	if c.now.IsZero() {
		c.now = c.clock()
	}
	if !c.now.Before(e.Until) {
		c.ended = true
		return nil
	}
	return e
}

// asked returns the acts that are not answered yet.
func (c *call) asked(acts []*weir.Act) []*weir.Act {
	if !slices.ContainsFunc(c.freed, func(f freed) bool { return f.done }) {
		return acts
	}
	asked, next := make([]*weir.Act, 0, len(acts)), 0
	for _, a := range acts {
		if next < len(c.freed) && c.freed[next].act == a {
			next++
			if c.freed[next-1].done {
				continue
			}
		}
		asked = append(asked, a)
	}
	return asked
}

// free notes that the i-th charge has no limit.
func (f *freed) free(i int) {
	if f.costs == nil {
		f.costs = make([]int64, len(f.act.Charges))
	}
	f.costs[i] = max(0, f.act.Charges[i].Cost)
}

// begin answers an act without any limit, and lets the free charges of others
// look, so that nothing is charged and ids go on meaning the same keys. A
// best-effort act cannot look; it is charged, under a limit without end.
func (f *freed) begin() freed {
	a := f.act
	switch {
	case !takes(a) || a.Charges[0].UpTo > 0 && !f.whole:
	case f.whole && a.Kind == weir.KindAmend:
		// Its caller is right: nothing is charged.
		f.done = true
		a.Prepare()
	case f.whole && !looks(a):
		f.done = true
		if !a.Prepare() {
			f.grant()
		}
	default:
		for i, cost := range f.costs {
			if cost > 0 {
				a.Charges[i].Cost = 0
				if a.Kind == weir.KindAmend && i < len(a.Decisions) {
					a.Decisions[i].Granted = 0
				}
			}
		}
	}
	return *f
}

// takes reports whether an act has the content of a take.
func takes(a *weir.Act) bool { return a.Kind == weir.KindTake || a.Kind == weir.KindAmend }

func looks(a *weir.Act) bool {
	return !slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return c.Cost != 0 })
}

// grant fills in the decisions of the free charges: granted if the rest of the
// act is.
func (f *freed) grant() {
	allowed := f.done || f.act.Allowed()
	for i, cost := range f.costs {
		if cost == 0 && !f.done {
			continue
		}
		d := &f.act.Decisions[i]
		*d = weir.Decision{Outcome: weir.Granted, Granted: max(cost, f.act.Charges[i].UpTo), Remaining: weir.MaxCost, At: d.At}
		if !allowed {
			d.Outcome, d.Granted = weir.NotCharged, 0
		}
		if f.done {
			d.At = 0
		}
	}
}

// finish puts the act back as it was, once it was decided.
func (f *freed) finish() {
	a := f.act
	switch {
	case f.done:
	case takes(a) && a.Charges[0].UpTo == 0:
		for i, cost := range f.costs {
			if cost > 0 {
				a.Charges[i].Cost = cost
			}
		}
		if a.Err == nil {
			f.grant()
		}
	case f.whole && !takes(a) && errors.Is(a.Err, weir.ErrUnknownID):
		// Its take was granted without the store's knowing.
		a.Err = nil
		for i := range a.Decisions {
			a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Remaining: weir.MaxCost}
		}
	}
}
