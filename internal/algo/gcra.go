package algo

import "math"

// gcra is the generic cell rate algorithm in the form of a leaky counter: used
// units drain continuously, Count every Period, and at most Burst may be there.
// It decides exactly as the virtual scheduling form of ITU-T I.371 does with
// TAT = now + level·T/N and a tolerance of Burst·T/N.
//
// The level at an instant t is Used·Den − (Num·(t−At) + Rem), counted in units of 1/Den:
// whole units used, less the part that has drained since At. Age moves At forward until
// less than one unit has drained since, so that Used is the level rounded up and room is
// Burst − Used.

func gcraAge(s *State, r *Rule, now int64) bool {
	t, at := now, s.At
	if r.Tick > 1 {
		t, at = now/r.Tick, ceilDiv(s.At, r.Tick)
	}
	clamped := at > t
	s.Used = min(s.Used, r.Cap)
	if clamped {
		at, s.Rem = t, 0
	}
	drained := min(t-at, r.Full)*r.Num + s.Rem
	if drained >= s.Used*r.Den {
		s.At, s.Used, s.Rem = t*r.Tick, 0, 0
		return clamped
	}
	if drained < r.Den && s.Rem < r.Num { // nothing to move
		s.At = at * r.Tick
		return clamped
	}
	units, rest := divide(drained, r.Den)
	ticks, rem := divide(rest, r.Num)
	s.At, s.Used, s.Rem = (t-ticks)*r.Tick, s.Used-units, rem
	return clamped
}

// divide is a / b and a % b, of which neither is negative. Division is the slow part
// here, and it is not needed if a key is hot or rates are round.
func divide(a, b int64) (quotient, rest int64) {
	switch {
	case uint64(a) < uint64(b):
		return 0, a
	case b == 1:
		return a, 0
	}
	return int64(uint64(a) / uint64(b)), int64(uint64(a) % uint64(b))
}

func gcraWait(s *State, r *Rule, now, cost int64) int64 {
	return gcraUntil(s, r, now, s.Used+cost-r.Burst)
}

func gcraFresh(s *State, r *Rule, now int64) int64 {
	return gcraUntil(s, r, now, s.Used)
}

// gcraUntil is how long until so many of the used units have drained.
func gcraUntil(s *State, r *Rule, now, units int64) int64 {
	if units <= 0 {
		return 0
	}
	ticks, rem := divide(units*r.Den-s.Rem, r.Num)
	if rem > 0 {
		ticks++
	}
	return s.At + ticks*r.Tick - now
}

// gcraRefund takes back a grant. A booking was due once all but a burst had drained.
func gcraRefund(s *State, r *Rule, now int64, g Grant) int64 {
	g.Whole = r.Burst
	return leakyRefund(s, r, now, g)
}

// gcraSave notes the level before units were added.
func gcraSave(s *State, r *Rule, now, added int64) {
	was := *s
	was.Used -= added
	saveLowWater(s, r.Den, now, gcraLevel(&was, r, now), added)
}

// gcraCompile picks the finest tick in which every level stays exact.
func gcraCompile(r *Rule) bool {
	for r.Tick = 1; r.Tick <= 1_000_000; r.Tick *= 1000 {
		g := gcd(r.Count*r.Tick, r.Period)
		r.Num, r.Den = r.Count*r.Tick/g, r.Period/g
		if r.Num > math.MaxUint32 || gcraMost(r) < 2*r.Burst {
			continue
		}
		r.Cap = 2 * r.Burst
		gcraAdmit(r, r.Burst+ceilDiv(ahead, r.Period)*r.Count)
		r.Drain = ceilDiv(r.Burst*r.Den, r.Num) * r.Tick
		return true
	}
	return false
}

// gcraMost is the largest level that stays exact, as do the ticks in which it drains.
func gcraMost(r *Rule) int64 {
	return min((exact-2*r.Num)/r.Den, productCap(r.Num, (exact/r.Tick-2)/r.Den))
}

func gcraAdmit(r *Rule, units int64) {
	r.Cap = max(r.Cap, min(units, gcraMost(r)))
	r.Full = ceilDiv(r.Cap*r.Den, r.Num)
}

func gcraParams(r *Rule) [4]int64 { return [4]int64{r.Num, r.Den, r.Tick, r.Full} }
