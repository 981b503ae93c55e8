package denycache

import "sync/atomic"

// Stats are counts since the Layer was created.
type Stats struct {
	// Hits counts the acts refused from memory.
	Hits uint64
	// Learned counts the refusals of the store that were offered to the table.
	Learned uint64
	// Forgotten counts the keys that Forget was called with.
	Forgotten uint64
	// Entries is how many refusals are remembered now, those that have ended included.
	Entries int
}

// counters spreads the hits by the instant, in ns, so that processors that refuse at once
// do not contend.
type counters struct {
	hits [8]struct {
		atomic.Uint64
		_ [56]byte // to the end of a cache line
	}
	learned, forgotten atomic.Uint64
}

func (c *counters) hit(now int64) { c.hits[now&7].Add(1) }

// Stats returns the counts. It counts the entries one by one: do not call it for every
// request.
func (l *Layer) Stats() Stats {
	s := Stats{Learned: l.counters.learned.Load(), Forgotten: l.counters.forgotten.Load()}
	for i := range l.counters.hits {
		s.Hits += l.counters.hits[i].Load()
	}
	for i := range l.table.sets {
		for j := range l.table.sets[i].cells {
			if l.table.sets[i].cells[j].Load() != nil {
				s.Entries++
			}
		}
	}
	return s
}
