package algo

// fixed_window counts in windows of one Period: aligned to the epoch, or, with
// Calendar, those between the rule's Starts, around now, or, with AnchorFirst,
// opened by the first charge. At is the start of the window while a state is at
// work; stored is the instant of the last charge instead, which tells in which of
// the windows of another period it lies, unless a charge opened the window.

func fixedAge(s *State, r *Rule, now int64) bool {
	if r.AnchorFirst {
		future := s.At > now
		switch {
		case future:
			s.At = now
		case s.Used == 0 || now >= s.At+r.Period:
			s.At, s.Used = now, 0
		}
		return future
	}
	start, end := s.window(r, now)
	future := s.At >= end
	// A window in the future still counts: the clock went back.
	if s.At < start {
		s.Used = 0
	}
	s.At = start
	return future
}

// window returns the window that holds now.
func (s *State) window(r *Rule, now int64) (start, end int64) {
	switch {
	case r.Calendar:
		i := 0
		for i < len(r.Starts)-2 && now >= r.Starts[i+1] {
			i++
		}
		return r.Starts[i], r.Starts[i+1]
	case r.AnchorFirst:
		return s.At, s.At + r.Period
	}
	start = now - now%r.Period
	return start, start + r.Period
}

func fixedWait(s *State, r *Rule, now, _ int64) int64 {
	_, end := s.window(r, now)
	return end - now
}

func fixedFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return fixedWait(s, r, now, 0)
}

func fixedRefund(s *State, r *Rule, now int64, g Grant) int64 {
	start, end := s.window(r, now)
	if g.At < start || g.At >= end {
		return 0
	}
	back := min(g.Units, s.Used)
	s.Used -= back
	return back
}

func fixedSave(s *State, r *Rule, now, _ int64) {
	if !r.AnchorFirst {
		s.At = now
	}
}

// calendarSlack is how much longer than its Period a calendar window can be: a
// month of 31 days instead of 30, a leap year, an hour of daylight saving, and
// anchor days that move by three.
const calendarSlack = 4 * 24 * 3600 * 1_000_000

func fixedCompile(r *Rule) bool {
	r.Debt, r.Cap = exact-1, exact-1
	if r.Calendar {
		r.Drain += calendarSlack
	}
	return true
}

func fixedParams(r *Rule) [4]int64 {
	if r.Calendar {
		return r.Starts
	}
	return [4]int64{0, r.Period}
}
