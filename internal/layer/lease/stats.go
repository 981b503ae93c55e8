package lease

import "sync/atomic"

// Stats are counts since the Layer was created.
type Stats struct {
	Spent    uint64 // acts paid with leased units
	Leases   uint64 // leases that the store has granted
	Returned uint64 // leased units that were returned unspent
	Keys     int    // keys that are watched now
	Left     int64  // leased units that are unspent now
}

type counts struct{ leases, returned atomic.Uint64 }

// Stats returns the counts. It counts the keys one by one: do not call it for every request.
func (l *Layer) Stats() Stats {
	st := Stats{Leases: l.counts.leases.Load(), Returned: l.counts.returned.Load()}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		st.Spent += s.spent
		st.Keys += len(s.cells)
		for _, c := range s.cells {
			st.Left += c.left
		}
		s.mu.Unlock()
	}
	return st
}
