package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/outage"
)

// decideByPolicy decides an act that the store did not, for a reason, and sees to it that
// the store learns of it.
func (l *Remote) decideByPolicy(a *weir.Act, reason error) {
	a.Err = nil
	if acts.Prepare(a) {
		return
	}
	policy := l.strictest(a)
	if endsTake(a) {
		l.counts.errors.Add(1)
		l.end(a, reason)
		return
	}
	if a.Kind == acts.KindRefund && policy != Local {
		l.counts.errors.Add(1)
		l.refundOnce(a, reason)
		return
	}
	switch {
	case a.Kind != acts.KindTake && (policy != Local || a.ID != "" || a.Kind == acts.KindReset):
		// Only the store has the state that the act is about.
		policy = Error
	case a.ID != "" && policy != Error && (!isOut(reason) || l.ids.full()):
		// The store has the ID, or may have it, and another instance may ask for it.
		policy, reason = Error, fmt.Errorf("%w: repeat the call", reason)
	}
	switch policy {
	case Error:
		l.counts.errors.Add(1)
		a.Err = reason
	case Deny:
		l.counts.denied.Add(1)
		l.deny(a)
	case Allow:
		l.counts.allowed.Add(1)
		l.decideLocally(a)
	default:
		l.counts.local.Add(1)
		if a.Kind == acts.KindRefund && a.Anonymous && algo.TraitsOf(a.Charges[0].Limit.Algorithm).HoldsSlots {
			l.refundSlots(a, reason)
			return
		}
		l.decideLocally(a)
		l.wake()
	}
	l.reconcileWith(a, reason)
}

// refundOnce keeps a refund without an ID if there is room, unless the store may have made it.
func (l *Remote) refundOnce(a *weir.Act, reason error) {
	if l.refunds.len() >= l.refunds.most {
		a.Err = reason
		return
	}
	own := copyOf(a)
	a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
	_ = l.conclude([]*weir.Act{{Err: reason}}, func(_ int, reply *weir.Act) {
		if notApplied(reply.Err) {
			l.refunds.add(own)
			l.wake()
		}
	})
}

// isOut reports whether an act was not sent because its node is unreachable.
func isOut(reason error) bool {
	var out *outage.Error
	return notApplied(reason) && errors.As(reason, &out)
}

// refundSlots decides an anonymous refund of slots. Those of takes that the store granted
// are refunded there later, unless it may have seen the refund by itself.
func (l *Remote) refundSlots(a *weir.Act, reason error) {
	peek := copyOf(a)
	peek.Kind, peek.Charges[0].Cost = acts.KindTake, 0
	l.decideLocally(peek)
	l.decideLocally(a)
	own := copyOf(a)
	local := own.Decisions[0].Remaining - peek.Decisions[0].Remaining
	remote := own.Charges[0].Cost - own.Decisions[0].Granted
	_ = l.conclude([]*weir.Act{{Err: reason}}, func(_ int, reply *weir.Act) {
		if !notApplied(reply.Err) {
			return
		}
		l.addOutstanding(own, 0, -local)
		if remote > 0 {
			l.addRefund(&own.Charges[0], &own.Decisions[0], remote)
		}
	})
	l.wake()
}

// strictest returns the policy that decides an act.
func (l *Remote) strictest(a *weir.Act) Policy {
	strictest := Allow
	for i := range a.Charges {
		c := &a.Charges[i]
		switch p := l.Policy(c); {
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
func (l *Remote) deny(a *weir.Act) {
	for i := range a.Charges {
		a.Decisions[i] = weir.Decision{}
		if l.Policy(&a.Charges[i]) == Deny {
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
func (l *Remote) failOpen(c *weir.Charge, granted bool) weir.Decision {
	if l.Policy(c) == Deny {
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
func (l *Remote) decideLocally(a *weir.Act) {
	part := l.scratch.Get().(*localPart)
	defer l.recycle(part)
	l.split(part, a)
	if len(part.indices) > 0 {
		l.local.Take(context.Background(), part.acts[:])
	}
	if a.Err = part.act.Err; a.Err != nil {
		return
	}
	granted := part.act.Allowed()
	alternatives := granted && a.Alternatives()
	for i := range a.Charges {
		a.Decisions[i] = l.failOpen(&a.Charges[i], granted)
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
func (l *Remote) split(part *localPart, a *weir.Act) {
	charges, decisions := part.act.Charges[:0], part.act.Decisions[:0]
	part.act, part.indices = *a, part.indices[:0]
	part.act.Err = nil
	whole := a.Alternatives() && l.strictest(a) == Local
	for i := range a.Charges {
		c := &a.Charges[i]
		if l.Policy(c) != Local && !whole {
			continue
		}
		charges, decisions = append(charges, l.localCharge(a, i)), append(decisions, weir.Decision{})
		part.indices = append(part.indices, i)
	}
	part.act.Charges, part.act.Decisions, part.acts[0] = charges, decisions, &part.act
}

// recycle keeps the memory of part for later acts.
func (l *Remote) recycle(part *localPart) {
	clear(part.act.Charges)
	part.act = weir.Act{Charges: part.act.Charges[:0], Decisions: part.act.Decisions[:0]}
	l.scratch.Put(part)
}
