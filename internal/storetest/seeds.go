package storetest

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// seeds are the cases that the articles behind the first algorithms describe, with the
// expected results.
func seeds(b *bench) {
	seedSameMillisecond(b)
	seedTwoSeconds(b)
	seedBucket(b)
	seedRolling(b)
}

// 15 attempts at 5 per minute within one millisecond.
func seedSameMillisecond(b *bench) {
	l := weir.Limit{Algorithm: weir.SlidingLog, Count: 5, Period: time.Minute}.MustCompile()
	passed := 0
	for range 15 {
		passed += b.granted("attempts", l, 1)
		b.clock.Advance(50 * time.Microsecond)
	}
	if passed != 5 {
		b.Errorf("15 attempts at 5 a minute: %d passed", passed)
	}
	d := b.charge("attempts", l, 1)
	b.clock.Advance(d.RetryAfter)
	if !b.charge("attempts", l, 1).Allowed() {
		b.Error("a polling client did not get in when the window allowed")
	}
}

// Passed has the units that a limit of 1000 per 3 s granted of [SeedArrivals].
type Passed struct {
	Algorithm weir.Algorithm
	Seconds   [6]int // units granted in each second
	Worst     int    // most in any 3 s
}

// SeedArrivals are the numbers of requests in six consecutive seconds. With a limit of
// 1000 per 3 s, a fixed window grants 1980 of them within 3 s.
var SeedArrivals = [6]int{10, 10, 980, 900, 100, 0}

// Arrivals plays SeedArrivals, one unit at a time and evenly spread, from the
// start of a window on.
func Arrivals(taker weir.Taker, clock *Clock, algorithm weir.Algorithm) Passed {
	limit := weir.Limit{Algorithm: algorithm, Count: 1000, Period: 3 * time.Second}.MustCompile()
	p := Passed{Algorithm: algorithm}
	start := clock.Now().Truncate(3 * time.Second).Add(3 * time.Second)
	var grants []time.Time
	for second, n := range SeedArrivals {
		for i := range n {
			clock.Set(start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Second/time.Duration(n)))
			a := NewAct(weir.Charge{Key: "arrivals", Limit: limit, Cost: 1})
			if taker.Take(context.Background(), []*weir.Act{a}); a.Allowed() {
				p.Seconds[second]++
				grants = append(grants, clock.Now())
			}
		}
	}
	p.Worst = worst(grants, 3*time.Second)
	return p
}

// worst is the most grants in any interval (a, a+period].
func worst(grants []time.Time, period time.Duration) int {
	most, first := 0, 0
	for i, at := range grants {
		for at.Sub(grants[first]) >= period {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func seedTwoSeconds(b *bench) {
	if p := Arrivals(b.taker, b.clock, weir.FixedWindow); p.Worst != 1980 {
		b.Errorf("fixed window: worst 3 s held %d, want 1980", p.Worst)
	}
	for _, algorithm := range []weir.Algorithm{weir.SlidingLog, weir.RollingWindow} {
		if p := Arrivals(b.taker, b.clock, algorithm); p.Worst > 1000 || p.Worst < 990 {
			b.Errorf("%v: worst 3 s held %d, want at most 1000", algorithm, p.Worst)
		}
	}
}

// A bucket of 10 that gets 2 tokens a second, costs 1 and 3.
func seedBucket(b *bench) {
	l := weir.Limit{Algorithm: weir.TokenBucket, Count: 2, Period: time.Second, Burst: 10}.MustCompile()
	for i, step := range []struct {
		wait   time.Duration
		cost   int64
		passes bool
		left   int64
	}{
		{0, 3, true, 7},
		{0, 3, true, 4},
		{0, 3, true, 1},
		{0, 3, false, 1},
		{0, 1, true, 0},
		{0, 1, false, 0},
		{999 * time.Millisecond, 1, false, 0},
		{time.Millisecond, 3, false, 2},
		{0, 1, true, 1},
		{time.Second, 3, true, 0},
		{3 * time.Second, 3, true, 3},
		{10 * time.Second, 1, true, 9},
	} {
		b.clock.Advance(step.wait)
		if d := b.charge("bucket", l, step.cost); d.Allowed() != step.passes || d.Remaining != step.left {
			b.Errorf("bucket, step %d: %+v", i, d)
		}
	}
}

// 10 per 10 s in buckets of 1 s: 1 at 0 s, 9 at 0.9 s, then 10 more at 10.01 s.
func seedRolling(b *bench) {
	l := weir.Limit{Algorithm: weir.RollingWindow, Count: 10, Period: 10 * time.Second, Buckets: 10}.MustCompile()
	b.clock.Set(b.clock.Now().Truncate(time.Second).Add(time.Second))
	passed := b.granted("rolling", l, 1)
	b.clock.Advance(900 * time.Millisecond)
	passed += b.granted("rolling", l, 9)
	b.clock.Advance(9110 * time.Millisecond)
	if late := b.granted("rolling", l, 10); passed != 10 || late != 0 {
		b.Errorf("%d in the first second, %d at 10.01 s", passed, late)
	}
	b.clock.Advance(990 * time.Millisecond)
	if n := b.granted("rolling", l, 20); n != 10 {
		b.Errorf("%d at 11 s, want 10", n)
	}
}
