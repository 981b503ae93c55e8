package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/outage"
)

// A payment is acts that go to one node, in order. What they pay is in flight until paid is
// called with their outcomes, with the ledger locked.
type payment struct {
	ledger *ledger
	acts   []*weir.Act
	paid   func(outcomes []*weir.Act)
	flight *flight // nil: nobody waits for it
}

// actsPerCall bounds the acts that are paid in one call.
const actsPerCall = 64

// errHere says that the take that an act is about was granted here.
var errHere = fmt.Errorf("%w: the take was granted without the store", weir.ErrNotApplied)

// errLate says that the reply to what is owed before an act is late.
var errLate = errors.New("its reply is late")

// ask pays what is owed about the acts, and asks the store. Acts of different nodes do not wait for
// what is owed to each other's.
func (r *Remote) ask(ctx context.Context, all []*weir.Act) {
	returned := false
	defer func() {
		if !returned { // the store panicked, or ended this goroutine
			r.abandon(all)
		}
	}()
	outages := r.calls.Begun()
	switch sent := r.calls.Unreachable(all); {
	case len(sent) == 0:
	case r.ledgers.outstanding.Load() == 0:
		r.calls.TakeSince(ctx, outages, sent)
	default:
		r.payAndAsk(ctx, sent)
	}
	returned = true
}

// abandon decides acts whose callers get no answer: they are withdrawn, kept or counted.
func (r *Remote) abandon(all []*weir.Act) {
	for _, a := range all {
		if undecided(a) {
			r.decide(a, true, false)
		}
	}
}

// payAndAsk asks the store while something is owed.
func (r *Remote) payAndAsk(ctx context.Context, all []*weir.Act) {
	groups := r.groups(all)
	if len(groups) == 1 {
		outages, rest := r.payFirst(ctx, all)
		r.calls.TakeSince(ctx, outages, rest)
		return
	}
	var work sync.WaitGroup
	panics := make(chan any, len(groups))
	for _, group := range groups {
		work.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					panics <- cause
				}
			}()
			outages, rest := r.payFirst(ctx, group)
			r.calls.TakeSince(ctx, outages, rest)
		})
	}
	work.Wait()
	select {
	case cause := <-panics:
		panic(cause)
	default:
	}
}

// groups divides acts by their nodes: acts that have a node in common are in one group.
func (r *Remote) groups(all []*weir.Act) [][]*weir.Act {
	if len(all) < 2 {
		return [][]*weir.Act{all}
	}
	group := map[*ledger]int{} // of each node
	of := make([]int, len(all))
	for i, a := range all {
		at := r.locate(a)
		of[i] = i
		at.each(func(l *ledger) bool {
			other, known := group[l]
			if group[l] = of[i]; known && other != of[i] {
				for j := range of[:i+1] {
					if of[j] == other {
						of[j] = of[i]
					}
				}
				for l, g := range group {
					if g == other {
						group[l] = of[i]
					}
				}
			}
			return true
		})
	}
	var groups [][]*weir.Act
	at := map[int]int{}
	for i, a := range all {
		g, known := at[of[i]]
		if !known {
			g = len(groups)
			at[of[i]], groups = g, append(groups, nil)
		}
		groups[g] = append(groups[g], a)
	}
	return groups
}

