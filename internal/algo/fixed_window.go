package algo

// fixed_window counts in windows of one Period: aligned to the epoch, or, with
// Calendar, those between the rule's Starts, around now, or, with AnchorFirst,
// opened by the first charge. At is the start of the window while a state is at
// work; stored is the instant of the last charge instead, which tells in which of
// the windows of another period it lies, unless a charge opened the window.
//
// If the clock goes back behind the window, the state counts in the window of now and in the
// next one, whose start is At then. So what was granted before counts for a Period at least.

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
	start, end := window(r, now)
	if s.At >= end && s.Used > 0 {
		moved := s.At != end
		s.At = end
		return moved
	}
	if s.At < start {
		s.Used = 0
	}
	s.At = start
	return false
}

// window returns the window that holds an instant, unless charges open the windows.
func window(r *Rule, at int64) (start, end int64) {
	if r.Calendar {
		i := 0
		for i < len(r.Starts)-2 && at >= r.Starts[i+1] {
			i++
		}
		return r.Starts[i], r.Starts[i+1]
	}
	start = at - at%r.Period
	return start, start + r.Period
}

// end returns the end of the window that a state is in: that of now, or the next one.
func (s *State) end(r *Rule, now int64) int64 {
	if r.AnchorFirst {
		return s.At + r.Period
	}
	_, end := window(r, max(s.At, now))
	return end
}

func fixedWait(s *State, r *Rule, now, _ int64) int64 { return s.end(r, now) - now }

func fixedFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return fixedWait(s, r, now, 0)
}

func fixedRefund(s *State, r *Rule, now int64, g Grant) int64 {
	if g.At < s.At || g.At >= s.end(r, now) {
		return 0
	}
	back := min(g.Units, s.Used)
	s.Used -= back
	return back
}

func fixedSave(s *State, r *Rule, now, _ int64) {
	if !r.AnchorFirst {
		s.At = max(s.At, now)
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
