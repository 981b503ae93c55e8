package memstore

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// change carries out an act that is no take: it refunds, settles, releases, renews,
// records or resets. An error leaves everything as it was.
func (c *call) change(a *weir.Act, known *record, now int64) error {
	for i := range a.Charges {
		if err := c.check(a, i, known, now); err != nil {
			return err
		}
	}
	// The last first: what an act has booked twice stands in line behind itself.
	for i := len(a.Charges) - 1; i >= 0; i-- {
		if untouched(i, known) {
			a.Decisions[i] = weir.Decision{Source: known.answer.decisions[i].Source}
			continue
		}
		t := &c.slots[c.slotOf[i]]
		t.dirty, c.wants[i] = true, want{keep: a.Charges[i].Keep, immediate: a.Immediate}
		a.Decisions[i] = weir.Decision{
			Outcome: weir.Granted, Source: acts.SourceStore, At: time.UnixMicro(now),
			Granted: c.apply(a, i, held(a, i, known, now), now),
		}
	}
	return nil
}

// check finds errors of an act before any part of it is done.
func (c *call) check(a *weir.Act, i int, known *record, now int64) error {
	t, grant := &c.slots[c.slotOf[i]], held(a, i, known, now)
	switch {
	case untouched(i, known):
	case a.Kind == acts.KindRefund && known != nil && a.Charges[i].Cost > known.answer.decisions[i].Granted:
		return fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrOverRefund)
	case a.Kind == acts.KindRenew && t.rule.HoldsSlots() && grant.Units > 0 && !t.state.Holds(c.record, now):
		return fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrUnknownID)
	}
	return nil
}

// untouched reports whether the i-th charge belongs to an alternative that the take was not
// granted, or was waived.
func untouched(i int, known *record) bool {
	return known != nil && known.answer.decisions[i].Outcome == weir.NotEvaluated
}

// held returns the units that are charged for the take that an act is about.
func held(a *weir.Act, i int, known *record, now int64) algo.Grant {
	switch {
	case known != nil && known.charged != nil:
		return known.charged[i]
	case known == nil:
		c := &a.Charges[i]
		if a.Anonymous {
			return algo.Grant{Units: c.Cost, Whole: c.Cost, At: now, Newest: true}
		}
		return algo.Grant{Units: c.Cost, Whole: c.Cost, At: c.At, Delay: c.Delay.Microseconds()}
	}
	d := &known.answer.decisions[i]
	return algo.Grant{Units: d.Granted, Whole: d.Granted, At: known.answer.at, Delay: d.Delay.Microseconds()}
}

func (c *call) apply(a *weir.Act, i int, grant algo.Grant, now int64) int64 {
	t, cost := &c.slots[c.slotOf[i]], a.Charges[i].Cost
	if a.Anonymous && t.rule.HoldsSlots() {
		if a.Kind == acts.KindRefund {
			return t.vacate(cost, now)
		}
		return t.occupy(min(cost, max(0, t.rule.Debt-t.state.Used)), now)
	}
	switch a.Kind {
	case acts.KindRefund:
		// Units beyond the bound were granted but not charged.
		grant.Units = min(cost, grant.Units)
		return t.undo(c.record, grant, now)
	case acts.KindSettle:
		if cost >= grant.Units {
			return grant.Units + t.overcharge(cost-grant.Units)
		}
		grant.Units -= cost
		t.undo(c.record, grant, now)
		return cost
	case acts.KindRelease:
		return t.undo(c.record, grant, now)
	case acts.KindRenew:
		return t.renew(c.record, a, grant, now)
	case acts.KindRecord:
		return t.overcharge(cost)
	default: // reset
		t.state, t.aged = algo.State{At: now}, 0
		return 0
	}
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
	t.dirty = true
	return units
}

// undo takes a grant undo and returns how much room that makes.
func (t *slot) undo(id recordName, grant algo.Grant, now int64) int64 {
	var back int64
	switch {
	case grant.Units == 0:
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

func (t *slot) renew(id recordName, a *weir.Act, grant algo.Grant, now int64) int64 {
	if !t.rule.HoldsSlots() || grant.Units == 0 {
		return 0
	}
	lease := a.Hold.Microseconds()
	if lease == 0 {
		lease = t.rule.Period
	}
	t.state.Hold(id, now, now+lease)
	return 1
}
