package memengine

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// A call is the scratch memory of one act: its keys, each once.
type call struct {
	slots      []slot
	slotOf     [weir.MaxCharges]int32 // the slot of each charge
	blockOf    [weir.MaxCharges]int32 // the slot of the blocks of its key; -1: there are none
	wants      [weir.MaxCharges]want
	charged    []algo.Grant    // of each charge, where the decisions do not say it
	answered   []weir.Decision // what the take of an amended act was answered
	text       []byte
	shards     []uint32    // the shards to lock, ascending
	overflowed bool        // the overflow's lock is held
	tight      bool        // the store takes more memory than it should
	filled     *weir.Limit // the first limit whose keys have to share, if the act found it
	record     recordName  // of the act's id
	recordAt   uint32      // the shard of the record
	lines      []uint64    // the names of the act's charges, if it has an ID
	// known is the record of the act's ID; nil if there is none. replaced: its take is decided
	// anew. matches says which lines of the record the act's are; nil: they are the same.
	known    *record
	replaced bool
	matches  []int
	granted  bool // the caller of an amended take was granted it
}

// A slot is one key of an act: the scratch copy of its state.
type slot struct {
	name     name
	limit    *weir.Limit
	rule     *algo.Rule
	known    bool    // the key has a cell
	blocks   bool    // the state is a block
	homeless bool    // there is no room for the block
	dirty    bool    // to be published whatever was added
	shared   *budget // the overflow's budget that stands in for the key's own
	extBytes int64   // memory of the stored Ext
	state    algo.State
	aged     int64 // state.Used when it was read
	fresh    int64 // how long until the state, once published, equals a fresh one
	asked    int64 // what the act has asked of the key so far
}

func (c *call) gather(s *Store, a *weir.Act) {
	c.tight = s.tight()
	for i := range a.Charges {
		limit := a.Charges[i].Limit
		c.slotOf[i] = c.slot(s.name(limit.Rule().ID, a.Charges[i].Key), limit, limit.Rule())
		if c.blockOf[i] = -1; limit.Block > 0 {
			c.blockOf[i] = c.slot(s.name(algo.Count+limit.Rule().ID, a.Charges[i].Key), limit, limit.Blocks())
			c.slots[c.blockOf[i]].blocks = true
		}
	}
	if a.ID == "" {
		return
	}
	c.record = s.nameRecord(c, a)
	c.recordAt = uint32(c.record[0] % shardCount)
	c.shards = append(c.shards, c.recordAt)
	for i := range a.Charges {
		// Each charge of a key has a name of its own.
		line := s.name(a.Charges[i].Limit.Rule().ID, a.Charges[i].Key).low
		for slices.Contains(c.lines, line) {
			line += 1 << 32 // the last bits name the algorithm
		}
		c.lines = append(c.lines, line)
	}
}

// slot returns the slot of a name: that of an earlier charge, or a new one.
func (c *call) slot(n name, limit *weir.Limit, rule *algo.Rule) int32 {
	j := c.find(n)
	if j < 0 {
		j = len(c.slots)
		c.slots = append(c.slots, slot{name: n, limit: limit, rule: rule})
		c.shards = append(c.shards, n.shard())
	}
	return int32(j)
}

// find returns the place of a name's slot, or -1.
func (c *call) find(n name) int {
	for j := range c.slots {
		if c.slots[j].name == n {
			return j
		}
	}
	return -1
}

// merge makes one slot of the slots that share one of the overflow's budgets: what one charge
// does to the budget, the next one has to see.
func (c *call) merge(charges int) {
	var mergedTo [2 * weir.MaxCharges]int32
	kept := c.slots[:0]
	for i := range c.slots {
		j := -1
		if shared := c.slots[i].shared; shared != nil {
			j = slices.IndexFunc(kept, func(t slot) bool { return t.shared == shared })
		}
		if j < 0 {
			j = len(kept)
			kept = append(kept, c.slots[i])
		}
		mergedTo[i] = int32(j)
	}
	clear(c.slots[len(kept):])
	c.slots = kept
	for i := range charges {
		if c.slotOf[i] = mergedTo[c.slotOf[i]]; c.blockOf[i] >= 0 {
			c.blockOf[i] = mergedTo[c.blockOf[i]]
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

// now is the instant of the act, once its shards are locked.
func (c *call) now(s *Store, read int64) int64 {
	last := int64(0)
	for _, i := range c.shards {
		last = max(last, s.shards[i].last)
	}
	now := s.now(read, last)
	if s.clock == nil {
		for _, i := range c.shards {
			s.shards[i].last = now
		}
	}
	return now
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
	c.slots, c.shards, c.overflowed, c.filled, c.record = c.slots[:0], c.shards[:0], false, nil, recordName{}
	c.charged, c.answered, c.lines, c.known, c.replaced, c.matches, c.granted = nil, nil, c.lines[:0], nil, false, nil, false
}
