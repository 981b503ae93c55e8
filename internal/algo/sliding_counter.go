package algo

// sliding_counter keeps two counters, of this window and of the one before. It treats the
// grants of the previous window as evenly spread: they count in proportion to the part of
// that window that is less than a period ago. Used is this window's counter and Rem the
// other; while a state is at work Used also holds the share of the other, which is Base.
// At is the start of this window then; stored is the instant of the last charge instead,
// which tells in which of the windows of another period it lies.

func counterAge(s *State, r *Rule, now int64) bool {
	period := r.Period / r.Tick
	t := now / r.Tick
	start := now - now%r.Period
	future := s.At >= start+r.Period
	switch {
	case future:
		// All that the two windows held may be of this one.
		s.Used, s.Rem = min(s.Used+s.Rem, r.Cap), 0
	case s.At >= start:
	case s.At >= start-r.Period:
		s.Used, s.Rem = 0, s.Used
	default:
		s.Used, s.Rem = 0, 0
	}
	s.At = start
	s.Base = ceilDiv(s.Rem*(period-t%period), period)
	s.Used += s.Base
	return future
}

// counterWait finds the first tick at which the cost fits: in this window, as the
// share of the last one shrinks, or in the next, as the share of this one does.
func counterWait(s *State, r *Rule, now, cost int64) int64 {
	period := r.Period / r.Tick
	start := (now - now%r.Period) / r.Tick
	current := s.Used - s.Base
	if room := r.Burst - cost - current; room >= 0 {
		return (start+shrunk(s.Rem, room, period))*r.Tick - now
	}
	return (start+period+shrunk(current, r.Burst-cost, period))*r.Tick - now
}

// shrunk is how far into a window the share of a counter is at most room.
func shrunk(counter, room, period int64) int64 {
	if counter <= room {
		return 0
	}
	return period - room*period/counter
}

func counterFresh(s *State, r *Rule, now int64) int64 {
	switch {
	case s.Used > s.Base:
		return 2*r.Period - now%r.Period
	case s.Rem > 0:
		return r.Period - now%r.Period
	}
	return 0
}

func counterSave(s *State, _ *Rule, now, _ int64) { s.At = now }

func counterRefund(s *State, r *Rule, now int64, g Grant) int64 {
	switch {
	case g.At >= s.At && g.At <= now:
		back := min(g.Units, s.Used-s.Base)
		s.Used -= back
		if g.Newest {
			back += s.refundBefore(r, now, g.Units-back)
		}
		return back
	case g.At >= s.At-r.Period && g.At < s.At:
		return s.refundBefore(r, now, g.Units)
	}
	return 0
}

// refundBefore takes units from the window before, and returns how much room that makes.
func (s *State) refundBefore(r *Rule, now, units int64) int64 {
	period, before := r.Period/r.Tick, s.Base
	s.Rem -= min(units, s.Rem)
	s.Base = ceilDiv(s.Rem*(period-now/r.Tick%period), period)
	s.Used -= before - s.Base
	return before - s.Base
}

// counterCompile picks the finest tick in which a counter times the period stays
// exact.
func counterCompile(r *Rule) bool {
	r.Drain = 2 * r.Period
	for r.Tick = 1; r.Tick <= 1_000_000; r.Tick *= 1000 {
		if r.Period%r.Tick == 0 && r.Cap <= counterMost(r) {
			return true
		}
	}
	return false
}

// counterMost is the largest counter whose product with the period stays exact.
func counterMost(r *Rule) int64 { return (exact - 1) / (r.Period / r.Tick) }

func counterAdmit(r *Rule, units int64) { r.Cap = max(r.Cap, min(units, counterMost(r))) }

func counterParams(r *Rule) [4]int64 { return [4]int64{0, r.Period / r.Tick, r.Tick} }
