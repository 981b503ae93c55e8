package algo

import "slices"

// To take x units back that were charged at t0 lowers the level of a key by min(x, the least
// level since t0): a bucket that ran empty in between has forgotten them, as far as it did.
// Lows are these least levels, for the keys on which something can be given back.
//
// A point (at, level) says that the level was not below level from any instant in (the point
// before, at) on. So both ascend. The least level from an instant on is that of the first
// point after it, or else the level now.
//
// With all points, a refund is exact: the state is that of a history without the refunded
// units. Where points are merged, or t0 is before since, refunds return less, but never less
// than what remains if the refunded units drained first.

// Lows are the least levels of a key since instants of the past.
type Lows struct {
	since  int64 // what was before is not known
	den    int64 // levels are in units of 1/den
	points []low
}

type low struct{ at, level int64 }

// maxLows is the largest number of points. Of more, the two that are most alike are merged.
var maxLows = 16

// lowsBytes is the memory of Lows without its points, lowBytes of a point.
const lowsBytes, lowBytes = 48, 16

// lows returns what is known of the least levels of a state, if it is in units of 1/den.
func (s *State) lows(den int64) *Lows {
	if s.Ext == nil || s.Ext.Lows == nil {
		return nil
	}
	l := s.Ext.Lows
	if l.den != den {
		// The limit has changed. Whole units are exact enough.
		for i := range l.points {
			l.points[i].level = l.points[i].level / l.den * den
		}
		l.den = den
	}
	return l
}

// KeepLows has the state remember its least levels from now on.
func (r *Rule) KeepLows(s *State, now int64) {
	den := r.Den
	switch {
	case r.ID == TokenBucket:
		den = 1
	case r.ID != GCRA && r.ID != LeakyBucket:
		return
	}
	if s.lows(den) != nil {
		return
	}
	if s.Ext == nil {
		s.Ext = new(Ext)
	}
	s.Ext.Lows = &Lows{since: now, den: den}
}

// DropLows has a state that was as a fresh one forget its least levels.
func (s *State) DropLows() {
	if s.Ext != nil && s.Ext.Lows != nil {
		s.Ext = nil
	}
}

// fell notes the level that a state had at an instant before it was charged.
func (l *Lows) fell(now, level int64) {
	if n := len(l.points); n > 0 && now < l.points[n-1].at {
		now = l.points[n-1].at + 1 // the clock went back
	}
	l.cap(level)
	if n := len(l.points); n > 0 && l.points[n-1].at == now {
		return // nothing looks at a second point of one instant
	}
	if n := len(l.points); n >= maxLows*3/4 && n > 0 && level-level/8 <= l.points[n-1].level {
		// Nearly alike: merging these takes no look at the others.
		l.points[n-1].at = now
		return
	}
	if l.points = append(l.points, low{now, level}); len(l.points) > maxLows {
		l.merge()
	}
}

// cap forgets the points that are not below a level.
func (l *Lows) cap(level int64) {
	n := len(l.points)
	for n > 0 && l.points[n-1].level >= level {
		n--
	}
	l.points = l.points[:n]
}

// merge makes one point of the two that are most alike, in proportion.
func (l *Lows) merge() {
	best, ratio := 0, -1.0
	for i := range len(l.points) - 1 {
		if r := float64(l.points[i].level) / float64(l.points[i+1].level); r > ratio {
			best, ratio = i, r
		}
	}
	l.points[best].at = l.points[best+1].at
	l.points = slices.Delete(l.points, best+1, best+2)
}

// least is the least level since an instant; it is level now. It is 0 if nothing is known.
func (l *Lows) least(since, level int64) int64 {
	if l == nil || since < l.since {
		return 0
	}
	for _, p := range l.points {
		if p.at > since {
			return min(p.level, level)
		}
	}
	return level
}

// give takes back from the history so many units, which were charged at an instant. The least
// level since then was least.
func (l *Lows) give(since, back, least int64) {
	if l == nil {
		return
	}
	for i := range l.points {
		p := &l.points[i]
		if p.at > since {
			p.level = max(0, p.level-back)
		} else {
			p.level = min(p.level, max(0, least-back))
		}
	}
	// Equal points are one.
	kept := l.points[:0]
	for i, p := range l.points {
		if i+1 == len(l.points) || p.level < l.points[i+1].level {
			kept = append(kept, p)
		}
	}
	l.points = kept
}

// saveLows notes the level before units were added.
func saveLows(s *State, den, now, level int64) {
	if l := s.lows(den); l != nil {
		if level <= 0 {
			l.since, l.points = now, l.points[:0]
		}
		l.fell(now, max(0, level))
	}
}
