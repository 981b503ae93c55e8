package override

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// Take asks the next Taker, under other limits where there are overrides. Keys without a
// limit charge nothing. An act with no other keys is granted without asking or, if it has an
// ID, whatever the next Taker answers, which only has to remember the ID.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	all := l.current.Load()
	if all == nil {
		l.next.Take(ctx, acts)
		return
	}
	c := call{all: all, clock: l.now}
	rest := acts
	for i, a := range acts {
		w := c.apply(a)
		if w == nil {
			continue
		}
		if len(c.works) == 1 {
			rest = slices.Clone(acts)
		}
		rest[i] = &w.act
		if w.done {
			rest[i] = nil
		}
	}
	if len(c.works) > 0 {
		rest = slices.DeleteFunc(rest, func(a *weir.Act) bool { return a == nil })
	}
	if len(rest) > 0 {
		l.next.Take(ctx, rest)
	}
	for _, w := range c.works {
		w.finish()
	}
	for _, key := range c.ended {
		// Without it, later takes are faster.
		l.forget(key, c.now)
	}
}

// A call is the state of one Take.
type call struct {
	all   *overrides
	clock func() time.Time
	now   time.Time // set once an override was found
	works []*work
	ended []string // keys with overrides that have ended
}

// A work is an act with keys that have overrides.
type work struct {
	caller *weir.Act
	act    weir.Act // the caller's, with charges of its own and the caller's decisions
	freed  []bool   // the charges whose override is no limit; nil: none is
	// shown has the limits in place of those of charges that the store is asked about under
	// their own; nil: none. A budget that others share must not be seen under the limit of
	// one caller, by layers that remember what is left of it.
	shown []*weir.Limit
	// waits are how long charges stay blocked, 0 for the others; nil: none is.
	waits []time.Duration
	whole bool // no charge has a limit
	done  bool // the act was decided here
}

// apply returns the act under other limits, or nil if none of its keys has an override.
func (c *call) apply(a *weir.Act) *work {
	var w *work
	free, blocked := 0, false
	for i := range a.Charges {
		e, owned := c.find(&a.Charges[i])
		if e == nil {
			continue
		}
		if w == nil {
			w = &work{caller: a, act: *a}
			w.act.Charges = slices.Clone(a.Charges)
			c.works = append(c.works, w)
		}
		if e.frees() {
			free++
			w.free(i)
		}
		switch own := a.Charges[i].Limit; {
		case e.frees() && !charges(a), e.blocks() && !takes(a):
		case owned && (e.frees() || a.Charges[i].Cost == 0):
			w.show(i, e.instead(own))
		default:
			w.act.Charges[i].Limit = e.instead(own)
			w.act.Charges[i].Guaranteed = a.Charges[i].Guaranteed && holdsGuarantees(w.act.Charges[i].Limit, own)
			blocked = blocked || owned
			if e.blocks() && own.Count > 0 {
				w.block(i, e.Until.Sub(c.now))
			}
		}
	}
	// Layers below would take what is refused here for a decision about the budget.
	if blocked && acts.Prepare(&w.act) {
		w.done = true
		return w
	}
	if free > 0 {
		w.whole = free == len(a.Charges)
		w.begin()
	}
	return w
}

// find returns the override of a charge, or nil, and whether it is its owner's.
func (c *call) find(charge *weir.Charge) (e *entry, owned bool) {
	if charge.Limit == nil || charge.Limit.Rule() == nil {
		return nil, false
	}
	if charge.Owner != "" {
		if e := c.inForce(charge.Owner); e != nil {
			return e, true
		}
	}
	e = c.inForce(charge.Key)
	if e != nil && e.frees() && Guaranteed(charge.Limit) {
		return nil, false
	}
	return e, false
}

// inForce returns the override of a key; nil if it has none, or all have ended.
func (c *call) inForce(key string) *entry {
	e := c.all.get(key)
	if e == nil {
		return nil
	}
	if c.now.IsZero() {
		c.now = c.clock()
	}
	rest := e.at(c.now)
	if rest != e {
		c.ended = append(c.ended, key)
	}
	return rest
}

// free notes that the i-th charge has no limit.
func (w *work) free(i int) {
	if w.freed == nil {
		w.freed = make([]bool, len(w.act.Charges))
	}
	w.freed[i] = true
}

