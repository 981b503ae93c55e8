package traffic

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latency counts calls by how long they took: four steps for each doubling, in
// nanoseconds, from 256 ns on. A count begins anew after 2³²: what is read of it is
// how much it has grown within a second.
type latency [buckets]atomic.Uint32

const (
	buckets   = 4 * 26
	firstBits = 8
)

func bucketOf(took time.Duration) int {
	n := uint64(max(took, 1<<firstBits))
	doubling := bits.Len64(n) - 1
	i := (doubling-firstBits)*4 + int(n>>(doubling-2)&3)
	return min(i, buckets-1)
}

// until is the longest time that falls into a bucket.
func until(bucket int) time.Duration {
	doubling := bucket/4 + firstBits
	return time.Duration(uint64(bucket%4+5)<<(doubling-2)) - 1
}

// took counts a call that charges the limit.
func (t *tally) took(bucket int) {
	l := t.latency.Load()
	if l == nil {
		t.latency.CompareAndSwap(nil, new(latency))
		l = t.latency.Load()
	}
	l[bucket].Add(1)
}

// Latency is how long the calls of one step took: half of them at most P50, 99 in
// 100 at most P99. The figures are rounded up by less than a quarter; without calls
// they are 0.
type Latency struct{ P50, P99 time.Duration }

// A Timing is how long the calls took that charged a limit, whatever else they
// charged.
type Timing struct {
	Domain, Rule string
	Trial        bool      // of the rule, not the rule itself
	Steps        []Latency // one for each point of the [Window]
	// Lately is that of the last ten seconds with calls, of those in the last
	// minute that have ended.
	Lately Latency
}

// timing is how long calls took over time, in each resolution. Of a step that has
// ended no more is kept than its quantiles, so that it takes as much memory as a
// count.
type timing struct {
	rings[quantiles]
	seen   [buckets]uint32                   // the counts at the last second that was kept
	within [len(resolutions)][buckets]uint32 // of the step that has not ended
}

// quantiles are the buckets of half and of 99 in 100 calls, counted from 1; 0
// without calls.
type quantiles struct{ half, most uint8 }

// time files how long calls took, if there were ever any and there is room.
func (h *history) time(to **timing, calls *latency, now int64) {
	if *to == nil {
		if calls == nil || h.series >= maxSeries {
			return
		}
		*to = &timing{rings: newRings[quantiles]()}
		h.series++
	}
	(*to).keep(calls, h.last, now)
}

// keep adds the calls that came after last, up to and with now.
func (t *timing) keep(calls *latency, last, now int64) {
	var grown [buckets]uint32
	some := false
	for i := range calls {
		count := calls[i].Load()
		grown[i] = count - t.seen[i]
		t.seen[i] = count
		some = some || grown[i] > 0
	}
	for i := range resolutions {
		if t.advance(i, last, now) {
			t.within[i] = [buckets]uint32{}
		}
		if some {
			t.add(i, &grown, now)
		}
	}
}

func (t *timing) add(resolution int, grown *[buckets]uint32, now int64) {
	within := &t.within[resolution]
	for i, n := range grown {
		within[i] += n
	}
	*t.at(resolution, now) = quantilesOf(within)
}

func (t *timing) forget() {
	if t != nil {
		*t = timing{rings: newRings[quantiles](), seen: t.seen}
	}
}

// latencies returns the steps of one resolution up to the last whole one before end.
func (t *timing) latencies(resolution int, points, end int64) []Latency {
	out := make([]Latency, points)
	for i, q := range t.read(resolution, points, end) {
		out[i] = q.latency()
	}
	return out
}

// lately returns the last of the six steps of ten seconds before now that had calls.
func (t *timing) lately(now int64) (l Latency) {
	const tens, minute = 1, 6
	for _, step := range t.latencies(tens, minute, now/resolutions[tens].step) {
		if step != (Latency{}) {
			l = step
		}
	}
	return l
}

// quantilesOf finds the buckets of the call in the middle and of that which 99 in
// 100 are not behind.
func quantilesOf(calls *[buckets]uint32) (q quantiles) {
	all, seen := uint64(0), uint64(0)
	for _, n := range calls {
		all += uint64(n)
	}
	for i, n := range calls {
		if n == 0 {
			continue
		}
		seen += uint64(n)
		if q.half == 0 && seen >= (all+1)/2 {
			q.half = uint8(i + 1)
		}
		if q.most == 0 && seen >= all-all/100 {
			q.most = uint8(i + 1)
		}
	}
	return q
}

func (q quantiles) latency() Latency {
	if q == (quantiles{}) {
		return Latency{}
	}
	return Latency{until(int(q.half) - 1), until(int(q.most) - 1)}
}
