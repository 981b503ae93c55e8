package memstore

import (
	"hash/maphash"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// A call is the scratch memory of one act: its keys, each once.
type call struct {
	slots      []slot
	slotOf     [weir.MaxCharges]int32 // the slot of each charge
	asked      [weir.MaxCharges]int64 // what the act asks of that slot up to each charge
	shards     []uint32               // the shards to lock, ascending
	overflowed bool                   // the overflow's lock is held
}

// A slot is one key of an act: the scratch copy of its state.
type slot struct {
	shard    uint32
	known    bool // the key has a cell
	clamped  bool
	shared   *cell // the overflow's cell that stands in for the key's own
	extBytes int64 // memory of the cell's Ext
	key      string
	limit    *weir.Limit
	rule     *algo.Rule
	step     *algo.Step
	state    algo.State
	aged     int64 // state.Used when it was read
	asked    int64 // what the act has asked of the key so far
}

func (c *call) gather(s *Store, a *weir.Act) {
	for i := range a.Charges {
		charge := &a.Charges[i]
		rule := charge.Limit.Rule()
		j := slices.IndexFunc(c.slots, func(t slot) bool { return t.rule.ID == rule.ID && t.key == charge.Key })
		if j < 0 {
			j = len(c.slots)
			shard := uint32(maphash.String(s.seed, charge.Key) % shardCount)
			c.slots = append(c.slots, slot{
				shard: shard, key: charge.Key, limit: charge.Limit, rule: rule, step: &algo.Steps[rule.ID],
			})
			c.shards = append(c.shards, shard)
		}
		c.slotOf[i] = int32(j)
	}
}

// merge makes one slot of those that share one of the overflow's cells.
func (c *call) merge(charges int) {
	for i := range charges {
		shared := c.slots[c.slotOf[i]].shared
		if shared != nil {
			c.slotOf[i] = int32(slices.IndexFunc(c.slots, func(t slot) bool { return t.shared == shared }))
		}
	}
}

// lock takes the shards' locks in ascending order, so that no two acts wait for
// each other.
func (c *call) lock(s *Store) {
	slices.Sort(c.shards)
	c.shards = slices.Compact(c.shards)
	for _, i := range c.shards {
		s.shards[i].mu.Lock()
	}
}

func (c *call) unlock(s *Store) {
	if c.overflowed {
		s.overflow.mu.Unlock()
	}
	for _, i := range c.shards {
		s.shards[i].mu.Unlock()
	}
}

func (c *call) reset() {
	clear(c.slots)
	c.slots, c.shards, c.overflowed = c.slots[:0], c.shards[:0], false
}

// decide charges the act's keys if all its charges fit. redisstore/lua/act.lua
// is its twin.
func (c *call) decide(a *weir.Act, now int64) {
	fits := true
	for i := range a.Charges {
		t := &c.slots[c.slotOf[i]]
		t.asked += a.Charges[i].Cost
		c.asked[i] = t.asked
		a.Decisions[i] = weir.Decision{Outcome: weir.Spared, Source: weir.SourceStore, At: now}
		if a.Charges[i].Cost > 0 && t.state.Used+t.asked > t.rule.Burst {
			a.Decisions[i].Outcome = weir.Refused
			fits = false
		}
	}
	if fits {
		c.grant(a)
		return
	}
	for i := range a.Charges {
		if t := &c.slots[c.slotOf[i]]; t.rule.ChargeRefused && a.Decisions[i].Outcome == weir.Refused {
			t.state.Used = min(t.state.Used+a.Charges[i].Cost, weir.MaxCount)
		}
	}
}

func (c *call) grant(a *weir.Act) {
	most := a.Charges[0].UpTo
	for i := range a.Charges {
		if most > 0 {
			t := &c.slots[c.slotOf[i]]
			most = min(most, (t.rule.Burst-t.state.Used)/(t.asked/a.Charges[i].Cost))
		}
	}
	for i := range a.Charges {
		granted := a.Charges[i].Cost
		if most > 0 {
			granted = most
		}
		a.Decisions[i].Outcome, a.Decisions[i].Granted = weir.Granted, granted
		c.slots[c.slotOf[i]].state.Used += granted
	}
}

// report says what remains, and how long to wait, once all is charged.
func (c *call) report(a *weir.Act, now int64) {
	for i := range a.Charges {
		d, t := &a.Decisions[i], &c.slots[c.slotOf[i]]
		d.Remaining = algo.Room(&t.state, t.rule)
		d.ResetAfter = weir.DurationOf(t.step.Fresh(&t.state, t.rule, now))
		if d.Outcome == weir.Refused {
			d.RetryAfter = weir.Never
			if c.asked[i] <= t.rule.Burst {
				d.RetryAfter = weir.DurationOf(t.step.Wait(&t.state, t.rule, now, c.asked[i]))
			}
		}
	}
}