// block notes how long the i-th charge stays blocked.
func (w *work) block(i int, wait time.Duration) {
	if w.waits == nil {
		w.waits = make([]time.Duration, len(w.act.Charges))
	}
	w.waits[i] = wait
}

// show notes the limit that holds in place of the i-th charge's, which the store does not
// see.
func (w *work) show(i int, limit *weir.Limit) {
	if w.shown == nil {
		w.shown = make([]*weir.Limit, len(w.act.Charges))
	}
	w.shown[i] = limit
}

// begin grants an act without any limit, and makes peeks of the free charges of other
// acts: nothing is charged, and IDs still belong to the same keys. The store remembers of a take
// with an ID which charges were free, so that no later act about it charges them. An up-to act
// cannot peek; it is charged, under a limit that is practically infinite, or under its own if
// the override is its owner's.
func (w *work) begin() {
	a := &w.act
	switch {
	case !charges(a):
	case a.Charges[0].UpTo > 0 && !w.whole:
		w.shown = nil
	case w.whole && a.ID == "" && !peeks(a):
		w.done = true
		if !acts.Prepare(a) {
			w.grant()
		}
	default:
		for i := range a.Charges {
			if c := &a.Charges[i]; w.freed[i] {
				c.Cost, c.UpTo, c.Waived = 0, 0, a.ID != ""
				if a.Kind == acts.KindAmend && i < len(a.Decisions) {
					a.Decisions[i].Granted = 0
				}
			}
		}
	}
}

// takes reports whether an act has the content of a take.
func takes(a *weir.Act) bool { return a.Kind == acts.KindTake || a.Kind == acts.KindAmend }

// charges reports whether an act charges units for the first time.
func charges(a *weir.Act) bool { return takes(a) || a.Kind == acts.KindRecord }

func peeks(a *weir.Act) bool {
	return !slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return c.Cost != 0 })
}

// grant fills in the decisions of the free charges: granted if the rest of the act is.
func (w *work) grant() {
	allowed := w.done || w.act.Allowed()
	for i, free := range w.freed {
		c, d := &w.caller.Charges[i], &w.act.Decisions[i]
		switch waived := w.act.Charges[i].Waived; {
		case w.done:
		case !free, c.Cost <= 0 && !waived:
			continue
		case d.Outcome == weir.NotEvaluated && d.Source == acts.SourceNone: // another alternative was granted
			continue
		}
		*d = weir.Decision{Outcome: weir.Granted, Granted: max(0, c.Cost, c.UpTo), Remaining: weir.MaxCost}
		if w.act.Dry {
			d.Granted = 0
		}
		if !allowed {
			d.Outcome, d.Granted = weir.NotCharged, 0
		}
	}
	if allowed && len(w.act.Charges) > 1 {
		w.chooseFirst()
	}
}

// chooseFirst leaves one alternative of each group granted. A group may have several that
// cost nothing now.
func (w *work) chooseFirst() {
	a := w.act
	a.Charges = w.caller.Charges // with their costs
	acts.ChooseFirst(&a)
}

// finish gives the caller the result once the act was decided.
func (w *work) finish() {
	a := &w.act
	switch {
	case w.done, w.freed == nil:
	case charges(a) && a.Charges[0].UpTo == 0:
		if w.whole && a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) {
			// Without a limit, nobody needs the store to be granted.
			a.Err, w.done = nil, true
		}
		if a.Err == nil {
			w.grant()
		}
	case w.whole && errors.Is(a.Err, weir.ErrUnknownID):
		// The store may not have remembered the take.
		a.Err = nil
		for i := range a.Decisions {
			a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Remaining: weir.MaxCost}
		}
	}
	if w.caller.Err = a.Err; a.Err == nil {
		w.name()
	}
}

// name puts the limits that hold instead into the decisions, what peeks find under them, and
// when a block ends.
func (w *work) name() {
	for i := range w.act.Charges {
		d := &w.act.Decisions[i]
		if l := w.act.Charges[i].Limit; l != w.caller.Charges[i].Limit {
			d.Limit = l
		}
		if w.waits != nil && w.waits[i] > 0 && d.Outcome == weir.Refused {
			d.RetryAfter = w.waits[i]
		}
		if w.shown == nil || w.shown[i] == nil {
			continue
		}
		d.Limit = w.shown[i]
		if d.Outcome != weir.NotEvaluated && w.caller.Charges[i].Cost == 0 {
			d.Remaining = d.Limit.Count
		}
	}
}
