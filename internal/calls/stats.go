package calls

// Stats are counts since the start, and how many acts wait now.
type Stats struct {
	// Batches is how many calls of the wrapped Taker there were, Acts how many
	// acts they carried.
	Batches, Acts int64
	// Largest is how many acts the largest of them carried.
	Largest int64
	// Waiting is how many acts wait to be sent.
	Waiting int64
	// Withdrawn is how many acts were not sent, because their callers had left or
	// their node had become unreachable: nothing was charged.
	Withdrawn int64
	// Abandoned is how many acts were in flight when their callers left.
	Abandoned int64
	// Rejected is how many acts were answered with [ErrFull].
	Rejected int64
	// Late is how many calls of the store returned after a caller had left.
	Late int64
	// InFlight is how many calls of the store have not returned.
	InFlight int64
	// Outages is how many outages of nodes have begun, Unreachable how many nodes are
	// unreachable now.
	Outages, Unreachable int64
}

// Stats returns the counts of all lanes.
func (c *Lanes) Stats() Stats {
	sum := Stats{Late: c.late.Load(), Outages: c.watch.Outages(), Unreachable: int64(len(c.Outages()))}
	c.each(func(n *node) {
		n.mu.Lock()
		sum.InFlight += int64(len(n.inFlight))
		n.mu.Unlock()
		for i := range n.lanes {
			s := n.lanes[i].snapshot()
			sum.Batches += s.Batches
			sum.Acts += s.Acts
			sum.Largest = max(sum.Largest, s.Largest)
			sum.Waiting += s.Waiting
			sum.Withdrawn += s.Withdrawn
			sum.Abandoned += s.Abandoned
			sum.Rejected += s.Rejected
		}
	})
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

func (l *lane) abandoned(acts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Abandoned += int64(acts)
}
