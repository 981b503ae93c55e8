package algo

// leaky_bucket queues units, which leave at Count per Period: its level is gcra's, and
// its queue is Burst long. A charge is granted if it fits into the queue, and has to wait
// until the units before it have drained: its delay is gcra's time until fresh.

// leakyRefund takes back a grant. A grant that is not due yet is taken back completely, but only
// if nothing was queued after it, because later turns would come too early. It is due when
// everything but the grant itself has drained.
func leakyRefund(s *State, r *Rule, now int64, g Grant) int64 {
	before, due := s.Used-g.Whole, g.At+g.Delay
	if due > now {
		if before <= 0 || gcraUntil(s, r, now, before)+now > due {
			return 0
		}
		due = now
	}
	t := now / r.Tick
	// The level and what is taken from it, in units of 1/Den. No grant remains less than if it
	// was the first to drain.
	level, units := gcraLevel(s, r, now), min(g.Units, r.Cap)*r.Den
	low, since := s.lowWater(r.Den), min(t-due/r.Tick, r.Full)
	least := low.least(g.At, level)
	back := max(0, min(level, max(min(units, least), units-since*r.Num)))
	low.refund(g.At, back, least)
	level -= back
	used := ceilDiv(level, r.Den)
	rest := used*r.Den - level
	room := s.Used - used
	s.Used, s.Rem = used, rest%r.Num
	s.At = (t - rest/r.Num) * r.Tick
	return room
}

// gcraLevel is the level at an instant, in units of 1/Den.
func gcraLevel(s *State, r *Rule, now int64) int64 {
	return s.Used*r.Den - (now/r.Tick-s.At/r.Tick)*r.Num - s.Rem
}
