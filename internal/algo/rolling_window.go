package algo

// rolling_window counts in Buckets+1 counters of one Width, aligned to the epoch. A
// bucket is released when its end leaves the window, so that no interval (a, a+Period]
// ever has more than Count. At most the units of one bucket are refused too early.

// Ring is the counters. Bucket i, which covers [i·width, (i+1)·width), stands at
// i modulo the number of counters. The state's At is the instant at which the
// ring was last saved: buckets that had been released by then are zero.
type Ring struct {
	period, width int64
	counts        []uint32
	// blocks are the sums of each ringBlock counters; counters at the end that fill no block
	// are in none.
	blocks []int64
	// No bucket from empty to the one before first has units. A refused key would search for first
	// each time.
	empty, first int64
}

const ringBlock = 64

func newRing(r *Rule) Ring {
	slots := r.Buckets + 1
	return Ring{period: r.Period, width: r.Width, counts: make([]uint32, slots), blocks: make([]int64, slots/ringBlock)}
}

// slot returns where a bucket's counter stands.
func (g *Ring) slot(i int64) int64 { return i % int64(len(g.counts)) }

// count returns the units of a bucket.
func (g *Ring) count(i int64) int64 { return int64(g.counts[g.slot(i)]) }

// add adds units to a bucket, or takes them away.
func (g *Ring) add(i, units int64) {
	slot := g.slot(i)
	g.counts[slot] += uint32(units)
	if units > 0 {
		g.first = min(g.first, i)
	}
	if b := slot / ringBlock; b < int64(len(g.blocks)) {
		g.blocks[b] += units
	}
}

// block returns the size and the sum of the block that begins with a counter, if it has at most
// so many; else 0.
func (g *Ring) block(slot, most int64) (size, sum int64) {
	if b := slot / ringBlock; slot%ringBlock == 0 && b < int64(len(g.blocks)) && most >= ringBlock {
		return ringBlock, g.blocks[b]
	}
	return 0, 0
}

// tally adds up the buckets from i to last until they have enough units, and returns their sum
// and the bucket that it ended at.
func (g *Ring) tally(i, last, enough int64) (sum, end int64) {
	for slot := g.slot(i); i <= last; {
		step, units := g.block(slot, last-i+1)
		if step == 0 || sum+units >= enough {
			step, units = 1, int64(g.counts[slot])
		}
		if sum += units; sum >= enough {
			return sum, i
		}
		i += step
		if slot += step; slot == int64(len(g.counts)) {
			slot = 0
		}
	}
	return sum, last
}

// latest returns the last bucket with units, from i down to first; first if none has any.
func (g *Ring) latest(i, first int64) int64 {
	for i > first && g.count(i) == 0 {
		step, units := int64(0), int64(0)
		if from := i - ringBlock + 1; from > first {
			step, units = g.block(g.slot(from), ringBlock)
		}
		if step == 0 || units > 0 {
			step = 1
		}
		i -= step
	}
	return i
}

// clear makes the counters of the buckets from i to last zero.
func (g *Ring) clear(i, last int64) {
	for i <= last {
		step, units := g.block(g.slot(i), last-i+1)
		if step == 0 || units > 0 {
			step = 1
			g.add(i, -g.count(i))
		}
		i += step
	}
}

// oldest is the first bucket that counts at an instant: those before it ended a
// period ago or earlier.
func (g *Ring) oldest(now int64) int64 { return max(0, now-g.period) / g.width }

// released returns the buckets that were released between two instants.
func (g *Ring) released(at, now int64) (first, last int64) {
	return g.oldest(at), min(g.oldest(now)-1, at/g.width)
}

func ringAge(s *State, r *Rule, now int64) bool {
	if s.Ext == nil {
		s.At, s.Used = now, 0
		return false
	}
	g, future := &s.Ext.Ring, s.At > now
	if future || g.period != r.Period || int64(len(g.counts)) != r.Buckets+1 {
		s.pour(r, now)
		return future
	}
	first, last := g.released(s.At, now)
	gone, _ := g.tally(first, last, exact)
	s.Used -= gone
	return false
}

// pour moves the counters into a new ring of the rule's shape. A bucket's
// units count as granted at its end, or when the state was saved if that is
// earlier, so that they are never released too early.
func (s *State) pour(r *Rule, now int64) {
	old, width := &s.Ext.Ring, s.Ext.Ring.width
	s.Ext = &Ext{Ring: newRing(r)}
	g, last := &s.Ext.Ring, s.At/width
	s.Used = 0
	for i := old.oldest(s.At); i <= last; i++ {
		n := old.count(i)
		here := min((i+1)*width-1, s.At, now) / r.Width
		if n > 0 && here >= g.oldest(now) {
			g.add(here, n)
			s.Used += n
		}
	}
	s.At = now
}

func ringWait(s *State, r *Rule, now, cost int64) int64 {
	g, oldest, here := &s.Ext.Ring, s.Ext.Ring.oldest(now), now/r.Width
	if oldest < g.empty {
		g.first = 0 // the clock went back
	}
	g.empty = oldest
	_, g.first = g.tally(max(oldest, g.first), here, 1)
	_, i := g.tally(g.first, here, s.Used+cost-r.Burst)
	return (i+1)*r.Width + r.Period - now
}

func ringFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	i := s.At / r.Width
	i = s.Ext.Ring.latest(i, max(0, i-r.Buckets))
	return (i+1)*r.Width + r.Period - now
}

func ringSave(s *State, r *Rule, now, added int64) {
	if s.Ext == nil {
		s.Ext = &Ext{Ring: newRing(r)}
	}
	g := &s.Ext.Ring
	g.clear(g.released(s.At, now))
	g.add(now/r.Width, added)
	s.At = now
}

func ringRefund(s *State, r *Rule, now int64, g Grant) int64 {
	i := g.At / r.Width
	if g.Newest {
		i = min(i, s.At/r.Width)
	}
	if s.Ext == nil || g.At > now || i < s.Ext.Ring.oldest(now) || i < s.Ext.Ring.oldest(s.At) || i > s.At/r.Width {
		return 0
	}
	first, back := i, int64(0)
	if g.Newest {
		first = max(s.Ext.Ring.oldest(now), s.Ext.Ring.oldest(s.At))
	}
	for ring := &s.Ext.Ring; i >= first && back < g.Units; i-- {
		i = ring.latest(i, first)
		n := min(g.Units-back, ring.count(i), s.Used)
		ring.add(i, -n)
		s.Used -= n
		back += n
	}
	return back
}

func ringCompile(r *Rule) bool {
	r.Width = ceilDiv(r.Period, r.Buckets)
	r.Drain += r.Width
	return true
}

func ringParams(r *Rule) [4]int64 { return [4]int64{r.Buckets, r.Period, r.Width} }

func ringExt(r *Rule) int64 { return 4*(r.Buckets+1) + 8*((r.Buckets+1)/ringBlock) }
