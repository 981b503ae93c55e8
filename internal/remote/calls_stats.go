package remote

import (
	"math"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// CallStats are counts since the start, and how many acts wait now.
type CallStats struct {
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
func (c *Calls) Stats() CallStats {
	sum := CallStats{Late: c.late.Load(), Outages: c.watch.Outages(), Unreachable: int64(len(c.Outages()))}
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

// Left returns how many of the units that are left of a key, under an algorithm, remain
// even if the store grants the callers that still wait for its reply. The function left is
// called once they have been looked at, so that it knows of all replies that have come by
// then, see [Calls.onReply]. Left looks at every act that waits, so it is for the rare
// decision that has to be made without the store.
func (c *Calls) Left(key string, algorithm weir.Algorithm, left func() int64) int64 {
	f := inFlight{key: key, algorithm: algorithm, keep: math.MaxInt64}
	c.each(f.addNode)
	known := left()
	return max(0, max(known-f.kept, min(known, f.keep))-f.units)
}

// inFlight are the units of a key that callers ask for.
type inFlight struct {
	key       string
	algorithm weir.Algorithm
	units     int64
	// kept are units of charges that keep at least keep units free.
	kept, keep int64
}

// addNode adds the batches that wait in lanes, and then those in flight: a batch that leaves
// its lane's queue is the lane's current one until it is in flight.
func (f *inFlight) addNode(n *node) {
	added := map[*batch]bool{}
	add := func(b *batch) {
		if b != nil && !added[b] {
			added[b] = true
			f.addBatch(b)
		}
	}
	for i := range n.lanes {
		l := &n.lanes[i]
		l.mu.Lock()
		for _, b := range l.queue {
			add(b)
		}
		add(l.current)
		l.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.inFlight {
		add(b)
	}
}

// addBatch adds the units of the callers that still wait for the batch.
func (f *inFlight) addBatch(b *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.returned || b.outage != nil {
		return
	}
	for _, a := range b.acts {
		if a.Kind != acts.KindTake || slices.Contains(b.abandoned, a) {
			continue
		}
		for i := 0; i < len(a.Charges); i = acts.GroupEnd(a, i) {
			f.addGroup(a, i)
		}
	}
}

// addGroup adds the group that begins with the i-th charge: the most that an alternative
// charges, and the least that one keeps free.
func (f *inFlight) addGroup(a *weir.Act, i int) {
	most, keep := int64(0), int64(-1)
	for end := acts.GroupEnd(a, i); i < end; {
		units := int64(0)
		for next := acts.AltEnd(a, i); i < next; i++ {
			if c := &a.Charges[i]; c.Key == f.key && c.Limit.Algorithm == f.algorithm {
				units += max(c.Cost, c.UpTo)
				if keep < 0 || c.Keep < keep {
					keep = c.Keep
				}
			}
		}
		most = max(most, units)
	}
	if keep > 0 {
		f.kept, f.keep = f.kept+most, min(f.keep, keep)
	} else {
		f.units += most
	}
}

func (l *lane) snapshot() CallStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = int64(l.waiting)
	return s
}

// count counts a call of the wrapped Taker.
func (s *CallStats) count(acts int) {
	s.Batches++
	s.Acts += int64(acts)
	s.Largest = max(s.Largest, int64(acts))
}

func (l *lane) abandoned(acts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Abandoned += int64(acts)
}
