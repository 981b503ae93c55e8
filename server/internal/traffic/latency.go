package traffic

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latency is a histogram of call durations: four buckets for each doubling, from 256 ns
// on. Counts wrap at 2³²: readers use only their growth within a second.
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

// until returns the longest time that falls into a bucket.
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

// Latency has quantiles of the durations of the calls in one step, rounded up by less
// than a quarter. Without calls they are 0.
type Latency struct{ P50, P99 time.Duration }

// A Timing has the durations of the calls that charged a limit, whatever else they
// charged.
type Timing struct {
	Domain, Rule string
	Trial        bool      // of the rule, not the rule itself
	Steps        []Latency // one for each point of the [Window]
	// Lately covers the latest ten-second step of the last minute that has calls.
	Lately Latency
}

// timing has the durations of calls over time. Only the quantiles of a finished step are
// kept, so that it takes as much memory as a count.
type timing struct {
	rings[quantiles]
	seen   [buckets]uint32                   // the counts at the last second that was kept
	within [len(resolutions)][buckets]uint32 // of the step that has not ended
}

// quantiles are the buckets of the median and of the 99th percentile, counted from 1;
// 0 without calls.
type quantiles struct{ half, most uint8 }

// time adds the durations of calls to the history, if there were ever any and there is room.
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

func (t *timing) forget() { *t = timing{rings: newRings[quantiles](), seen: t.seen} }

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

// quantilesOf returns the buckets of the median and of the 99th percentile.
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
