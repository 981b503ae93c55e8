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
	delay      [weir.MaxCharges]int64 // how long each charge has to wait for what it is granted
	overflowed bool                   // the overflow's lock is held
	record     recordName             // of the act's id
	recordAt   uint32                 // the shard of the record
}

// A slot is one key of an act: the scratch copy of its state.
type slot struct {
	shard    uint32
	known    bool  // the key has a cell
	dirty    bool  // to be published whatever was added
	shared   *cell // the overflow's cell that stands in for the key's own
	extBytes int64 // memory of the cell's Ext
	key      string
	limit    *weir.Limit
	rule     *algo.Rule
	later    algo.State // a copy that Delay may look at
	step     *algo.Step
	state    algo.State
	aged     int64 // state.Used when it was read
	asked    int64 // what the act has asked of the key so far
}

func (c *call) gather(s *Store, a *weir.Act) {
	for i := range a.Charges {
		charge := &a.Charges[i]
		rule := charge.Limit.Rule()
		j := c.find(rule.ID, charge.Key)
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
	if a.ID != "" {
		c.record = nameRecord(a)
		c.recordAt = uint32(maphash.Comparable(s.seed, c.record) % shardCount)
		c.shards = append(c.shards, c.recordAt)
	}
}

// find returns the place of a key's slot, or -1.
func (c *call) find(id algo.ID, key string) int {
	for j := range c.slots {
		if c.slots[j].rule.ID == id && c.slots[j].key == key {
			return j
		}
	}
	return -1
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
	c.slots, c.shards, c.overflowed, c.record = c.slots[:0], c.shards[:0], false, recordName{}
}
