package algo

// toy_window counts in windows of one Period, aligned to the epoch. At is the start of the
// window.

func toyAge(s *State, r *Rule, now int64) bool {
	start := now - now%r.Period
	later := s.At > start
	if s.At < start {
		s.Used = 0
	}
	s.At, s.Used = start, min(s.Used, r.Cap)
	return later
}

func toyWait(s *State, r *Rule, now, _ int64) int64 { return s.At + r.Period - now }

func toyFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return s.At + r.Period - now
}

func toyRefund(s *State, r *Rule, _ int64, g Grant) int64 {
	if g.At < s.At || g.At >= s.At+r.Period {
		return 0
	}
	units := min(g.Units, s.Used)
	s.Used -= units
	return units
}
