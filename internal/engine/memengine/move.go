package memengine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A move changes what is charged to a key for one charge of an act: from what it was to so
// many units. What is missing is charged even if it does not fit.
type move struct {
	was algo.Grant
	to  int64
}

// move carries out an act that is no take. Every such act moves its charges: a refund, a
// release or a settlement from what the take was charged, a record from nothing, an amendment
// to what the caller of the take was granted. An error leaves everything as it was.
func (c *call) move(a *weir.Act, now int64) error {
	for i := range a.Charges {
		if err := c.check(a, i, now); err != nil {
			return err
		}
	}
	amends := a.Kind == acts.KindAmend
	if amends {
		c.note(a, now)
	}
	// Units go back before others are charged: alternatives may charge one key, and a holder
	// has one slot of it. The last first: what an act has booked twice stands behind itself.
	for _, back := range [...]bool{true, false} {
		for i := len(a.Charges) - 1; i >= 0; i-- {
			m := c.moveOf(a, i, now)
			switch {
			case back != (m.to < m.was.Units):
			case c.untouched(a, i):
				a.Decisions[i] = weir.Decision{}
				if j := c.matchOf(i); j >= 0 {
					a.Decisions[i].Source = c.known.answer.decisions[j].Source // of a charge that was waived
				}
			default:
				c.wants[i] = want{keep: a.Charges[i].Keep, immediate: a.Immediate}
				room := c.moveOne(a, i, &m, now)
				c.moveBlock(a, i, now)
				c.answer(a, i, &m, room, now)
			}
		}
	}
	return nil
}

// check finds errors of an act before any part of it is done.
func (c *call) check(a *weir.Act, i int, now int64) error {
	t, known := &c.slots[c.slotOf[i]], c.earlier()
	switch {
	case c.untouched(a, i):
	case a.Kind == acts.KindRefund && known != nil && a.Charges[i].Cost > known.answer.decisions[c.matchOf(i)].Granted:
		return fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrOverRefund)
	case a.Kind == acts.KindRenew && t.rule.HoldsSlots() && c.held(a, i, now).Units > 0 && !t.state.Holds(c.record, now):
		return fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrUnknownID)
	}
	return nil
}

// untouched reports whether the i-th charge was no part of the take that the act is about, or
// belongs to an alternative that the take was not granted, or was waived.
func (c *call) untouched(a *weir.Act, i int) bool {
	known, j := c.earlier(), c.matchOf(i)
	return known != nil && (j < 0 || a.Kind != acts.KindAmend && known.answer.decisions[j].Outcome == weir.NotEvaluated)
}

// held returns the units that are charged for the take that an act is about.
func (c *call) held(a *weir.Act, i int, now int64) algo.Grant {
	own := &a.Charges[i]
	switch known := c.earlier(); {
	case known != nil && c.matchOf(i) >= 0:
		return known.held(c.matchOf(i))
	case known != nil, a.Kind != acts.KindRefund:
		return algo.Grant{At: now}
	case a.Anonymous:
		return algo.Grant{Units: own.Cost, Whole: own.Cost, At: now, Newest: true}
	}
	return algo.Grant{Units: own.Cost, Whole: own.Cost, At: own.At, Delay: own.Delay.Microseconds()}
}

// moveOf returns how the act moves its i-th charge.
func (c *call) moveOf(a *weir.Act, i int, now int64) move {
	m, cost := move{was: c.held(a, i, now)}, a.Charges[i].Cost
	switch a.Kind {
	case acts.KindRefund: // units beyond the bound were granted but not charged
		m.to = m.was.Units - min(cost, m.was.Units)
	case acts.KindSettle, acts.KindRecord:
		m.to = cost
	case acts.KindRenew:
		m.to = m.was.Units
	case acts.KindAmend:
		d := &c.answered[i]
		if m.to = d.Granted; d.Outcome == weir.Refused && c.slots[c.slotOf[i]].rule.ChargeRefused {
			m.to = cost
		}
		if e := c.known.ended(now); e != nil && c.granted {
			m.to = e.leaves(c.lines[i], m.to)
		}
		if m.was.Units == 0 {
			m.was = algo.Grant{At: now, Delay: d.Delay.Microseconds()}
		}
	}
	return m
}

