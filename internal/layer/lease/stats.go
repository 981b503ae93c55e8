package lease

import "sync/atomic"

// Stats is what a [Leaser] has done since it was made.
type Stats struct {
	Spent    uint64 // acts that were paid from a share
	Shares   uint64 // shares that the store has given
	Returned uint64 // units of them that went back unspent
	Keys     int    // keys that are watched now
	Left     int64  // units that are out in shares now
}

type counts struct{ shares, returned atomic.Uint64 }

// Stats counts the keys one by one: not for every request.
func (l *Leaser) Stats() Stats {
	st := Stats{Shares: l.counts.shares.Load(), Returned: l.counts.returned.Load()}
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
