package memengine

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// blocks returns the slot of the blocks of the i-th charge's key, or nil: its limit has none, or
// there is no room for one.
func (c *call) blocks(i int) *slot {
	if c.blockOf[i] < 0 || c.slots[c.blockOf[i]].homeless {
		return nil
	}
	return &c.slots[c.blockOf[i]]
}

// blocked reports whether the key of the i-th charge is blocked.
func (c *call) blocked(i int) bool {
	b := c.blocks(i)
	return b != nil && b.state.Used > 0
}

// blockLeft is how long the key of the i-th charge stays blocked.
func (c *call) blockLeft(i int, now int64) int64 {
	if !c.blocked(i) {
		return 0
	}
	b := c.blocks(i)
	return b.rule.Fresh(&b.state, now)
}

// block begins the blocks of the keys whose limits have refused the act. A charge that keeps
// units free is no reason: others may still use them.
func (c *call) block(a *weir.Act, now int64) {
	for i := range a.Charges {
		b := c.blocks(i)
		if b == nil || b.state.Used > 0 || a.Decisions[i].Outcome != weir.Refused || a.Charges[i].Keep > 0 {
			continue
		}
		if t := &c.slots[c.slotOf[i]]; t.retry(&c.wants[i], now) != int64(algo.Never) {
			b.rule.Block(&b.state, b.rule.Burst)
		}
	}
}

// moveBlock ends the block of the i-th charge's key by a reset, or begins one that is recorded.
func (c *call) moveBlock(a *weir.Act, i int, now int64) {
	b := c.blocks(i)
	switch {
	case b == nil:
	case a.Kind == acts.KindReset:
		b.state, b.aged, b.dirty = algo.State{At: now}, 0, true
	case a.Kind == acts.KindRecord:
		b.rule.Block(&b.state, blockUnits(a.Charges[i].Block))
	}
}

// blockUnits returns a duration in milliseconds, rounded up.
func blockUnits(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// reportBlock completes the decision about the i-th charge, whose key is blocked.
func (c *call) reportBlock(d *weir.Decision, i int) {
	left := algo.Duration(c.blocks(i).fresh)
	if d.Remaining = 0; d.Outcome == weir.NotEvaluated {
		return
	}
	d.ResetAfter, d.Blocked = max(d.ResetAfter, left), d.Outcome == weir.Granted
	if d.Outcome == weir.Refused && d.RetryAfter != weir.Never {
		d.RetryAfter, d.Blocked = max(d.RetryAfter, left), true
	}
}
