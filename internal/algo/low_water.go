package algo

import "slices"

// A refund of x units that were charged at t0 lowers the level of a key by min(x, the least
// level since t0): a bucket that ran empty in between has already forgotten the rest. Low-water
// marks are these least levels, for the keys whose units can be refunded.
//
// A mark (at, level) says that from any instant since the mark before it, and before at, the
// level has never been below level. So both numbers ascend. The least level since an instant is
// that of the first mark after it, or the current level if there is none.
//
// With all marks, a refund is exact: the state is that of a history without the refunded units.
// With merged marks, and for a charge before since, a refund may return less, but never less
// than if the refunded units had drained first.

// LowWater has the low-water marks of a key.
type LowWater struct {
	since int64 // levels before this instant are not known
	den   int64 // levels are in units of 1/den
	marks []mark
}

type mark struct{ at, level int64 }

// maxMarks is the largest number of marks of a key.
var maxMarks = 16

// The memory of LowWater without its marks, of a mark, and how many marks a key begins with.
const lowWaterBytes, markBytes, firstMarks = 48, 16, 2

// lowWater returns the marks of a state in units of 1/den, or nil if it has none.
func (s *State) lowWater(den int64) *LowWater {
	if s.Ext == nil || s.Ext.LowWater == nil {
		return nil
	}
	l := s.Ext.LowWater
	if l.den != den {
		// The limit has changed. Whole units, rounded down, are a lower bound.
		for i := range l.marks {
			l.marks[i].level = l.marks[i].level / l.den * den
		}
		l.den = den
	}
	return l
}

// saveLowWater notes the level that a state had before units were added. A state that can be
// refunded gets marks; one that was fresh, and cannot, loses them. While memory is short, a fresh
// state has none.
func saveLowWater(s *State, den, now, level, added int64) {
	l := s.lowWater(den)
	switch {
	case l == nil && s.Refundable && !s.Tight:
		s.Ext = &Ext{LowWater: &LowWater{since: now, den: den, marks: make([]mark, 0, firstMarks)}}
	case l == nil || added <= 0:
	case s.Used == added && (s.Tight || !s.Refundable):
		s.Ext = nil
	case level <= 0:
		l.since, l.marks = now, l.marks[:0]
	default:
		most := maxMarks
		if s.Tight {
			most = max(firstMarks, len(l.marks))
		}
		l.add(now, level, most)
	}
}

// add adds a mark, and drops those that are not below it.
func (l *LowWater) add(now, level int64, most int) {
	n := len(l.marks)
	if n > 0 {
		now = max(now, l.marks[n-1].at) // the clock may have gone back
	}
	for n > 0 && l.marks[n-1].level >= level {
		n--
	}
	l.marks = l.marks[:n]
	switch {
	case n > 0 && l.marks[n-1].at == now:
		return // no instant lies between the two
	case n >= most:
		for n = most * 7 / 8; len(l.marks) > n; { // not for each mark: Lua has to read all of them
			l.merge()
		}
	}
	l.marks = append(l.marks, mark{now, level})
}

// merge makes one mark of the two neighbours whose levels differ least in proportion.
func (l *LowWater) merge() {
	best, ratio := 0, -1.0
	for i := range len(l.marks) - 1 {
		if r := float64(l.marks[i].level) / float64(l.marks[i+1].level); r > ratio {
			best, ratio = i, r
		}
	}
	l.marks[best].at = l.marks[best+1].at
	l.marks = slices.Delete(l.marks, best+1, best+2)
}

// least is the least level since an instant, given the current level; 0 if it is not known.
func (l *LowWater) least(since, level int64) int64 {
	if l == nil || since < l.since {
		return 0
	}
	for _, m := range l.marks {
		if m.at > since {
			return min(m.level, level)
		}
	}
	return level
}

// refund takes units that were charged at an instant out of the history. The least level since
// then was least.
func (l *LowWater) refund(since, units, least int64) {
	if l == nil {
		return
	}
	kept := l.marks[:0]
	for _, m := range l.marks {
		if m.at > since {
			m.level = max(0, m.level-units)
		} else {
			m.level = min(m.level, max(0, least-units))
		}
		// Of equal levels, the last mark is enough.
		if n := len(kept); n > 0 && kept[n-1].level == m.level {
			kept = kept[:n-1]
		}
		kept = append(kept, m)
	}
	l.marks = kept
}
