package memengine

import (
	"math"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A want is the request of one charge of an act to its key.
type want struct {
	cost      int64
	asked     int64 // the cost, and what the act asked of the key before
	keep      int64 // units that have to stay free
	forced    bool  // the charge is made even if it does not fit
	longest   int64 // µs that the act can wait
	immediate bool  // a grant must not have to wait
	delay     int64 // µs that the charge has to wait for what it is granted
}

// decide charges the act's keys if all its charges fit, now or in time.
// redisengine/lua/act.lua is its twin.
func (c *call) decide(a *weir.Act, now int64) {
	fits := true
	if a.Alternatives() {
		for i := 0; i < len(a.Charges); i = acts.GroupEnd(a, i) {
			fits = c.choose(a, i, now) && fits
		}
	} else {
		fits = c.weigh(a, 0, len(a.Charges), now)
	}
	switch {
	case a.Dry:
		c.wouldGrant(a, fits)
		return
	case fits:
		c.grant(a, now)
		return
	}
	if t := &c.slots[0]; a.Anonymous && t.rule.HoldsSlots() {
		t.state.Refuse(a.Charges[0].Cost, now)
		t.dirty = true
	}
	c.block(a, now)
	for i := range a.Charges {
		if t := &c.slots[c.slotOf[i]]; t.rule.ChargeRefused && a.Decisions[i].Outcome == weir.Refused {
			c.noteRefused(a, i, t.overcharge(a.Charges[i].Cost), now)
		}
	}
}

// wouldGrant fills in the decisions of a dry run: those of a grant, without its units, if all
// charges fit.
func (c *call) wouldGrant(a *weir.Act, fits bool) {
	for i := range a.Decisions {
		if d := &a.Decisions[i]; fits && d.Outcome == weir.NotCharged {
			d.Outcome, d.Delay = weir.Granted, time.Duration(c.wants[i].delay)*time.Microsecond
		}
	}
}

// weigh reports whether the charges from the i-th to the one before end all fit.
func (c *call) weigh(a *weir.Act, i, end int, now int64) bool {
	fits, longest := true, a.MaxWait.Microseconds()
	for ; i < end; i++ {
		charge, t, w, d := &a.Charges[i], &c.slots[c.slotOf[i]], &c.wants[i], &a.Decisions[i]
		t.asked += charge.Cost
		*w = want{cost: charge.Cost, asked: t.asked, keep: charge.Keep, forced: charge.Guaranteed, longest: longest, immediate: a.Immediate}
		*d = weir.Decision{Outcome: weir.NotCharged, Source: acts.SourceStore, At: time.UnixMicro(now)}
		if w.cost > 0 && (c.blocked(i) || !t.fits(w, now)) {
			d.Outcome, fits = weir.Refused, false
		}
		if charge.Waived {
			*d = weir.Decision{Source: acts.SourceStore}
		}
	}
	return fits
}

// choose picks the first alternative that fits of the group that begins with the i-th
// charge, or with UpTo the one that is granted most, and reports whether there is one. The
// others are not evaluated then. Of alternatives without a cost, a take with an ID picks the
// one with most room, which is what it can be settled on. Later groups see the units of the chosen alternative, or
// else of the one that would fit first.
func (c *call) choose(a *weir.Act, from int, now int64) bool {
	group := acts.GroupEnd(a, from)
	peeks, chosen, soonest, most, shortest := acts.Peeks(a, from, group), -1, -1, int64(0), int64(0)
	holds := peeks && a.ID != ""
	for i := from; i < group && (peeks || chosen < 0 || a.Charges[i].UpTo > 0); i = acts.AltEnd(a, i) {
		end := acts.AltEnd(a, i)
		fits := c.weigh(a, i, end, now)
		c.ask(a, i, -1)
		if fits {
			units := c.most(a, i, end)
			if holds {
				units = c.roomIn(a, i, end)
			}
			if chosen < 0 || units > most {
				chosen, most = i, units
			}
			continue
		}
		wait := int64(0)
		for j := i; j < end; j++ {
			if a.Decisions[j].Outcome == weir.Refused {
				wait = max(wait, c.slots[c.slotOf[j]].retry(&c.wants[j], now), c.blockLeft(j, now))
			}
		}
		if soonest < 0 || wait < shortest {
			soonest, shortest = i, wait
		}
	}
	if chosen < 0 {
		c.ask(a, soonest, 1)
		return false
	}
	if c.ask(a, chosen, 1); !peeks || holds {
		clear(a.Decisions[from:chosen])
		clear(a.Decisions[acts.AltEnd(a, chosen):group])
	}
	return true
}

// ask adds the costs of the alternative that begins with the i-th charge to those of the
// act's keys, or subtracts them.
func (c *call) ask(a *weir.Act, i int, sign int64) {
	for end := acts.AltEnd(a, i); i < end; i++ {
		c.slots[c.slotOf[i]].asked += sign * a.Charges[i].Cost
	}
}

// fits reports whether a charge fits, now or within the time that the act can
// wait, and notes the delay.
func (t *slot) fits(w *want, now int64) bool {
	total := t.state.Used + w.asked + w.keep
	switch {
	case w.forced:
		return true
	case w.asked+w.keep > t.rule.Burst:
		return false
	case t.rule.Delays():
		w.delay = t.queued(w, now)
		return total <= t.rule.Burst && (w.delay == 0 || !w.immediate && (w.longest == 0 || w.delay <= w.longest))
	case total <= t.rule.Burst:
		return true
	case w.longest == 0 || total > t.rule.Cap:
		return false
	}
	w.delay = t.rule.Wait(&t.state, now, w.asked)
	return w.delay <= w.longest
}

// queued is how long a charge has to wait for all that was queued before it.
func (t *slot) queued(w *want, now int64) int64 {
	later := t.state
	later.Used = min(later.Used+w.asked-w.cost, t.rule.Cap)
	return t.rule.Fresh(&later, now)
}

// behind reports whether the act's own units before the charge take longer to leave the
// queue than the charge can wait, even if the queue is empty.
func (t *slot) behind(w *want) bool {
	own := w.asked - w.cost
	if own == 0 || !t.rule.Delays() || !w.immediate && w.longest == 0 {
		return false
	}
	// It begins to drain within the tick.
	delay := t.rule.Fresh(&algo.State{Used: own}, 0) - t.rule.Tick + 1
	return w.immediate || delay > w.longest
}

// most returns the units that the charges from the i-th to the one before end can be granted
// in an up-to act; 0 in others.
func (c *call) most(a *weir.Act, i, end int) int64 {
	most := a.Charges[i].UpTo
	for ; i < end && most > 0; i++ {
		if t, w := &c.slots[c.slotOf[i]], &c.wants[i]; a.Decisions[i].Outcome != weir.NotEvaluated && !w.forced {
			most = min(most, (t.rule.Burst-t.state.Used-w.keep)/(w.asked/w.cost))
		}
	}
	return most
}

// roomIn returns how much room the charges from the i-th to the one before end have.
func (c *call) roomIn(a *weir.Act, i, end int) int64 {
	room := int64(math.MaxInt64)
	for ; i < end; i++ {
		if t, w := &c.slots[c.slotOf[i]], &c.wants[i]; !w.forced && !a.Charges[i].Waived {
			if room = min(room, t.rule.Burst-t.state.Used-w.asked-w.keep); c.blocked(i) {
				room = min(room, 0)
			}
		}
	}
	return room
}

func (c *call) grant(a *weir.Act, now int64) {
	most := c.most(a, 0, len(a.Charges))
	var beyond []int64 // units of each charge that are granted but not charged
	for i := range a.Charges {
		t, granted, d := &c.slots[c.slotOf[i]], a.Charges[i].Cost, &a.Decisions[i]
		if d.Outcome == weir.NotEvaluated {
			continue
		}
		if most > 0 {
			granted = most
			if t.rule.Delays() {
				// The act's charges before this one were granted more than their cost.
				c.wants[i].delay = t.rule.Fresh(&t.state, now)
			}
		}
		d.Outcome, d.Granted, d.Delay = weir.Granted, granted, time.Duration(c.wants[i].delay)*time.Microsecond
		t.state.Refundable = t.state.Refundable || a.ID != "" && granted > 0
		if a.Anonymous && t.rule.HoldsSlots() {
			if granted > 0 {
				t.occupy(granted, now)
			}
			continue
		}
		if c.wants[i].forced {
			if more := granted - t.overcharge(granted); more > 0 {
				if beyond == nil {
					beyond = make([]int64, len(a.Charges))
				}
				beyond[i] = more
			}
			continue
		}
		t.state.Used += granted
		if t.rule.HoldsSlots() && granted > 0 {
			t.state.Hold(c.record, now, now+t.rule.Period)
			t.dirty = true
		}
	}
	if beyond != nil && a.ID != "" {
		c.noteGranted(a, beyond, now)
	}
}

// noteGranted notes the units that a granted act was charged, for the record of its ID: those
// beyond the bound of a guaranteed charge are never given back.
func (c *call) noteGranted(a *weir.Act, beyond []int64, now int64) {
	c.charged = make([]algo.Grant, len(a.Charges))
	for i := range a.Decisions {
		d := &a.Decisions[i]
		units := d.Granted - beyond[i]
		c.charged[i] = algo.Grant{Units: units, Whole: units, At: now, Delay: d.Delay.Microseconds()}
	}
}

// noteRefused notes the units that a refused charge was charged, for the record of the
// act's ID. They may be given back by an amendment.
func (c *call) noteRefused(a *weir.Act, i int, units, now int64) {
	if a.ID == "" {
		return
	}
	if c.charged == nil {
		c.charged = make([]algo.Grant, len(a.Charges))
	}
	c.charged[i] = algo.Grant{Units: units, Whole: units, At: now}
	t := &c.slots[c.slotOf[i]]
	t.state.Refundable = t.state.Refundable || units > 0
}

// overcharge charges units that may not fit, up to one full drain beyond the limit, and
// returns their number.
func (t *slot) overcharge(units int64) int64 {
	if t.rule.HoldsSlots() {
		return 0
	}
	before := t.state.Used
	t.state.Used = max(before, min(before+units, t.rule.Debt))
	return t.state.Used - before
}

// report fills in the remaining units and the waits when all charges are made and
// published.
func (c *call) report(a *weir.Act, now int64) {
	for i := range a.Charges {
		d, t := &a.Decisions[i], &c.slots[c.slotOf[i]]
		switch {
		case d.Outcome != weir.NotEvaluated:
			t.report(d, &c.wants[i], now)
		case a.Kind == acts.KindAmend:
			continue
		default:
			d.Remaining = t.room(&want{keep: a.Charges[i].Keep, immediate: a.Immediate})
		}
		if a.Charges[i].Guaranteed && i > 0 {
			d.Remaining = max(d.Remaining, a.Decisions[i-1].Remaining)
		}
		if c.blocked(i) {
			c.reportBlock(d, i)
		}
		if c.answered != nil {
			answered := &c.answered[i]
			answered.Remaining, answered.ResetAfter = d.Remaining, d.ResetAfter
			d.RetryAfter, d.Blocked = answered.RetryAfter, answered.Blocked
		}
	}
}

func (t *slot) report(d *weir.Decision, w *want, now int64) {
	d.Remaining = t.room(w)
	d.ResetAfter = algo.Duration(t.fresh)
	if d.Outcome == weir.Refused {
		d.RetryAfter = algo.Duration(t.retry(w, now))
	}
}

// room is how many units one more charge could take.
func (t *slot) room(w *want) int64 {
	if w.immediate && t.rule.Delays() && t.state.Used > 0 {
		return 0
	}
	return max(0, t.rule.Burst-t.state.Used-w.keep)
}

// retry is how long until a charge fits that did not.
func (t *slot) retry(w *want, now int64) int64 {
	need := w.asked + w.keep
	if need > t.rule.Burst || t.behind(w) {
		return int64(algo.Never)
	}
	wait := int64(0)
	if t.state.Used+need > t.rule.Burst {
		wait = t.rule.Wait(&t.state, now, need)
	}
	switch {
	case t.rule.Delays() && w.immediate:
		wait = max(wait, t.queued(w, now))
	case t.rule.Delays() && w.longest > 0:
		wait = max(wait, t.queued(w, now)-w.longest)
	case !t.rule.Delays() && w.longest > 0:
		wait -= w.longest
		if over := t.state.Used + w.asked - t.rule.Cap; over > 0 {
			wait = max(wait, t.rule.Wait(&t.state, now, over+t.rule.Burst-t.state.Used))
		}
	}
	return wait
}
