package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/outage"
)

// Whatever a caller is answered without the store, the store is made to agree with it.
// All of this is done with the ledgers of the act locked.

// A settler has the store agree with what the caller of an act was told, given what became of
// the act there: its reply, or an error.
type settler func(r *Remote, at *location, told, reply *weir.Act)

// decide decides an act that the store did not, and has it settled as soon as its outcome there
// is known. It returns false if the act may be sent after all.
func (r *Remote) decide(a *weir.Act, left, mayAsk bool) bool {
	var late acts.Pending
	_ = errors.As(a.Err, &late)
	at := r.locate(a)
	told, settle, decided := r.decideLocked(&at, a, left, mayAsk, late != nil)
	if settle != nil {
		r.settleLater(&at, told, late, settle)
	}
	r.wake(&at)
	return decided
}

// decideLocked is decide with the location locked. It returns what is settled when the late reply comes.
func (r *Remote) decideLocked(at *location, a *weir.Act, left, mayAsk, late bool) (told *weir.Act, settle settler, decided bool) {
	reason := a.Err
	at.lock()
	defer at.unlock()
	g := at.granted(r.now())
	if mayAsk && notApplied(reason) && !left && g == nil && !errors.Is(reason, calls.ErrFull) && r.calls.Reachable(a) {
		a.Err = nil
		return nil, nil, false
	}
	a.Err = nil
	switch {
	case !left && acts.Prepare(a): // nothing decides it differently
	case g != nil && notApplied(reason):
		r.decideAbout(at, a, g, reason)
	case left && endsTake(a):
		settle = r.keep(at, a, reason)
	case left:
		if a.Err = reason; takesID(a) {
			settle = (*Remote).withdraw
		}
	default:
		r.counts.reason(reason)
		settle = r.decideByPolicy(at, a, reason)
	}
	switch {
	case settle == nil:
	case late:
		return copyOf(a), settle, true
	default:
		settle(r, at, a, &weir.Act{Err: reason})
	}
	return nil, nil, true
}

// settleLater settles an act when its reply comes.
func (r *Remote) settleLater(at *location, told *weir.Act, late acts.Pending, settle settler) {
	own := *at
	r.background.awaited.Add(1)
	late.Then(func(reply *weir.Act) {
		defer r.background.awaited.Add(-1)
		r.counts.late.Add(1)
		if reply.Err == nil {
			r.learn([]*weir.Act{reply})
		}
		own.settle(r, told, reply, settle)
		if reply.Err == nil && endsTake(told) {
			r.notify(reply.Charges)
		}
		r.wake(&own)
	})
}

func (at *location) settle(r *Remote, told, reply *weir.Act, settle settler) {
	at.lock()
	defer at.unlock()
	settle(r, at, told, reply)
}

// decideAbout decides an act about a take that was granted here, and owes it to the store.
func (r *Remote) decideAbout(at *location, a *weir.Act, g *grant, reason error) {
	if a.Kind != acts.KindTake && !at.roomForID() {
		r.counts.errors.Add(1)
		a.Err = reason
		return
	}
	number := a.Attempt
	a.Attempt = g.take.Attempt
	r.decideLocally(at, a)
	a.Attempt = number
	r.counts.local.Add(1)
	if a.Err != nil || a.Kind == acts.KindTake {
		return
	}
	until := r.now() + life(a)
	at.each(func(l *ledger) bool {
		e := l.enter(at.id, until)
		e.until = max(e.until, until)
		l.deliver(e, at.part(a, l))
		return true
	})
}

