package lease

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/spin"
)

// A total counts the units leased of each key. Several cells may lease units of one key:
// those of acts that charge it together with different other keys. Its lock is taken after a
// shard's.
type total struct {
	mu     spin.Mutex
	leased map[string]int64
}

// reserve returns how many of so many units the cell may lease, and counts them.
func (t *total) reserve(c *cell, units int64, part float64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range c.charges {
		limit := c.charges[i].Limit
		most := int64(min(part*float64(limit.Count), float64(limit.Capacity())))
		units = min(units, most-(t.leased[c.charges[i].Key]-c.leased))
	}
	units = max(0, units)
	t.set(c, units)
	return units
}

// count sets how many units the cell has leased.
func (t *total) count(c *cell, units int64) {
	if c.leased == units {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(c, units)
}

func (t *total) set(c *cell, units int64) {
	if t.leased == nil {
		t.leased = make(map[string]int64)
	}
	for i := range c.charges {
		key := c.charges[i].Key
		if t.leased[key] += units - c.leased; t.leased[key] == 0 {
			delete(t.leased, key)
		}
	}
	c.leased = units
}

// any reports whether units of one of the charges' keys are leased.
func (t *total) any(charges []weir.Charge) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(charges, func(c weir.Charge) bool { return t.leased[c.Key] > 0 })
}
