package memstore

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// decide charges the act's keys if all its charges fit, now or in time.
// redisstore/lua/act.lua is its twin.
func (c *call) decide(a *weir.Act, now int64) {
	fits := true
	for i := range a.Charges {
		t := &c.slots[c.slotOf[i]]
		t.asked += a.Charges[i].Cost
		c.asked[i], c.delay[i] = t.asked, 0
		a.Decisions[i] = weir.Decision{Outcome: weir.Spared, Source: weir.SourceStore, At: now}
		if a.Charges[i].Cost > 0 && !c.fits(a, i, now) {
			a.Decisions[i].Outcome = weir.Refused
			fits = false
		}
	}
	if fits {
		c.grant(a, now)
		return
	}
	for i := range a.Charges {
		if t := &c.slots[c.slotOf[i]]; t.rule.ChargeRefused && a.Decisions[i].Outcome == weir.Refused {
			t.owe(a.Charges[i].Cost)
		}
	}
}

// fits reports whether a charge fits, now or within the time that the act can
// wait, and notes the delay.
func (c *call) fits(a *weir.Act, i int, now int64) bool {
	t, longest := &c.slots[c.slotOf[i]], a.MaxWait.Microseconds()
	total := t.state.Used + t.asked
	switch {
	case t.asked > t.rule.Burst:
		return false
	case t.step.Delay != nil:
		c.delay[i] = t.queued(now, t.asked-a.Charges[i].Cost)
		return total <= t.rule.Burst && (c.delay[i] == 0 || !a.Immediate && (longest == 0 || c.delay[i] <= longest))
	case total <= t.rule.Burst:
		return true
	case longest == 0 || total > t.rule.Cap:
		return false
	}
	c.delay[i] = t.step.Wait(&t.state, t.rule, now, t.asked)
	return c.delay[i] <= longest
}

// queued is how long what comes after so many units more has to wait.
func (t *slot) queued(now, units int64) int64 {
	t.later = t.state
	t.later.Used = min(t.later.Used+units, t.rule.Cap)
	return t.step.Delay(&t.later, t.rule, now)
}

func (c *call) grant(a *weir.Act, now int64) {
	most := a.Charges[0].UpTo
	for i := range a.Charges {
		if most > 0 {
			t := &c.slots[c.slotOf[i]]
			most = min(most, (t.rule.Burst-t.state.Used)/(t.asked/a.Charges[i].Cost))
		}
	}
	for i := range a.Charges {
		t, granted := &c.slots[c.slotOf[i]], a.Charges[i].Cost
		if most > 0 {
			granted = most
		}
		d := &a.Decisions[i]
		d.Outcome, d.Granted, d.Delay = weir.Granted, granted, time.Duration(c.delay[i])*time.Microsecond
		t.state.Used += granted
		if t.rule.ID == algo.Concurrency && granted > 0 {
			t.state.Hold(a.ID, now, now+t.rule.Period)
			t.dirty = true
		}
	}
}

// owe charges units that may not fit, up to the debt, and returns how many.
func (t *slot) owe(units int64) int64 {
	if t.rule.ID == algo.Concurrency {
		return 0
	}
	before := t.state.Used
	t.state.Used = max(before, min(before+units, t.rule.Debt))
	return t.state.Used - before
}

// report says what remains, and how long to wait, once all is charged.
func (c *call) report(a *weir.Act, now int64) {
	for i := range a.Charges {
		d, t := &a.Decisions[i], &c.slots[c.slotOf[i]]
		d.Remaining = algo.Room(&t.state, t.rule)
		if a.Kind == weir.Take && a.Immediate && t.step.Delay != nil && t.state.Used > 0 {
			d.Remaining = 0
		}
		d.ResetAfter = algo.Duration(t.step.Fresh(&t.state, t.rule, now))
		if d.Outcome == weir.Refused {
			d.RetryAfter = algo.Duration(c.retry(a, i, now))
		}
	}
}

func (c *call) retry(a *weir.Act, i int, now int64) int64 {
	t, asked, longest := &c.slots[c.slotOf[i]], c.asked[i], a.MaxWait.Microseconds()
	if asked > t.rule.Burst {
		return int64(algo.Never)
	}
	wait := int64(0)
	if t.state.Used+asked > t.rule.Burst {
		wait = t.step.Wait(&t.state, t.rule, now, asked)
	}
	switch {
	case t.step.Delay != nil && a.Immediate:
		wait = max(wait, t.queued(now, asked-a.Charges[i].Cost))
	case t.step.Delay != nil && longest > 0:
		wait = max(wait, t.queued(now, asked-a.Charges[i].Cost)-longest)
	case t.step.Delay == nil && longest > 0:
		wait -= longest
		if over := t.state.Used + asked - t.rule.Cap; over > 0 {
			wait = max(wait, t.step.Wait(&t.state, t.rule, now, over+t.rule.Burst-t.state.Used))
		}
	}
	return wait
}