// decideByPolicy decides an act that the store did not, for a reason.
func (r *Remote) decideByPolicy(at *location, a *weir.Act, reason error) settler {
	policy := r.strictest(a)
	switch {
	case endsTake(a):
		r.counts.errors.Add(1)
		return r.keep(at, a, reason)
	case a.Kind == acts.KindRefund && policy != Local:
		r.counts.errors.Add(1)
		if a.Err = reason; !at.roomForRefunds() {
			return nil
		}
		a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
		return (*Remote).refundOnce
	case a.Kind != acts.KindTake && (policy != Local || a.ID != "" || a.Kind == acts.KindReset):
		// Only the store has the state that the act is about.
		policy = Error
	case a.ID != "" && policy != Error && (!isOut(reason) || !at.roomForID()):
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
		r.decideLocally(at, a)
	default:
		r.counts.local.Add(1)
		if a.Kind == acts.KindRefund && a.Anonymous && holdsSlots(&a.Charges[0]) {
			return r.refundSlots(at, a)
		}
		r.decideLocally(at, a)
		r.noteBlocks(at, a)
	}
	switch {
	case a.Kind == acts.KindRefund && a.Err == nil:
		return (*Remote).refundOnce
	case a.ID == "" && a.Kind != acts.KindReset:
		return (*Remote).agree
	case takesID(a) && a.Err != nil:
		return (*Remote).withdraw
	case takesID(a) && a.Allowed():
		r.enterTake(at, a)
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

// agree settles an act without an ID: what its caller was granted is charged.
func (r *Remote) agree(at *location, told, reply *weir.Act) {
	for i := range told.Charges {
		if c := &told.Charges[i]; told.Kind != acts.KindTake || r.Policy(c) != Allow {
			r.agreeOn(at.ledger(i), told, reply, i)
		}
	}
}

func (r *Remote) agreeOn(l *ledger, told, reply *weir.Act, i int) {
	c := &told.Charges[i]
	here, there := localGrant(told, i), int64(0)
	if reply.Err == nil {
		there = reply.Decisions[i].Granted
	}
	switch missing := here - there; {
	case undecided(reply) && !notApplied(reply.Err):
		r.counts.doubtful.Add(here)
	case missing == 0:
		if reply.Err == nil {
			r.counts.reconciled.Add(1)
		}
	case missing > 0 || told.Kind != acts.KindTake:
		if reply.Err == nil && told.Kind == acts.KindTake {
			r.counts.overgrants.Add(missing)
		}
		r.note(l, told, i, missing)
	case !holdsSlots(c) && !c.Limit.ChargeRefused:
		// The caller refunds an anonymous take of slots after any answer.
		r.noteRefund(l, told, i, -missing, &reply.Decisions[i])
	}
}

// note has the store charged units of the i-th charge of an act. Slots with names are amended
// instead.
func (r *Remote) note(l *ledger, a *weir.Act, i int, units int64) {
	c, fresh := &a.Charges[i], a.Decisions[i].ResetAfter
	if units <= 0 || holdsSlots(c) && !a.Anonymous {
		return
	}
	now := r.now()
	if !l.debit(c, units, now, now+fresh.Microseconds()) {
		r.counts.doubtful.Add(units)
	}
}

// noteRefund has units of the i-th charge of an act refunded, as the decision d made them; nil:
// at the charge's own instant.
func (r *Remote) noteRefund(l *ledger, a *weir.Act, i int, units int64, d *weir.Decision) {
	c := a.Charges[i]
	c.Key, c.HashTag = strings.Clone(c.Key), strings.Clone(c.HashTag)
	c.Cost, c.UpTo, c.Keep, c.Guaranteed, c.Group, c.Alt = units, 0, 0, false, 0, 0
	if d != nil {
		c.At, c.Delay = d.At.UnixMicro(), d.Delay
	}
	anonymous := a.Anonymous || holdsSlots(&c)
	if !l.refund(&weir.Act{Kind: acts.KindRefund, Anonymous: anonymous, Charges: []weir.Charge{c}, Decisions: make([]weir.Decision, 1)}) {
		r.counts.doubtful.Add(units)
	}
}

// refundOnce settles a refund without an ID: the store refunds what it has of the charge, unless it
// may have done so.
func (r *Remote) refundOnce(at *location, told, reply *weir.Act) {
	for i := range told.Charges {
		if units := told.Charges[i].Cost; notApplied(reply.Err) && units > 0 {
			r.noteRefund(at.ledger(i), told, i, units, nil)
		}
	}
}

// refundSlots decides an anonymous refund of slots. Those of takes that the store granted
// are refunded there later, unless it may have seen the refund by itself.
func (r *Remote) refundSlots(at *location, a *weir.Act) settler {
	peek := copyOf(a)
	peek.Kind, peek.Charges[0].Cost = acts.KindTake, 0
	r.decideLocally(at, peek)
	r.decideLocally(at, a)
	// Refunds of takes that were refused here return no slot.
	freed := a.Decisions[0].Remaining - peek.Decisions[0].Remaining
	units := a.Charges[0].Cost - a.Decisions[0].Granted + freed
	return func(r *Remote, at *location, told, reply *weir.Act) {
		if notApplied(reply.Err) && units > 0 {
			r.noteRefund(at.ledger(0), told, 0, units, nil)
		}
	}
}

// keep keeps an act that ends a take, until the store has acknowledged it. The first one of an
// ID wins.
func (r *Remote) keep(at *location, a *weir.Act, reason error) settler {
	a.Err = reason
	kept := &acts.KeptError{Kind: a.Kind, Reason: reason}
	var ended *weir.Act
	at.each(func(l *ledger) bool {
		if e := l.ids[at.id]; e != nil && e.last() != nil && endsTake(e.last()) {
			ended = e.last()
		}
		return ended == nil
	})
	switch {
	case ended != nil:
		if ended.Kind == a.Kind && acts.Content(ended) == acts.Content(a) {
			a.Err = kept
		}
		return nil
	case !at.roomForID():
		return nil
	}
	a.Err = kept
	until := r.now() + life(a)
	var fresh []*entry
	at.each(func(l *ledger) bool {
		e := l.enter(at.id, until)
		if l.deliver(e, at.part(a, l)); len(e.acts) == 1 {
			e.send().late.Store(true) // until its outcome is known
			e.sent, fresh = 1, append(fresh, e)
		}
		return true
	})
	return func(r *Remote, at *location, told, reply *weir.Act) {
		sent := *told
		sent.Err = reply.Err
		at.each(func(l *ledger) bool {
			for _, e := range fresh {
				if l.ids[e.name] == e {
					r.paidEntry(l, e, []*weir.Act{&sent})
				}
			}
			return true
		})
	}
}

// withdraw settles a take with an ID whose caller got an error, or has left: the store takes
// the attempt back. It knows whether another attempt was answered.
func (r *Remote) withdraw(at *location, told, reply *weir.Act) {
	switch {
	case notApplied(reply.Err), reply.Err != nil && !undecided(reply), reply.Err == nil && !charges(reply):
		return // it charged nothing
	}
	until := r.now() + life(told)
	at.each(func(l *ledger) bool {
		if own := at.part(told, l); !l.withdraw(own, until) {
			r.counts.doubtful.Add(own.Charges[0].Cost)
		}
		return true
	})
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
func (r *Remote) decideLocally(at *location, a *weir.Act) {
	part := r.scratch.Get().(*localPart)
	defer r.recycle(part)
	r.split(part, at, a)
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
		if a.Dry {
			a.Decisions[i].Granted = 0
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
func (r *Remote) split(part *localPart, at *location, a *weir.Act) {
	charges, decisions := part.act.Charges[:0], part.act.Decisions[:0]
	part.act, part.indices = *a, part.indices[:0]
	part.act.Err = nil
	if a.ID != "" {
		part.act.ID, part.act.Attempt = localID(a.Attempt), 0
	}
	whole := a.Alternatives() && r.strictest(a) == Local
	for i := range a.Charges {
		c := &a.Charges[i]
		if r.Policy(c) != Local && !whole {
			continue
		}
		charges, decisions = append(charges, r.localCharge(at, a, i)), append(decisions, weir.Decision{})
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