// payFirst pays what is owed about the keys and IDs of acts, and returns the acts that may
// follow it, and how many outages had begun when that was certain. The others are not sent: their
// takes were granted here, or something is still owed before them.
func (r *Remote) payFirst(ctx context.Context, all []*weir.Act) (outages int64, rest []*weir.Act) {
	for {
		var c claims
		outages = r.calls.Begun()
		for _, a := range all {
			if r.claim(&c, a) {
				rest = append(rest, a)
			}
		}
		var err error
		switch {
		case len(c.due) > 0:
			err = r.pay(ctx, c.due)
		case c.busy == nil:
			return outages, rest
		case c.busy.late.Load():
			err = errLate
		default:
			select {
			case <-c.busy.landed:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if all, rest = rest, nil; err != nil {
			outages = r.calls.Begun()
			return outages, r.unblocked(all, err)
		}
	}
}

// unblocked returns the acts before which nothing is owed. The others were not sent, because of an
// error of what is.
func (r *Remote) unblocked(all []*weir.Act, err error) (rest []*weir.Act) {
	for _, a := range all {
		if !r.blocked(a) {
			rest = append(rest, a)
			continue
		}
		a.Err = fmt.Errorf("weir: %v: %w: what is owed before it: %v", a.Kind, weir.ErrNotApplied, err)
		if out := new(outage.Error); errors.As(err, &out) {
			a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
		}
	}
	return rest
}

// eachOutstanding calls f with each ledger that may owe something about an act of the location, locked, and the
// charges that it has.
func (at *location) eachOutstanding(all *ledgers, f func(l *ledger, has func(i int) bool)) {
	locked := func(l *ledger, has func(int) bool) {
		if !l.empty() {
			l.lock()
			defer l.unlock()
			f(l, has)
		}
	}
	at.each(func(l *ledger) bool {
		locked(l, func(i int) bool { return at.ledger(i) == l })
		return true
	})
	for _, l := range *all.moved.Load() {
		locked(l, func(i int) bool { return at.ledger(i) != l })
	}
}

// claims are what has to be paid before acts.
type claims struct {
	due  []*payment
	acts int     // in due
	busy *flight // of what is in flight already
}

// claim takes out what has to be paid before an act. It returns false if the act is about a take
// that was granted here.
func (r *Remote) claim(c *claims, a *weir.Act) bool {
	at := r.locate(a)
	if at.grantedHere(r.now()) {
		a.Err = errHere
		return false
	}
	at.eachOutstanding(r.ledgers, func(l *ledger, has func(int) bool) {
		about := func(e *entry) {
			switch {
			case !e.blocks() || len(e.acts) == 0:
			case e.busy != nil:
				c.busy = e.busy
			case c.acts < actsPerCall:
				c.add(r.payEntry(l, e, actsPerCall-c.acts))
			}
		}
		if e := l.ids[at.id]; e != nil {
			about(e)
		}
		for i := range a.Charges {
			if !has(i) {
				continue
			}
			charge := &a.Charges[i]
			for e := range l.byKey[charge.Key] {
				if about(e); c.acts >= actsPerCall {
					break
				}
			}
			switch d := l.budgets[budgetOf(charge)]; {
			case d == nil || !d.blocks():
			case d.busy != nil:
				c.busy = d.busy
			case c.acts < actsPerCall:
				if p := r.payUnits(l, d); p != nil {
					c.add(p)
				}
			}
		}
	})
	return true
}

func (c *claims) add(p *payment) {
	c.due = append(c.due, p)
	c.acts += len(p.acts)
}

// blocked reports whether an act has to wait for what is owed.
func (r *Remote) blocked(a *weir.Act) (blocked bool) {
	at := r.locate(a)
	at.eachOutstanding(r.ledgers, func(l *ledger, has func(int) bool) {
		waits := func(e *entry) bool { return e != nil && len(e.acts) > 0 && e.blocks() }
		blocked = blocked || waits(l.ids[at.id])
		for i := range a.Charges {
			if !has(i) || blocked {
				continue
			}
			c := &a.Charges[i]
			d := l.budgets[budgetOf(c)]
			blocked = d != nil && d.blocks() && (d.busy != nil || d.isDue(r.now()))
			for e := range l.byKey[c.Key] {
				if blocked = blocked || waits(e); blocked {
					break
				}
			}
		}
	})
	return blocked
}

// pay sends payments, and returns the first error of their acts.
func (r *Remote) pay(ctx context.Context, due []*payment) (first error) {
	var all []*weir.Act
	for _, p := range due {
		all = append(all, p.acts...)
	}
	r.takeAndRecover(ctx, all)
	for _, p := range due {
		if err := r.outcome(p); first == nil {
			first = err
		}
	}
	return first
}

// outcome ends a payment once the outcomes of its acts are known, and returns their first error.
func (r *Remote) outcome(p *payment) (first error) {
	var missing atomic.Int64
	missing.Store(1)
	known := func() {
		if missing.Add(-1) == 0 {
			r.land(p)
		}
	}
	for _, a := range p.acts {
		if a.Err != nil && first == nil {
			first = a.Err
		}
		var late acts.Pending
		if !errors.As(a.Err, &late) {
			continue
		}
		if p.flight != nil {
			p.flight.late.Store(true)
		}
		missing.Add(1)
		r.background.awaited.Add(1)
		late.Then(func(reply *weir.Act) {
			defer r.background.awaited.Add(-1)
			a.Err = reply.Err
			copy(a.Decisions, reply.Decisions)
			known()
			r.wakeLedger(p.ledger)
		})
	}
	known()
	return first
}

// land notes the outcomes of a payment.
func (r *Remote) land(p *payment) {
	var changed []weir.Charge
	for _, a := range p.acts {
		if a.Err == nil {
			changed = append(changed, a.Charges...)
		}
	}
	p.ledger.lock()
	func() {
		defer p.ledger.unlock()
		p.paid(p.acts)
	}()
	r.notify(changed)
}

// notify reports charges whose state in the store was changed to agree with earlier answers.
func (r *Remote) notify(charges []weir.Charge) {
	for i := range charges {
		r.Reconciled(&charges[i])
	}
}

// errPanicked is the error of acts whose outcome a panic of the store left unknown.
var errPanicked = fmt.Errorf("weir: %w: the store panicked", weir.ErrAmbiguous)

// takeAndRecover asks the store for debts: a panic of it would end the process.
func (r *Remote) takeAndRecover(ctx context.Context, acts []*weir.Act) {
	defer func() {
		if cause := recover(); cause != nil {
			r.Logger.Error("the store panicked while units granted without it were recorded", "panic", cause)
			for _, a := range acts {
				a.Err = errPanicked
			}
		}
	}()
	r.calls.Take(ctx, acts)
}

// notApplied reports whether the store has certainly not applied an act.
func notApplied(err error) bool {
	return errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured)
}
