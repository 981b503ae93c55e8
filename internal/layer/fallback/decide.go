package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir"
)

// learn notes what the store said about keys of which it may not be asked next
// time.
func (t *Taker) learn(a *weir.Act) {
	now := t.now()
	for i := range a.Charges {
		c, d := &a.Charges[i], &a.Decisions[i]
		if d.Source == weir.SourceStore && t.policy(c) == Local {
			t.known.put(c, d, now)
		}
	}
}

// instead decides an act that the store did not, for a reason, and sees to it that the
// store learns of it.
func (t *Taker) instead(a *weir.Act, reason error) {
	a.Err = nil
	if a.Prepare() {
		return
	}
	policy := t.strictest(a)
	if a.Kind != weir.KindTake && (policy != Local || a.ID != "" || a.Kind == weir.KindReset) {
		// Only the store knows what this is about.
		policy = Error
	}
	switch policy {
	case Error:
		t.counts.errors.Add(1)
		a.Err = fmt.Errorf("weir: %v: %w", a.Kind, reason)
	case Deny:
		t.counts.denied.Add(1)
		t.deny(a)
	case Allow:
		t.counts.allowed.Add(1)
		t.here(a)
	default:
		t.counts.local.Add(1)
		t.here(a)
		t.wake()
	}
	var late weir.Pending
	if errors.As(reason, &late) {
		t.follow(a, late, reason)
	} else if a.Err == nil {
		t.note(a)
	}
}

// strictest returns the policy that decides an act.
func (t *Taker) strictest(a *weir.Act) Policy {
	strictest := Allow
	for i := range a.Charges {
		c := &a.Charges[i]
		switch p := t.policy(c); {
		case p == Error:
			return Error
		case p == Deny && (c.Cost > 0 || a.Kind != weir.KindTake):
			strictest = Deny
		case p == Local && strictest == Allow:
			strictest = Local
		}
	}
	return strictest
}

// deny refuses an act.
func (t *Taker) deny(a *weir.Act) {
	for i := range a.Charges {
		a.Decisions[i] = weir.Decision{}
		if t.policy(&a.Charges[i]) == Deny {
			a.Decisions[i] = closed(&a.Charges[i])
		}
	}
}

// closed is the answer of a limit that refuses all but looks.
func closed(c *weir.Charge) weir.Decision {
	if c.Cost == 0 {
		return weir.Decision{Outcome: weir.Granted, Source: weir.SourceFailClosed}
	}
	return weir.Decision{Outcome: weir.Refused, Source: weir.SourceFailClosed, RetryAfter: RetryAfter}
}

// scratch is the act that the local store sees: the Local charges, under their
// shares.
type scratch struct {
	act    weir.Act
	acts   [1]*weir.Act
	places []int // of each charge in the whole act
}

// here decides the Local charges of an act from memory. Charges under other policies
// follow the result.
func (t *Taker) here(a *weir.Act) {
	s := t.scratch.Get().(*scratch)
	defer t.put(s)
	t.part(s, a)
	if len(s.places) > 0 {
		t.local.Take(context.Background(), s.acts[:])
	}
	if a.Err = s.act.Err; a.Err != nil {
		return
	}
	granted := s.act.Allowed()
	for i := range a.Charges {
		a.Decisions[i] = t.open(&a.Charges[i], granted)
		if upTo := a.Charges[i].UpTo; granted && upTo > 0 {
			a.Decisions[i].Granted = upTo
			if len(s.places) > 0 {
				a.Decisions[i].Granted = s.act.Decisions[0].Granted
			}
		}
	}
	for j, i := range s.places {
		a.Decisions[i] = told(&s.act.Decisions[j], &a.Charges[i])
	}
}

// put keeps the memory for later, without what it refers to.
func (t *Taker) put(s *scratch) {
	clear(s.act.Charges)
	s.act = weir.Act{Charges: s.act.Charges[:0], Decisions: s.act.Decisions[:0]}
	t.scratch.Put(s)
}

// part copies what of an act is decided here.
func (t *Taker) part(s *scratch, a *weir.Act) {
	charges, decisions := s.act.Charges[:0], s.act.Decisions[:0]
	s.act, s.places = *a, s.places[:0]
	s.act.Err = nil
	for i := range a.Charges {
		c := &a.Charges[i]
		if t.policy(c) != Local {
			continue
		}
		own := *c
		own.Limit = t.begin(c)
		charges, decisions = append(charges, own), append(decisions, weir.Decision{})
		s.places = append(s.places, i)
	}
	s.act.Charges, s.act.Decisions, s.acts[0] = charges, decisions, &s.act
}

// open is the answer of a limit that is not Local.
func (t *Taker) open(c *weir.Charge, granted bool) weir.Decision {
	if t.policy(c) == Deny {
		return closed(c)
	}
	d := weir.Decision{Outcome: weir.Granted, Source: weir.SourceFailOpen, Granted: c.Cost, Remaining: c.Limit.Capacity()}
	if !granted {
		d.Outcome, d.Granted = weir.NotCharged, 0
	}
	return d
}

// told is what the local store said, as the caller gets it. What is above the share
// but not above the limit will fit when the store is reachable.
func told(d *weir.Decision, c *weir.Charge) weir.Decision {
	said := *d
	said.Source = weir.SourceFallback
	if said.RetryAfter == weir.Never && c.Cost <= c.Limit.Capacity() {
		said.RetryAfter = RetryAfter
	}
	return said
}

// begin returns the limit that holds for a charge here. The first charge of a key since
// everything was settled finds what the store last said.
func (t *Taker) begin(c *weir.Charge) *weir.Limit {
	if c.Cost == 0 && c.Limit.ChargeRefused && c.Limit.Algorithm == weir.FixedWindow {
		// A peek at a counter wants to know what was counted.
		return c.Limit
	}
	n := max(1, t.instances())
	share := t.shares.of(c.Limit, n)
	here := t.debts.begin(c, func() *weir.Limit {
		left := t.left(c, n)
		if c.Limit.Algorithm == weir.Concurrency {
			return slots(share, left)
		}
		t.seed(c, share, left)
		return nil
	})
	if here != nil {
		return here
	}
	return share
}

// left is this instance's part of what the store last said to be left, less what
// callers ask for that still wait.
func (t *Taker) left(c *weir.Charge, instances int) int64 {
	left := t.known.remaining(c, t.now())
	if t.flight != nil {
		left = max(0, left-t.flight.InFlight(c.Key, c.Limit.Algorithm))
	}
	return max(left/int64(instances), min(1, left))
}

// seed charges a key's share here with what the store had already spent when it last
// answered.
func (t *Taker) seed(c *weir.Charge, share *weir.Limit, left int64) {
	a := weir.Act{Charges: []weir.Charge{{Key: c.Key, HashTag: c.HashTag, Limit: share}}, Decisions: make([]weir.Decision, 1)}
	t.local.Take(context.Background(), []*weir.Act{&a})
	if more := a.Decisions[0].Remaining - min(left, share.Capacity()); a.Err == nil && more > 0 {
		a.Kind, a.Charges[0].Cost = weir.KindRecord, more
		t.local.Take(context.Background(), []*weir.Act{&a})
	}
}

// slots is a concurrency limit of the slots that are left.
func slots(share *weir.Limit, left int64) *weir.Limit {
	if left >= share.Count {
		return share
	}
	part := *share
	part.Count = left
	return part.MustCompile()
}
