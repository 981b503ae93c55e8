package algo

// fixed_window counts in windows of one Period: aligned to the epoch, or, with
// AnchorFirst, opened by the first charge. At is the start of the window.

func fixedAge(s *State, r *Rule, now int64) bool {
	future := s.At > now
	start := now - now%r.Period
	if r.AnchorFirst {
		start = s.At
		if future || s.Used == 0 || now >= s.At+r.Period {
			start = now
		}
	}
	// A window that began later than this one's start counts on: the clock
	// went back, or the period was longer before.
	if s.At < start {
		s.Used = 0
	}
	s.At = start
	return future
}

func fixedWait(s *State, r *Rule, now, _ int64) int64 {
	return s.At + r.Period - now
}

func fixedFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return s.At + r.Period - now
}
