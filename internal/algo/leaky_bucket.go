package algo

// leaky_bucket queues units and lets them out at Count per Period: its level is
// gcra's, and its queue Burst. A charge is granted if it fits into the queue, and
// has to wait until all that was there before it has drained: its delay is what
// gcra calls the time until fresh.

// leakyRefund takes a grant back less what has drained since it was due. One that is
// not due yet goes back as it is, but only if nothing was queued after it, whose
// turn would come too early: it is due once all but the whole of it has drained.
func leakyRefund(s *State, r *Rule, now int64, g Grant) int64 {
	before, due := s.Used-g.Whole, g.At+g.Delay
	if due > now {
		if before <= 0 || gcraUntil(s, r, now, before)+now > due {
			return 0
		}
		due = now
	}
	t := now / r.Tick
	since := t - due/r.Tick
	if since > r.Full {
		return 0
	}
	// The level and what is taken from it, in units of 1/Den.
	level := s.Used*r.Den - (t-s.At/r.Tick)*r.Num - s.Rem
	level -= max(0, min(level, min(g.Units, r.Cap)*r.Den-since*r.Num))
	used := ceilDiv(level, r.Den)
	rest := used*r.Den - level
	back := s.Used - used
	s.Used, s.Rem = used, rest%r.Num
	s.At = (t - rest/r.Num) * r.Tick
	return back
}
