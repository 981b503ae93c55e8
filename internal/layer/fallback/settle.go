package fallback

import (
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// note remembers what a policy granted that the store was not asked for.
func (t *Taker) note(a *weir.Act) {
	if a.ID != "" && a.Kind == weir.KindTake {
		if t.owes(a) && t.remember(a, nil) != nil {
			t.wake()
			return
		}
	}
	for i := range a.Charges {
		units := t.granted(a, i)
		if a.Kind == weir.KindRefund {
			units = -units
		}
		t.owe(&a.Charges[i], units, a.Decisions[i].ResetAfter)
	}
}

// granted is how many units of a charge its caller was granted from a share.
func (t *Taker) granted(a *weir.Act, i int) int64 {
	if a.Err != nil || a.Decisions[i].Source != weir.SourceFallback {
		return 0
	}
	return a.Decisions[i].Granted
}

// owes reports whether an act was granted anything from a share.
func (t *Taker) owes(a *weir.Act) bool {
	for i := range a.Charges {
		if t.granted(a, i) > 0 {
			return true
		}
	}
	return false
}

// remember keeps a take whose id is answered here from now on, to be amended: at once
// if it was never sent, so that out is nil.
func (t *Taker) remember(a *weir.Act, out chan struct{}) *taken {
	own := copyOf(a)
	for i := range own.Decisions {
		if t.policy(&own.Charges[i]) == Allow {
			// What passes unlimited is not charged.
			own.Decisions[i].Granted = 0
		}
	}
	known := t.ids.add(&taken{act: *own, told: a.Err == nil, out: out}, t.now())
	if known != nil && out == nil {
		t.ids.amend(known)
	}
	return known
}

// follow settles an act once the reply to it has come.
func (t *Taker) follow(a *weir.Act, late weir.Pending, reason error) {
	told := copyOf(a)
	var known *taken
	if a.ID != "" && a.Kind == weir.KindTake && (a.Err == nil || !a.NewID) {
		known = t.remember(a, make(chan struct{}))
	}
	t.mending.begin()
	var out *outage.Error
	cut := errors.As(reason, &out)
	t.following.begin(told, cut)
	late.Then(func(reply *weir.Act) {
		defer t.mending.end()
		t.outcome(told, reply, known)
		t.following.end(told, cut)
		t.wake()
	})
}

// abandoned settles an act whose caller has left without an answer.
func (t *Taker) abandoned(a *weir.Act) {
	var late weir.Pending
	if errors.As(a.Err, &late) && a.ID != "" && a.Kind == weir.KindTake {
		t.follow(a, late, a.Err)
	}
}

// outcome settles an act by the difference between what its caller was told and what
// the store did, as far as that is known.
func (t *Taker) outcome(told, reply *weir.Act, known *taken) {
	t.counts.late.Add(1)
	if reply.Err == nil {
		t.learn(reply)
	}
	t.overgranted(told, reply)
	lost := reply.Err != nil && !errors.Is(reply.Err, weir.ErrNotApplied) && !errors.Is(reply.Err, weir.ErrMisconfigured) && !errors.Is(reply.Err, weir.ErrInvalid)
	switch {
	case told.Kind != weir.KindTake && told.ID != "" || told.Kind == weir.KindReset:
		// A repeat with the id does what is missing.
	case told.ID != "":
		t.outcomeOfID(told, reply, known, lost)
	default:
		for i := range told.Charges {
			t.outcomeOf(told, reply, i, lost)
		}
	}
}

// outcomeOfID settles a take with an id.
func (t *Taker) outcomeOfID(told, reply *weir.Act, known *taken, lost bool) {
	if known == nil {
		switch {
		case told.Err == nil:
			// There was no room to remember it.
			for i := range told.Decisions {
				t.counts.doubtful.Add(t.granted(told, i))
			}
		case told.NewID && (lost || reply.Err == nil && charged(reply)):
			// Nobody knows the id: the store forgets what it charged.
			t.withdraw(told)
		}
		return
	}
	changes := t.ids.replied(known)
	switch {
	case !known.told:
		// The id is its client's, who may repeat it.
		t.ids.drop(known, changes)
	case changes == 0 && !lost && same(told, reply):
		t.counts.settled.Add(1)
		t.gone(known, changes)
	default:
		t.ids.amend(known)
	}
}

// charged reports whether the store charged anything for a take.
func charged(a *weir.Act) bool {
	for i := range a.Decisions {
		if a.Decisions[i].Granted > 0 {
			return true
		}
	}
	return false
}

// withdraw amends a take to nothing.
func (t *Taker) withdraw(a *weir.Act) {
	none := copyOf(a)
	none.Err = nil
	for i := range none.Decisions {
		none.Decisions[i] = weir.Decision{Outcome: weir.Refused, Source: weir.SourceFallback, RetryAfter: RetryAfter}
	}
	if known := t.ids.add(&taken{act: *none, told: true}, t.now()); known != nil {
		t.ids.amend(known)
	}
}

// same reports whether a take was granted as its caller was told.
func same(told, reply *weir.Act) bool {
	if reply.Err != nil {
		return false
	}
	for i := range told.Decisions {
		a, b := &told.Decisions[i], &reply.Decisions[i]
		if (a.Outcome == weir.Granted) != (b.Outcome == weir.Granted) || a.Source == weir.SourceFallback && a.Granted != b.Granted {
			return false
		}
	}
	return true
}

// overgranted counts the units that a share granted and the store refused.
func (t *Taker) overgranted(told, reply *weir.Act) {
	if told.Kind != weir.KindTake || reply.Err != nil {
		return
	}
	for i := range told.Decisions {
		t.counts.overgranted.Add(max(0, t.granted(told, i)-reply.Decisions[i].Granted))
	}
}

// outcomeOf settles one charge of an act without an id.
func (t *Taker) outcomeOf(told, reply *weir.Act, i int, lost bool) {
	c := &told.Charges[i]
	here, there := t.granted(told, i), int64(0)
	if reply.Err == nil {
		there = reply.Decisions[i].Granted
	}
	if told.Kind == weir.KindTake && t.policy(c) == Allow {
		return
	}
	more := here - there
	if told.Kind == weir.KindRefund {
		if lost {
			t.counts.doubtful.Add(here)
			return
		}
		more = -more
	} else if lost {
		t.counts.doubtful.Add(here)
	}
	switch {
	case more == 0:
		t.counts.settled.Add(1)
	case more > 0 || told.Kind != weir.KindTake:
		t.owe(c, more, told.Decisions[i].ResetAfter)
	case !c.Limit.ChargeRefused:
		t.giveBack(c, &reply.Decisions[i], -more)
	}
}

// owe notes units that are to be recorded in the store, or a negative number of them
// that need not be.
func (t *Taker) owe(c *weir.Charge, units int64, fresh time.Duration) {
	if units == 0 || c.Limit.Algorithm == weir.Concurrency {
		return
	}
	if units > 0 {
		units -= t.returns.cancel(c, units)
	}
	now := t.now()
	if !t.debts.add(c, units, span{now, now + fresh.Microseconds()}) {
		t.counts.doubtful.Add(max(0, units))
	}
	t.wake()
}

// giveBack has units refunded that the store charged.
func (t *Taker) giveBack(c *weir.Charge, d *weir.Decision, units int64) {
	if units -= t.debts.cancel(c, units); units == 0 {
		t.counts.settled.Add(1)
		return
	}
	own := *c
	own.Cost, own.UpTo, own.At, own.Delay = units, 0, d.At, d.Delay
	if !t.returns.add(&weir.Act{Kind: weir.KindRefund, Charges: []weir.Charge{own}, Decisions: make([]weir.Decision, 1)}) {
		t.counts.doubtful.Add(units)
	}
}

// gone hands an id over to the store: what it holds here is free.
func (t *Taker) gone(known *taken, changes int) {
	if !t.ids.drop(known, changes) {
		t.ids.amend(known)
		return
	}
	for i := range known.act.Charges {
		if known.act.Charges[i].Limit.Algorithm == weir.Concurrency {
			t.leaveSlots(known)
			return
		}
	}
}

// leaveSlots frees the slots here of a holder that has them in the store.
func (t *Taker) leaveSlots(known *taken) {
	a := copyOf(&known.act)
	a.Kind, a.Hold, a.MaxWait, a.Err = weir.KindRelease, 0, 0, nil
	t.here(a)
}
