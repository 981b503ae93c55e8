package algo

// rolling_window counts in Buckets+1 counters of one Width, aligned to the epoch. A
// bucket is released when its end leaves the window, so that no interval (a, a+Period]
// ever has more than Count. At most the units of one bucket are refused too early.

// Ring is the counters. Bucket i, which covers [i·width, (i+1)·width), stands at
// i modulo the number of counters. The state's At is the instant at which the
// ring was last saved: buckets that had been released by then are zero.
type Ring struct {
	period int64
	counts []uint32
}

func newRing(r *Rule) Ring { return Ring{r.Period, make([]uint32, r.Buckets+1)} }

func (g *Ring) slot(i int64) *uint32 { return &g.counts[i%int64(len(g.counts))] }

func (g *Ring) width() int64 { return ceilDiv(g.period, int64(len(g.counts)-1)) }

// oldest is the first bucket that counts at an instant: those before it ended a
// period ago or earlier.
func (g *Ring) oldest(now int64) int64 { return max(0, now-g.period) / g.width() }

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
	for i := g.oldest(s.At); i < g.oldest(now) && i <= s.At/r.Width; i++ {
		s.Used -= int64(*g.slot(i))
	}
	return false
}

// pour moves the counters into a new ring of the rule's shape. A bucket's
// units count as granted at its end, or when the state was saved if that is
// earlier, so that they are never released too early.
func (s *State) pour(r *Rule, now int64) {
	old, width := &s.Ext.Ring, s.Ext.Ring.width()
	s.Ext = &Ext{Ring: newRing(r)}
	g, last := &s.Ext.Ring, s.At/width
	s.Used = 0
	for i := old.oldest(s.At); i <= last; i++ {
		n := *old.slot(i)
		here := min((i+1)*width-1, s.At, now) / r.Width
		if n > 0 && here >= g.oldest(now) {
			*g.slot(here) += n
			s.Used += int64(n)
		}
	}
	s.At = now
}

func ringWait(s *State, r *Rule, now, cost int64) int64 {
	g := &s.Ext.Ring
	leave := s.Used + cost - r.Burst
	i := g.oldest(now)
	for leave -= int64(*g.slot(i)); leave > 0; leave -= int64(*g.slot(i)) {
		i++
	}
	return (i+1)*r.Width + r.Period - now
}

func ringFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	i := s.At / r.Width
	for *s.Ext.Ring.slot(i) == 0 {
		i--
	}
	return (i+1)*r.Width + r.Period - now
}

func ringSave(s *State, r *Rule, now, added int64) {
	if s.Ext == nil {
		s.Ext = &Ext{Ring: newRing(r)}
	}
	g := &s.Ext.Ring
	for i := g.oldest(s.At); i < g.oldest(now) && i <= s.At/r.Width; i++ {
		*g.slot(i) = 0
	}
	*g.slot(now / r.Width) += uint32(added)
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
	for ; i >= first && back < g.Units; i-- {
		count := s.Ext.Ring.slot(i)
		n := min(g.Units-back, int64(*count), s.Used)
		*count -= uint32(n)
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

func ringExt(r *Rule) int64 { return 4 * (r.Buckets + 1) }
