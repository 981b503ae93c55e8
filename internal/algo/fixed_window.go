package algo

// fixed_window counts in windows of one Period: aligned to the epoch, or, with
// AnchorFirst, opened by the first charge. At is the start of the window.

// With Calendar the windows are those between the rule's Starts, around now.

func fixedAge(s *State, r *Rule, now int64) bool {
	future := s.At > now
	start := now - now%r.Period
	if r.Calendar {
		start, _ = r.window(now)
	}
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

// window returns the calendar window that holds an instant.
func (r *Rule) window(now int64) (start, end int64) {
	i := 0
	for i < len(r.Starts)-2 && now >= r.Starts[i+1] {
		i++
	}
	return r.Starts[i], r.Starts[i+1]
}

func (s *State) windowEnd(r *Rule, now int64) int64 {
	if r.Calendar {
		_, end := r.window(now)
		return end
	}
	return s.At + r.Period
}

func fixedWait(s *State, r *Rule, now, _ int64) int64 {
	return s.windowEnd(r, now) - now
}

func fixedFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return s.windowEnd(r, now) - now
}

func fixedBack(s *State, r *Rule, now int64, g Grant) int64 {
	if g.At < s.At || g.At >= s.windowEnd(r, now) {
		return 0
	}
	back := min(g.Units, s.Used)
	s.Used -= back
	return back
}
