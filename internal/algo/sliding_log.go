package algo

// sliding_log remembers every distinct instant of the last Period at which it
// granted something, with how much, so that no interval (a, a+Period] ever
// holds more than Count. An entry is an instant and the sum of all grants up to
// it; the units in the window are the difference of two sums.

// Log is the grants that still count, oldest first. The entries before head do
// not count any more.
type Log struct {
	entries []entry
	head    int
	base    int64 // the sum before the entry at head
}

type entry struct {
	at  int64
	sum int64
}

func logAge(s *State, r *Rule, now int64) bool {
	if s.Ext == nil {
		s.Used = 0
		return false
	}
	l := &s.Ext.Log
	future := l.clamp(now)
	s.Used = l.last() - l.before(l.live(now, r))
	return future
}

// live is the index of the first grant that still counts.
func (l *Log) live(now int64, r *Rule) int {
	return l.search(func(e entry) bool { return e.at > now-r.Period })
}

// before is the sum of all grants before entry i.
func (l *Log) before(i int) int64 {
	if i == l.head {
		return l.base
	}
	return l.entries[i-1].sum
}

func (l *Log) last() int64 { return l.before(len(l.entries)) }

// clamp moves grants of the future to now.
func (l *Log) clamp(now int64) bool {
	n := len(l.entries)
	if n == l.head || l.entries[n-1].at <= now {
		return false
	}
	first := l.search(func(e entry) bool { return e.at > now })
	l.entries[first] = entry{now, l.last()}
	l.entries = l.entries[:first+1]
	return true
}

// search returns the index of the first entry for which f holds, searching from the
// oldest on in strides that double, because the entry is usually there.
func (l *Log) search(f func(entry) bool) int {
	low, stride := l.head, 1
	for low+stride <= len(l.entries) && !f(l.entries[low+stride-1]) {
		low += stride
		stride *= 2
	}
	high := min(low+stride, len(l.entries))
	for low < high {
		middle := (low + high) / 2
		if f(l.entries[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func logWait(s *State, r *Rule, now, cost int64) int64 {
	l := &s.Ext.Log
	leave := l.last() + cost - r.Burst
	i := l.search(func(e entry) bool { return e.sum >= leave })
	return l.entries[i].at + r.Period - now
}

func logFresh(s *State, r *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	l := &s.Ext.Log
	return l.entries[len(l.entries)-1].at + r.Period - now
}

func logSave(s *State, r *Rule, now, added int64) {
	if s.Ext == nil {
		s.Ext = new(Ext)
	}
	l := &s.Ext.Log
	l.drop(l.live(now, r))
	if added == 0 {
		return
	}
	sum, n := l.last()+added, len(l.entries)
	if n > l.head && (l.entries[n-1].at == now || s.Tight) {
		l.entries[n-1] = entry{now, sum}
		return
	}
	l.push(entry{now, sum})
}

// drop forgets the grants before entry i.
func (l *Log) drop(i int) {
	l.base = l.before(i)
	l.head = i
	if i == len(l.entries) {
		l.entries, l.head = l.entries[:0], 0
	}
}

// push appends an entry; it uses the room of forgotten ones before it asks for
// more.
func (l *Log) push(e entry) {
	if len(l.entries) == cap(l.entries) && l.head > len(l.entries)/2 {
		l.entries = l.entries[:copy(l.entries, l.entries[l.head:])]
		l.head = 0
	}
	l.entries = append(l.entries, e)
}

// refundReach is how many later instants a refund of a log looks past: all of them
// have to be written again.
const refundReach = 1000

func logRefund(s *State, r *Rule, now int64, g Grant) int64 {
	if s.Ext == nil {
		return 0
	}
	l := &s.Ext.Log
	if g.Newest {
		back := l.returnNewest(g.Units, l.live(now, r))
		s.Used -= back
		return back
	}
	i := l.search(func(e entry) bool { return e.at >= g.At })
	n := len(l.entries)
	if i == n || l.entries[i].at != g.At || i < l.live(now, r) || n-i > refundReach {
		return 0
	}
	back := min(g.Units, l.entries[i].sum-l.before(i))
	kept := i
	for _, e := range l.entries[i:] {
		// An instant at which nothing is left goes.
		if e.sum -= back; e.sum > l.before(kept) {
			l.entries[kept] = e
			kept++
		}
	}
	l.entries = l.entries[:kept]
	s.Used -= back
	return back
}

// returnNewest takes units from the last entries, but from none before first.
func (l *Log) returnNewest(units int64, first int) int64 {
	last := l.last()
	for i := max(first, len(l.entries)-refundReach); len(l.entries) > i && units > 0; {
		e := &l.entries[len(l.entries)-1]
		before := l.before(len(l.entries) - 1)
		if back := min(units, e.sum-before); e.sum-back > before {
			e.sum -= back
			break
		}
		units -= e.sum - before
		l.entries = l.entries[:len(l.entries)-1]
	}
	return last - l.last()
}

func logExt(*Rule) int64 { return entryBytes }
