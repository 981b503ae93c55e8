package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/outage"
)

// What is told is held: whatever a caller is told without the store, the store is made to agree
// with it. All of this is done with the book locked.

// A settler has the store agree with what the caller of an act was told, given what became of
// the act there: its reply, or an error.
type settler func(r *Remote, told, reply *weir.Act)

// decide decides an act that the store did not, and has it settled as soon as its outcome there
// is known. It returns false if the act may be sent after all.
func (r *Remote) decide(a *weir.Act, left, mayAsk bool) bool {
	reason := a.Err
	var late acts.Pending
	r.book.lock()
	e := r.book.granted(a, r.now())
	if mayAsk && notApplied(reason) && !left && e == nil && !errors.Is(reason, calls.ErrFull) && r.calls.Reachable(a) {
		r.book.unlock()
		a.Err = nil
		return false
	}
	var settle settler
	a.Err = nil
	switch {
	case !left && acts.Prepare(a): // nothing decides it differently
	case e != nil && notApplied(reason):
		r.decideAbout(a, e)
	case left && endsTake(a):
		settle = r.keep(a, reason)
	case left:
		if a.Err = reason; takesID(a) {
			settle = (*Remote).withdraw
		}
	default:
		r.counts.reason(reason)
		settle = r.decideByPolicy(a, reason)
	}
	told := a
	if settle != nil && errors.As(reason, &late) {
		told = copyOf(a)
	} else if settle != nil {
		settle(r, told, &weir.Act{Err: reason})
	}
	r.book.unlock()
	if settle != nil && late != nil {
		r.settleLater(told, late, settle)
	}
	return true
}

// settleLater settles an act when its reply comes.
func (r *Remote) settleLater(told *weir.Act, late acts.Pending, settle settler) {
	r.reconciler.awaited.Add(1)
	late.Then(func(reply *weir.Act) {
		defer r.reconciler.awaited.Add(-1)
		r.counts.late.Add(1)
		if reply.Err == nil {
			r.learn([]*weir.Act{reply})
		}
		r.book.lock()
		settle(r, told, reply)
		r.book.unlock()
		r.wake()
	})
}

// decideAbout decides an act about a take that was granted here, and owes it to the store.
func (r *Remote) decideAbout(a *weir.Act, e *entry) {
	number := a.Asking
	a.Asking = e.take.Asking
	r.decideLocally(a)
	a.Asking = number
	r.counts.local.Add(1)
	if a.Err == nil && a.Kind != acts.KindTake {
		e.add(a)
		e.until = max(e.until, r.now()+life(a))
	}
}

// decideByPolicy decides an act that the store did not, for a reason.
func (r *Remote) decideByPolicy(a *weir.Act, reason error) settler {
	policy := r.strictest(a)
	switch {
	case endsTake(a):
		r.counts.errors.Add(1)
		return r.keep(a, reason)
	case a.Kind == acts.KindRefund && policy != Local:
		r.counts.errors.Add(1)
		if a.Err = reason; r.book.refunds >= r.book.most {
			return nil
		}
		a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
		return (*Remote).refundOnce
	case a.Kind != acts.KindTake && (policy != Local || a.ID != "" || a.Kind == acts.KindReset):
		// Only the store has the state that the act is about.
		policy = Error
	case a.ID != "" && policy != Error && (!isOut(reason) || len(r.book.ids) >= r.book.most):
		// The store has the ID, or may have it, and another instance may ask for it.
		policy, reason = Error, fmt.Errorf("%w: repeat the call", reason)
	}
	switch policy {
	case Error:
		r.counts.errors.Add(1)
		a.Err = reason
	case Deny:
		r.counts.denied.Add(1)
		r.deny(a)
	case Allow:
		r.counts.allowed.Add(1)
		r.decideLocally(a)
	default:
		r.counts.local.Add(1)
		if a.Kind == acts.KindRefund && a.Anonymous && holdsSlots(&a.Charges[0]) {
			return r.refundSlots(a)
		}
		r.decideLocally(a)
	}
	switch {
	case a.ID == "" && a.Kind != acts.KindReset:
		return (*Remote).agree
	case takesID(a) && a.Err != nil:
		return (*Remote).withdraw
	case takesID(a) && a.Allowed():
		r.book.grant(a, r.now(), func(c *weir.Charge) bool { return r.Policy(c) == Allow })
	}
	return nil
}

// takesID reports whether an act is a take with an ID.
func takesID(a *weir.Act) bool { return a.ID != "" && a.Kind == acts.KindTake }

// endsTake reports whether an act ends the charge of a take with an ID.
func endsTake(a *weir.Act) bool {
	return a.ID != "" && (a.Kind == acts.KindRelease || a.Kind == acts.KindSettle || a.Kind == acts.KindRefund)
}

func holdsSlots(c *weir.Charge) bool { return algo.TraitsOf(c.Limit.Algorithm).HoldsSlots }

// isOut reports whether an act was not sent because its node is unreachable.
func isOut(reason error) bool {
	var out *outage.Error
	return notApplied(reason) && errors.As(reason, &out)
}

