package override

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Take asks the next Taker, under other limits where there are overrides. Keys without a
// limit charge nothing; an act with no other keys is granted without asking.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	all := l.snapshot()
	if all == nil {
		l.next.Take(ctx, acts)
		return
	}
	c := call{all: all, clock: l.now}
	for _, a := range acts {
		c.apply(a)
	}
	if rest := c.undecided(acts); len(rest) > 0 {
		l.next.Take(ctx, rest)
	}
	for i := range c.freed {
		c.freed[i].finish()
	}
	if c.ended {
		// Without it, later takes are faster.
		_ = l.change(c.now, func(overrides) error { return nil })
	}
}

// A call is the state of one Take.
type call struct {
	all   overrides
	clock func() time.Time
	now   time.Time // set once an override was found
	freed []freed
	ended bool // an override has ended
}

// freed is an act with keys whose override is no limit.
type freed struct {
	act *weir.Act
	// costs has the cost of each such charge, 0 for the others.
	costs []int64
	whole bool // the act has no other keys
	done  bool // the act was decided here
}

// apply replaces the limits of the act's charges.
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

// undecided returns the acts that were not decided here.
func (c *call) undecided(acts []*weir.Act) []*weir.Act {
	if !slices.ContainsFunc(c.freed, func(f freed) bool { return f.done }) {
		return acts
	}
	rest, next := make([]*weir.Act, 0, len(acts)), 0
	for _, a := range acts {
		if next < len(c.freed) && c.freed[next].act == a {
			next++
			if c.freed[next-1].done {
				continue
			}
		}
		rest = append(rest, a)
	}
	return rest
}

// free notes that the i-th charge has no limit.
func (f *freed) free(i int) {
	if f.costs == nil {
		f.costs = make([]int64, len(f.act.Charges))
	}
	f.costs[i] = max(0, f.act.Charges[i].Cost)
}

// begin grants an act without any limit, and makes peeks of the free charges of other
// acts: nothing is charged, and IDs still belong to the same keys. An up-to act cannot
// peek; it is charged, under a limit that is practically infinite.
func (f *freed) begin() freed {
	a := f.act
	switch {
	case !takes(a) || a.Charges[0].UpTo > 0 && !f.whole:
	case f.whole && a.Kind == weir.KindAmend:
		// Nothing was charged, so there is nothing to amend.
		f.done = true
		a.Prepare()
	case f.whole && !peeks(a):
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

func peeks(a *weir.Act) bool {
	return !slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return c.Cost != 0 })
}

// grant fills in the decisions of the free charges: granted if the rest of the act is.
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

// finish restores the act once it was decided.
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
		// The take was granted without the store.
		a.Err = nil
		for i := range a.Decisions {
			a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Remaining: weir.MaxCost}
		}
	}
}
