package algo

// token_bucket adds Count tokens at once every Period to a bucket of Burst
// tokens, full at first. The state holds the tokens taken, so that a changed
// limit acts at once. At is the instant of the last refill; a full bucket has
// none: its refill clock starts with the charge that takes the first token.

func bucketAge(s *State, r *Rule, now int64) bool {
	future := s.At > now
	if future {
		s.At = now
	}
	s.Used = min(s.Used, r.Cap)
	// As many refills as fill the bucket are enough to know.
	refills := min((now-s.At)/r.Period, ceilDiv(s.Used, r.Count))
	s.Used -= refills * r.Count
	s.At += refills * r.Period
	if s.Used <= 0 {
		s.At, s.Used = now, 0
	}
	return future
}

func bucketWait(s *State, r *Rule, now, cost int64) int64 {
	return s.At + ceilDiv(s.Used+cost-r.Burst, r.Count)*r.Period - now
}

func bucketFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return s.At + ceilDiv(s.Used, r.Count)*r.Period - now
}

// bucketRefund takes a grant back. A booking that is not due yet goes back whole, but only if
// nothing was booked after it. No grant remains less than if the tokens that were added since it
// was due were the first for it.
func bucketRefund(s *State, r *Rule, now int64, g Grant) int64 {
	due := g.At + g.Delay
	if due > now && (s.Used <= r.Burst || s.At+ceilDiv(s.Used-r.Burst, r.Count)*r.Period > due) {
		return 0
	}
	refills := int64(0)
	if s.At > due {
		refills = min((s.At-due-1)/r.Period+1, ceilDiv(g.Units, r.Count))
	}
	low := s.lowWater(1)
	least := low.least(g.At, s.Used)
	back := max(0, min(s.Used, max(min(g.Units, least), g.Units-refills*r.Count)))
	low.refund(g.At, back, least)
	s.Used -= back
	return back
}

// bucketCompile leaves room for a whole bucket beyond the limit and for bookings, as far
// as the numbers reach.
func bucketCompile(r *Rule) bool {
	if bucketRefills(r) < ceilDiv(2*r.Burst, r.Count) {
		return false
	}
	bucketAdmit(r, r.Burst+r.Count*ceilDiv(ahead, r.Period))
	r.Drain = ceilDiv(r.Burst, r.Count) * r.Period
	return true
}

// bucketRefills is the largest number of refills whose time stays exact.
func bucketRefills(r *Rule) int64 { return int64(exact)/r.Period - 2 }

func bucketAdmit(r *Rule, units int64) {
	r.Cap = max(r.Cap, min(units, productCap(bucketRefills(r), r.Count)))
}

func bucketParams(r *Rule) [4]int64 { return [4]int64{r.Count, r.Period} }