// localGrant is how many units of a charge were granted from a local share.
func localGrant(a *weir.Act, i int) int64 {
	if a.Err != nil || a.Decisions[i].Source != acts.SourceFallback {
		return 0
	}
	return a.Decisions[i].Granted
}

// agree settles an act without an ID: what its caller was told is charged.
func (r *Remote) agree(told, reply *weir.Act) {
	for i := range told.Charges {
		if c := &told.Charges[i]; told.Kind != acts.KindTake || r.Policy(c) != Allow {
			r.agreeOn(told, reply, i)
		}
	}
}

func (r *Remote) agreeOn(told, reply *weir.Act, i int) {
	c := &told.Charges[i]
	here, there := localGrant(told, i), int64(0)
	if reply.Err == nil {
		there = reply.Decisions[i].Granted
	}
	switch missing := here - there; {
	case undecided(reply) && !notApplied(reply.Err):
		if told.Kind != acts.KindRefund {
			r.counts.doubtful.Add(here)
		}
	case missing == 0:
		if reply.Err == nil {
			r.counts.reconciled.Add(1)
		}
	case told.Kind == acts.KindRefund:
		r.note(told, i, -missing)
	case missing > 0 || told.Kind != acts.KindTake:
		if reply.Err == nil && told.Kind == acts.KindTake {
			r.counts.overgrants.Add(missing)
		}
		r.note(told, i, missing)
	case !holdsSlots(c) && !c.Limit.ChargeRefused:
		// The caller refunds an anonymous take of slots after any answer.
		r.noteRefund(c, &reply.Decisions[i], -missing)
	}
}

// note has the store charged units of the i-th charge of an act, or fewer. Slots with names
// are amended instead.
func (r *Remote) note(a *weir.Act, i int, units int64) {
	c, fresh := &a.Charges[i], a.Decisions[i].ResetAfter
	if units == 0 || holdsSlots(c) && !a.Anonymous {
		return
	}
	now := r.now()
	if !r.book.add(c, units, now, now+fresh.Microseconds()) {
		r.counts.doubtful.Add(max(0, units))
	}
}

// noteRefund has units of a decision of the store refunded there.
func (r *Remote) noteRefund(c *weir.Charge, d *weir.Decision, units int64) {
	own := *c
	own.Cost, own.UpTo, own.Keep, own.Guaranteed, own.At, own.Delay = units, 0, 0, false, d.At.UnixMicro(), d.Delay
	if !r.book.refund(&weir.Act{Kind: acts.KindRefund, Anonymous: holdsSlots(c), Charges: []weir.Charge{own}, Decisions: make([]weir.Decision, 1)}) {
		r.counts.doubtful.Add(units)
	}
}

// refundOnce has a refund without an ID made, unless the store may have made it.
func (r *Remote) refundOnce(told, reply *weir.Act) {
	if notApplied(reply.Err) {
		own := keptCopy(told)
		own.Err = nil
		r.book.refund(own)
	}
}

// refundSlots decides an anonymous refund of slots. Those of takes that the store granted
// are refunded there later, unless it may have seen the refund by itself.
func (r *Remote) refundSlots(a *weir.Act) settler {
	peek := copyOf(a)
	peek.Kind, peek.Charges[0].Cost = acts.KindTake, 0
	r.decideLocally(peek)
	r.decideLocally(a)
	local := a.Decisions[0].Remaining - peek.Decisions[0].Remaining
	remote := a.Charges[0].Cost - a.Decisions[0].Granted
	return func(r *Remote, told, reply *weir.Act) {
		if !notApplied(reply.Err) {
			return
		}
		r.note(told, 0, -local)
		if own := keptCopy(told); remote > 0 {
			r.noteRefund(&own.Charges[0], &own.Decisions[0], remote)
		}
	}
}

// keep keeps an act that ends a take, until the store has acknowledged it. The first one of an
// ID wins.
func (r *Remote) keep(a *weir.Act, reason error) settler {
	a.Err = reason
	e := r.book.enter(a, r.now())
	if e == nil {
		return nil
	}
	last := e.last()
	if last != nil && endsTake(last) {
		if last.Kind == a.Kind && acts.Content(last) == acts.Content(a) {
			a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
		}
		return nil
	}
	a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
	e.add(a)
	if last != nil {
		return nil
	}
	e.busy = &flying{landed: make(chan struct{})} // until its outcome is known
	e.busy.late.Store(true)
	return func(r *Remote, told, reply *weir.Act) {
		sent := *told
		sent.Err = reply.Err
		r.paidEntry(e, []*weir.Act{&sent})
	}
}

// withdraw settles a take with an ID whose caller was told an error, or has left: the store takes
// the asking back. It knows whether somebody was told the answer to another one.
func (r *Remote) withdraw(told, reply *weir.Act) {
	switch {
	case notApplied(reply.Err), reply.Err != nil && !undecided(reply), reply.Err == nil && !charges(reply):
		return // it charged nothing
	}
	if !r.book.withdraw(told, r.now()) {
		r.counts.doubtful.Add(told.Charges[0].Cost)
	}
}

