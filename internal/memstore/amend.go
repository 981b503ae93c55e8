package memstore

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// amend corrects a take to the answer that its caller got. redisstore/lua/act.lua does
// the same.
func (c *call) amend(a *weir.Act, known *record, now int64) {
	c.answered = make([]weir.Decision, len(a.Charges))
	c.charged = make([]algo.Grant, len(a.Charges))
	at := now
	if known != nil {
		at = known.answer.at
	}
	granted := a.Allowed()
	// Units go back before others are charged: alternatives may charge one key, and a holder
	// has one slot of it.
	done := make([]bool, len(a.Charges))
	for _, undo := range [...]bool{true, false} {
		// The last first: what an act has booked twice stands in line behind itself.
		for i := len(a.Charges) - 1; i >= 0; i-- {
			if !done[i] {
				done[i] = c.amendCharge(a, i, known, at, now, granted, undo)
			}
		}
	}
}

// amendCharge amends one charge, and reports whether it did: if it is to undo, only a charge
// of which units go back.
func (c *call) amendCharge(a *weir.Act, i int, known *record, at, now int64, granted, undo bool) bool {
	t, was := &c.slots[c.slotOf[i]], algo.Grant{}
	if known != nil {
		was = held(a, i, known, now)
	}
	if !granted && a.Decisions[i].Outcome == weir.Granted {
		a.Decisions[i].Outcome = weir.NotCharged
	}
	if c.answered[i] = repeated(&a.Decisions[i], at); a.Decisions[i].Outcome == weir.NotEvaluated && acts.Optional(a, i) {
		c.answered[i] = weir.Decision{}
	}
	if granted && a.Charges[i].Waived {
		c.answered[i] = weir.Decision{Source: acts.SourceStore}
	}
	if was.Units == 0 {
		was = algo.Grant{At: now, Delay: c.answered[i].Delay.Microseconds()}
	}
	due := t.due(&a.Charges[i], &c.answered[i])
	if undo && due >= was.Units {
		return false
	}
	c.charged[i] = c.amendOne(a, i, was, due, now)
	c.wants[i] = want{keep: a.Charges[i].Keep, immediate: a.Immediate}
	d := c.answered[i]
	if d.Outcome != weir.NotEvaluated {
		d.At = time.UnixMicro(now)
	}
	if d.Outcome == weir.Granted {
		d.Granted = c.charged[i].Units
	}
	a.Decisions[i] = d
	return true
}

// repeated returns the answer to a repeat of the take.
func repeated(d *weir.Decision, at int64) weir.Decision {
	t := weir.Decision{Outcome: d.Outcome, Source: acts.SourceStore, At: time.UnixMicro(at)}
	switch t.Outcome {
	case weir.Granted:
		t.Granted, t.Delay = d.Granted, d.Delay.Truncate(time.Microsecond)
	case weir.Refused:
		t.RetryAfter = d.RetryAfter
		if t.RetryAfter != weir.Never {
			t.RetryAfter = t.RetryAfter.Truncate(time.Microsecond)
		}
	default:
		t.Outcome = weir.NotCharged
	}
	return t
}

// due returns the number of units to charge for the answer that the caller got.
func (t *slot) due(c *weir.Charge, d *weir.Decision) int64 {
	if d.Outcome == weir.Refused && t.rule.ChargeRefused {
		return c.Cost
	}
	return d.Granted
}

// amend replaces the units that the key was charged by so many, and returns the number
// that is then charged.
func (c *call) amendOne(a *weir.Act, i int, was algo.Grant, units, now int64) algo.Grant {
	t := &c.slots[c.slotOf[i]]
	switch {
	case units < was.Units:
		back := was
		back.Units -= units
		t.undo(c.record, back, now)
		t.dirty, was.Units = true, units
	case units > was.Units:
		was.Units += t.put(c.record, units-was.Units, now)
		t.state.Refundable = true
	}
	was.Whole = was.Units
	return was
}

// put charges units that may not fit, or gives the holder a slot.
func (t *slot) put(id recordName, units, now int64) int64 {
	if !t.rule.HoldsSlots() {
		return t.overcharge(units)
	}
	t.state.Hold(id, now, now+t.rule.Period)
	t.dirty = true
	return 1
}
