package denycache

import (
	"math/rand/v2"
	"sync/atomic"
)

// Stats is what a [Cache] has done since it was made.
type Stats struct {
	// Hits is how many acts were refused here.
	Hits uint64
	// Learned is how many refusals of the store were offered to the table.
	Learned uint64
	// Forgotten is how many keys Forget was called with.
	Forgotten uint64
	// Entries is how many refusals are remembered, those that have ended
	// included.
	Entries int
}

// counters spreads the hits, so that cores which refuse at once do not wait for
// one another.
type counters struct {
	hits [8]struct {
		atomic.Uint64
		_ [56]byte // to the end of a cache line
	}
	learned, forgotten atomic.Uint64
}

func (c *counters) hit() { c.hits[rand.Uint32()&7].Add(1) }

// Stats counts the entries one by one: not for every request.
func (c *Cache) Stats() Stats {
	s := Stats{Learned: c.counters.learned.Load(), Forgotten: c.counters.forgotten.Load()}
	for i := range c.counters.hits {
		s.Hits += c.counters.hits[i].Load()
	}
	for i := range c.table.sets {
		for j := range c.table.sets[i].places {
			if c.table.sets[i].places[j].Load() != nil {
				s.Entries++
			}
		}
	}
	return s
}