// charges reports whether a decided take was charged anything.
func charges(a *weir.Act) bool {
	for i := range a.Charges {
		if a.Decisions[i].Granted > 0 || a.Charges[i].Limit.ChargeRefused {
			return true
		}
	}
	return false
}

// strictest returns the policy that decides an act.
func (r *Remote) strictest(a *weir.Act) Policy {
	strictest := Allow
	for i := range a.Charges {
		c := &a.Charges[i]
		switch p := r.Policy(c); {
		case p == Error:
			return Error
		case p == Deny && (c.Cost > 0 || a.Kind != acts.KindTake):
			strictest = Deny
		case p == Local && strictest == Allow:
			strictest = Local
		}
	}
	return strictest
}

// deny refuses an act.
func (r *Remote) deny(a *weir.Act) {
	for i := range a.Charges {
		a.Decisions[i] = weir.Decision{}
		if r.Policy(&a.Charges[i]) == Deny {
			a.Decisions[i] = failClosed(&a.Charges[i])
		}
	}
}

// failClosed is the decision under the policy Deny: it refuses everything but peeks.
func failClosed(c *weir.Charge) weir.Decision {
	if c.Cost == 0 {
		return weir.Decision{Outcome: weir.Granted, Source: acts.SourceFailClosed}
	}
	return weir.Decision{Outcome: weir.Refused, Source: acts.SourceFailClosed, RetryAfter: RetryAfter}
}

// failOpen is the decision of a charge that is not Local, beside Local ones that were
// granted or refused.
func (r *Remote) failOpen(c *weir.Charge, granted bool) weir.Decision {
	if r.Policy(c) == Deny {
		return failClosed(c)
	}
	d := weir.Decision{Outcome: weir.Granted, Source: acts.SourceFailOpen, Granted: c.Cost, Remaining: c.Limit.Capacity()}
	if !granted {
		d.Outcome, d.Granted = weir.NotCharged, 0
	}
	return d
}

// A localPart is the part of an act that the local store decides: its Local charges, under
// their local shares.
type localPart struct {
	act     weir.Act
	acts    [1]*weir.Act
	indices []int // of each charge in the whole act
}

// decideLocally decides the act's Local charges from memory. Charges under other policies
// follow the result.
func (r *Remote) decideLocally(a *weir.Act) {
	part := r.scratch.Get().(*localPart)
	defer r.recycle(part)
	r.split(part, a)
	if len(part.indices) > 0 {
		r.local.Take(context.Background(), part.acts[:])
	}
	if a.Err = part.act.Err; a.Err != nil {
		return
	}
	granted := part.act.Allowed()
	alternatives := granted && a.Alternatives()
	for i := range a.Charges {
		a.Decisions[i] = r.failOpen(&a.Charges[i], granted)
		if upTo := a.Charges[i].UpTo; granted && upTo > 0 {
			a.Decisions[i].Granted = upTo
			if len(part.indices) > 0 {
				a.Decisions[i].Granted = part.act.Decisions[0].Granted
			}
		}
	}
	if alternatives && len(part.indices) == 0 {
		acts.ChooseFirst(a)
	}
	for j, i := range part.indices {
		c, d := &a.Charges[i], part.act.Decisions[j]
		if d.Outcome != weir.NotEvaluated {
			d.Source = acts.SourceFallback
		}
		if d.RetryAfter == weir.Never && c.Cost+c.Keep <= c.Limit.Capacity() {
			// It does not fit the local share, but will fit the limit.
			d.RetryAfter = RetryAfter
		}
		a.Decisions[i] = d
	}
}

// split copies an act's Local charges to part: all charges if there are alternatives, which
// cannot be decided in parts.
func (r *Remote) split(part *localPart, a *weir.Act) {
	charges, decisions := part.act.Charges[:0], part.act.Decisions[:0]
	part.act, part.indices = *a, part.indices[:0]
	part.act.Err = nil
	if a.ID != "" {
		// A take that was granted here is left to the store later, and then nothing here is
		// about its ID: the local store knows a take by its number.
		part.act.ID, part.act.Asking = strconv.FormatUint(a.Asking, 36), 0
	}
	whole := a.Alternatives() && r.strictest(a) == Local
	for i := range a.Charges {
		c := &a.Charges[i]
		if r.Policy(c) != Local && !whole {
			continue
		}
		charges, decisions = append(charges, r.localCharge(a, i)), append(decisions, weir.Decision{})
		part.indices = append(part.indices, i)
	}
	part.act.Charges, part.act.Decisions, part.acts[0] = charges, decisions, &part.act
}

// recycle keeps the memory of part for later acts.
func (r *Remote) recycle(part *localPart) {
	clear(part.act.Charges)
	part.act = weir.Act{Charges: part.act.Charges[:0], Decisions: part.act.Decisions[:0]}
	r.scratch.Put(part)
}
