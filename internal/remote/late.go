package remote

import (
	"errors"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/outage"
)

// reconcileWith has the store agree with the answer to an act that it did not decide in time,
// for a reason.
func (l *Remote) reconcileWith(a *weir.Act, reason error) {
	var late acts.Pending
	switch {
	case errors.As(reason, &late):
		l.await(a, late, reason)
	case a.Err == nil:
		l.note(a, reason)
	case ourTake(a) && !notApplied(reason):
		l.withdraw(a)
	}
}

// ourTake reports whether an act is a take with an ID that nobody repeats.
func ourTake(a *weir.Act) bool { return a.Kind == acts.KindTake && a.ID != "" && a.NewID }

// note remembers the local grants of an act to which no reply will come, for a reason.
func (l *Remote) note(a *weir.Act, reason error) {
	if a.ID != "" && a.Kind == acts.KindTake {
		if a.Allowed() {
			l.bind(a)
		}
		return
	}
	for i := range a.Charges {
		units := localGrant(a, i)
		if a.Kind == acts.KindRefund {
			units = -units
		}
		if notApplied(reason) {
			l.addOutstanding(a, i, units)
		} else {
			l.counts.doubtful.Add(max(0, units))
		}
	}
}

// localGrant is how many units of a charge were granted from a local share.
func localGrant(a *weir.Act, i int) int64 {
	if a.Err != nil || a.Decisions[i].Source != acts.SourceFallback {
		return 0
	}
	return a.Decisions[i].Granted
}

// bind has the ID of a granted take answered here until the store has amended it.
func (l *Remote) bind(a *weir.Act) {
	own := copyOf(a)
	for i := range own.Decisions {
		if l.Policy(&own.Charges[i]) == Allow {
			// Units granted without limit are not charged.
			own.Decisions[i].Granted = 0
		}
	}
	l.ids.add(own, l.now())
	l.wake()
}

// await reconciles an act once the reply to it has come.
func (l *Remote) await(a *weir.Act, late acts.Pending, reason error) {
	answer := copyOf(a)
	l.reconciler.awaited.Add(1)
	var out *outage.Error
	cutOff := errors.As(reason, &out)
	l.awaited.begin(answer, cutOff)
	late.Then(func(reply *weir.Act) {
		defer l.reconciler.awaited.Add(-1)
		l.compare(answer, reply)
		l.awaited.end(answer, cutOff)
		l.wake()
	})
}

// compare reconciles the answer that a caller got with the store's reply, which may be an
// error.
func (l *Remote) compare(answer, reply *weir.Act) {
	l.counts.late.Add(1)
	if reply.Err == nil {
		l.learn([]*weir.Act{reply})
		if answer.Kind == acts.KindTake {
			for i := range answer.Decisions {
				l.counts.overgrants.Add(max(0, localGrant(answer, i)-reply.Decisions[i].Granted))
			}
		}
	}
	lost := undecided(reply) && !notApplied(reply.Err)
	switch {
	case ourTake(answer):
		if lost || reply.Err == nil && charged(reply) {
			l.withdraw(answer)
		}
	case answer.ID != "" || answer.Kind == acts.KindReset:
		// A repeat by the caller completes it.
	default:
		for i := range answer.Charges {
			l.compareCharge(answer, reply, i, lost)
		}
	}
}

// charged reports whether the store charged anything for a take.
func charged(a *weir.Act) bool {
	return slices.ContainsFunc(a.Decisions, func(d weir.Decision) bool { return d.Granted > 0 })
}

// withdraw has the store amend a take to nothing: its caller never got the ID.
func (l *Remote) withdraw(a *weir.Act) {
	if l.ids.full() {
		return
	}
	none := copyOf(a)
	none.Err = nil
	for i := range none.Decisions {
		none.Decisions[i] = weir.Decision{Outcome: weir.Refused, Source: acts.SourceFallback, RetryAfter: RetryAfter}
	}
	l.ids.add(none, l.now())
	l.wake()
}

// compareCharge reconciles one charge of an act without an ID.
func (l *Remote) compareCharge(answer, reply *weir.Act, i int, lost bool) {
	c := &answer.Charges[i]
	if answer.Kind == acts.KindTake && l.Policy(c) == Allow {
		return
	}
	here, there := localGrant(answer, i), int64(0)
	if lost {
		if answer.Kind != acts.KindRefund {
			l.counts.doubtful.Add(here)
		}
		return
	}
	if reply.Err == nil {
		there = reply.Decisions[i].Granted
	}
	missing := here - there
	if answer.Kind == acts.KindRefund {
		missing = -missing
	}
	switch {
	case missing == 0:
		l.counts.reconciled.Add(1)
	case missing > 0 || answer.Kind != acts.KindTake:
		l.addOutstanding(answer, i, missing)
	case algo.TraitsOf(c.Limit.Algorithm).HoldsSlots:
		// The caller refunds an anonymous take after any answer.
		l.counts.reconciled.Add(1)
	case !c.Limit.ChargeRefused:
		l.addRefund(c, &reply.Decisions[i], -missing)
	}
}

// hasSlots reports whether a take was granted slots.
func hasSlots(a *weir.Act) bool {
	for i := range a.Charges {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots && a.Decisions[i].Granted > 0 {
			return true
		}
	}
	return false
}

// release leaves a take to the store, unless its answer has changed since, and frees the
// slots that it holds here. The next local decision counts the free slots again, because the
// store has granted these, and may have granted others. For a take with slots, release waits
// for local decisions that are being made, so none of them may call it.
func (l *Remote) release(take *localTake, changes int) {
	if !l.ids.drop(take, changes) || !hasSlots(&take.act) {
		return
	}
	for i := range take.act.Charges {
		l.outstanding.forget(&take.act.Charges[i])
	}
	l.deciding.wait(l.outstanding.shardsOfAct(&take.act))
	a := copyOf(&take.act)
	a.Kind, a.Hold, a.MaxWait, a.Err = acts.KindRelease, 0, 0, nil
	l.decideLocally(a)
}
