package coalesce

import (
	"slices"

	"github.com/weirlimit/weir"
)

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
	// Late is how many calls of the store returned after a caller had left.
	Late int64
	// InFlight is how many calls of the store have not returned.
	InFlight int64
	// Outages is how often a node went out; Out how many nodes are out now.
	Outages, Out int64
}

// Stats returns the counts of all lanes.
func (c *Coalescer) Stats() Stats {
	sum := Stats{Late: c.late.Load(), InFlight: c.out.Load(), Outages: c.watch.Begun(), Out: int64(len(c.Outages()))}
	for l := range c.lanes {
		s := l.snapshot()
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

// lanes calls yield for every lane.
func (c *Coalescer) lanes(yield func(*lane) bool) {
	c.nodes.Range(func(_, v any) bool {
		n := v.(*node)
		for i := range n.lanes {
			if !yield(&n.lanes[i]) {
				return false
			}
		}
		return true
	})
}

// InFlight is how many units of a key the store is being asked for, under an algorithm,
// by callers that still wait for its reply. It looks at every act that is in flight, so
// it is for the rare moment in which a decision has to be made without the store.
func (c *Coalescer) InFlight(key string, algorithm weir.Algorithm) int64 {
	units := int64(0)
	c.nodes.Range(func(_, v any) bool {
		units += v.(*node).units(key, algorithm)
		return true
	})
	return units
}

func (n *node) units(key string, algorithm weir.Algorithm) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	units := int64(0)
	for b := range n.inFlight {
		units += b.units(key, algorithm)
	}
	return units
}

// units is how many units the callers that still wait for the batch ask for.
func (b *batch) units(key string, algorithm weir.Algorithm) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered {
		return 0
	}
	units := int64(0)
	for _, a := range b.acts {
		if a.Kind != weir.KindTake || slices.Contains(b.gone, a) {
			continue
		}
		for i := range a.Charges {
			if c := &a.Charges[i]; c.Key == key && c.Limit.Algorithm == algorithm {
				units += max(c.Cost, c.UpTo)
			}
		}
	}
	return units
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
