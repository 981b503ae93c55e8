package algo

// leaky_bucket queues units, which leave at Count per Period: its level is gcra's, and
// its queue is Burst long. A charge is granted if it fits into the queue, and has to wait
// until the units before it have drained: its delay is gcra's time until fresh.

// leakyRefund takes back a grant, less the units that have drained since it was due. A
// grant that is not due yet is taken back completely, but only if nothing was queued
// after it, because later turns would come too early. It is due when everything but the
// grant itself has drained.
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
	// The level and the units that are taken from it, in units of 1/Den.
	level := s.Used*r.Den - (t-s.At/r.Tick)*r.Num - s.Rem
	level -= max(0, min(level, min(g.Units, r.Cap)*r.Den-since*r.Num))
	used := ceilDiv(level, r.Den)
	rest := used*r.Den - level
	back := s.Used - used
	s.Used, s.Rem = used, rest%r.Num
	s.At = (t - rest/r.Num) * r.Tick
	return back
}