// moveOne moves one charge, and returns how much room that makes. Afterwards m.was is what is
// charged.
func (c *call) moveOne(a *weir.Act, i int, m *move, now int64) (room int64) {
	t := &c.slots[c.slotOf[i]]
	slots := t.rule.HoldsSlots()
	t.dirty = t.dirty || a.Kind != acts.KindAmend || m.to < m.was.Units || slots && m.to > m.was.Units
	switch more := m.to - m.was.Units; {
	case a.Kind == acts.KindReset:
		t.state, t.aged = algo.State{At: now}, 0
	case a.Anonymous && slots && more < 0:
		room = t.vacate(-more, now)
	case a.Anonymous && slots:
		m.was.Units = t.occupy(min(more, max(0, t.rule.Debt-t.state.Used)), now)
	case more < 0:
		back := m.was
		back.Units = -more
		room = t.undo(c.record, back, now)
		m.was.Units = m.to
	case slots && a.Kind == acts.KindRenew && m.to > 0:
		t.state.Hold(c.record, now, now+t.lease(a))
	case slots && a.Kind == acts.KindAmend && more > 0:
		t.state.Hold(c.record, now, now+t.rule.Period)
		m.was.Units = 1
	default:
		m.was.Units += t.overcharge(more)
		t.state.Refundable = t.state.Refundable || a.Kind == acts.KindAmend && more > 0
	}
	return room
}

// answer sets the decision about a charge that was moved.
func (c *call) answer(a *weir.Act, i int, m *move, room, now int64) {
	d := &a.Decisions[i]
	if a.Kind == acts.KindAmend {
		m.was.Whole = m.was.Units
		if c.charged[i], *d = m.was, c.answered[i]; d.Outcome != weir.NotEvaluated {
			d.At = time.UnixMicro(now)
		}
		if d.Outcome == weir.Granted {
			d.Granted = m.was.Units
		}
		return
	}
	*d = weir.Decision{Outcome: weir.Granted, Source: acts.SourceStore, At: time.UnixMicro(now)}
	switch t := &c.slots[c.slotOf[i]]; a.Kind {
	case acts.KindRefund, acts.KindRelease, acts.KindWithdraw:
		d.Granted = room
	case acts.KindSettle, acts.KindRecord:
		d.Granted = m.was.Units
	case acts.KindRenew:
		if t.rule.HoldsSlots() {
			d.Granted = m.was.Units
		}
	}
}

// note takes note of what the caller of an amended take was granted.
func (c *call) note(a *weir.Act, now int64) {
	c.answered, c.charged = make([]weir.Decision, len(a.Charges)), make([]algo.Grant, len(a.Charges))
	if known := c.earlier(); known != nil {
		now = known.answer.at
	}
	c.granted = a.Allowed()
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if !c.granted && d.Outcome == weir.Granted {
			d.Outcome = weir.NotCharged
		}
		if c.matchOf(i) >= 0 && !acts.PassedOver(a, i) {
			c.answered[i] = repeated(d, now)
		}
		if c.granted && a.Charges[i].Waived {
			c.answered[i] = weir.Decision{Source: acts.SourceStore}
		}
	}
}

// repeated returns the answer to a repeat of the take.
func repeated(d *weir.Decision, at int64) weir.Decision {
	t := weir.Decision{Outcome: d.Outcome, Source: acts.SourceStore, At: time.UnixMicro(at)}
	switch t.Outcome {
	case weir.Granted:
		t.Granted, t.Delay = d.Granted, d.Delay.Truncate(time.Microsecond)
	case weir.Refused:
		t.RetryAfter, t.Blocked = d.RetryAfter, d.Blocked
		if t.RetryAfter != weir.Never {
			t.RetryAfter = t.RetryAfter.Truncate(time.Microsecond)
		}
	default:
		t.Outcome = weir.NotCharged
	}
	return t
}

// lease is how long a renewal lasts.
func (t *slot) lease(a *weir.Act) int64 {
	if a.Hold > 0 {
		return a.Hold.Microseconds()
	}
	return t.rule.Period
}

// occupy takes slots for anonymous holders.
func (t *slot) occupy(n, now int64) int64 {
	t.state.Occupy(rand.Uint64(), n, now, now+t.rule.Period)
	t.dirty = true
	return n
}

// vacate refunds anonymous holders.
func (t *slot) vacate(n, now int64) int64 {
	units, slots := t.state.Vacate(n, now)
	t.aged -= slots
	return units
}

// undo takes a grant back and returns how much room that makes.
func (t *slot) undo(id recordName, grant algo.Grant, now int64) (back int64) {
	switch {
	case !t.rule.HoldsSlots():
		back = t.rule.Refund(&t.state, now, grant)
		t.state.Refundable = true
	case t.state.Holds(id, now):
		t.state.Hold(id, now, 0)
		back = 1
	}
	t.aged -= back
	return back
}
