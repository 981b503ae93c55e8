package coalesce

// Stats are counts since the start, and how many acts wait now.
type Stats struct {
	// Batches is how many calls of the wrapped Taker there were, Acts how many
	// acts they carried.
	Batches, Acts int64
	// Largest is how many acts the largest of them carried.
	Largest int64
	// Waiting is how many acts wait to leave.
	Waiting int64
	// Withdrawn is how many acts were taken back before they left, because
	// their callers had given up: nothing was charged.
	Withdrawn int64
	// Abandoned is how many acts had left when their callers gave up.
	Abandoned int64
	// Rejected is how many acts were answered with [ErrFull].
	Rejected int64
}

// Stats returns the counts of all lanes.
func (c *Coalescer) Stats() Stats {
	var sum Stats
	for i := range c.lanes {
		s := c.lanes[i].snapshot()
		sum.Batches += s.Batches
		sum.Acts += s.Acts
		sum.Largest = max(sum.Largest, s.Largest)
		sum.Waiting += s.Waiting
		sum.Withdrawn += s.Withdrawn
		sum.Abandoned += s.Abandoned
		sum.Rejected += s.Rejected
	}
	return sum
}

func (l *lane) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = int64(l.waiting)
	return s
}

// count counts a call of the wrapped Taker.
func (s *Stats) count(acts int) {
	s.Batches++
	s.Acts += int64(acts)
	s.Largest = max(s.Largest, int64(acts))
}

func (l *lane) abandon(acts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Abandoned += int64(acts)
}
