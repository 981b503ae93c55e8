package memengine

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// overflow holds one budget a limit, for all the keys that there is no room for.
// A key that gets room of its own again begins with that budget's state as long
// as it is not fresh: it may have spent from there.
type overflow struct {
	logger  *slog.Logger
	charges atomic.Int64
	active  atomic.Bool // there are cells

	mu     sync.Mutex // taken after the shards' locks
	cells  map[shared]*budget
	filled bool // some keys had to share
}

// A budget is a stored state that has no place in a table.
type budget struct {
	cell
	ext *algo.Ext
}

func (b *budget) get(s *algo.State) {
	b.cell.get(s)
	s.Ext = b.ext
}

func (b *budget) set(s *algo.State, until uint32) {
	b.cell.set(s, until)
	b.ext = s.Ext
}

// shared names a limit by its numbers, so that a reload changes nothing.
type shared struct {
	name string
	rule algo.Rule
}

// load lets a key that has no cell share its limit's budget, or begin with a
// copy of it.
func (o *overflow) load(c *call, t *slot, share bool, now int64) {
	if !c.overflowed {
		o.mu.Lock()
		c.overflowed = true
		o.sweep(now)
	}
	name := shared{t.limit.Name, *t.rule}
	found := o.cells[name]
	switch {
	case share:
		if found == nil {
			found = o.add(c, t.limit, name)
		}
		o.charges.Add(1)
		t.shared = found
		found.get(&t.state)
	case found != nil:
		found.get(&t.state)
		t.state.Ext = t.state.Ext.Clone()
	}
}

// warn logs that keys have to share, once. No lock is held: a logger may wait.
func (o *overflow) warn(limit string) {
	o.logger.Warn("memory store is full: new keys share one budget a limit", "limit", limit)
}

func (o *overflow) add(c *call, limit *weir.Limit, name shared) *budget {
	if !o.filled {
		o.filled, c.filled = true, limit
	}
	if o.cells == nil {
		o.cells = make(map[shared]*budget)
	}
	o.active.Store(true)
	o.cells[name] = new(budget)
	return o.cells[name]
}

func (o *overflow) sweep(now int64) {
	for name, c := range o.cells {
		if int64(c.until)*1_000_000 <= now {
			delete(o.cells, name)
		}
	}
	o.active.Store(len(o.cells) > 0)
}
