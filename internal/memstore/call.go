package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// A call is the scratch memory of one act: its keys, each once.
type call struct {
	slots      []slot
	slotOf     [weir.MaxCharges]int32 // the slot of each charge
	names      [weir.MaxCharges]name  // the name of each charge's key
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
	// taken are the charges of the take that the act is about, if they are not its own.
	taken *taken
	// marked is the mark of the act's ID, if there is one.
	marked *record
	// moved is set if the act is to be decided about other charges, those of the record of
	// its ID, if there is one.
	moved  bool
	listed *taken
}

// A slot is one key of an act: the scratch copy of its state.
type slot struct {
	name     name
	limit    *weir.Limit
	rule     *algo.Rule
	known    bool    // the key has a cell
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
		rule := limit.Rule()
		named := s.name(rule.ID, a.Charges[i].Key)
		if c.taken != nil {
			named = c.taken.charges[i].name
		}
		c.names[i] = named
		j := c.find(named)
		if j < 0 {
			j = len(c.slots)
			c.slots = append(c.slots, slot{name: named, limit: limit, rule: rule})
			c.shards = append(c.shards, named.shard())
		}
		c.slotOf[i] = int32(j)
	}
	if a.ID != "" {
		c.record = s.nameRecord(c, a)
		c.recordAt = uint32(c.record[0] % shardCount)
		c.shards = append(c.shards, c.recordAt)
	}
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
	var mergedTo [weir.MaxCharges]int32
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
		c.slotOf[i] = mergedTo[c.slotOf[i]]
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
	c.charged, c.answered, c.taken, c.marked, c.listed, c.moved = nil, nil, nil, nil, nil, false
}
