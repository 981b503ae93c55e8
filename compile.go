package weir

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

const (
	maxUnits       = 1_000_000_000
	maxReported    = 1<<32 - 1
	maxLogUnits    = 100_000
	minPeriod      = time.Millisecond
	maxPeriod      = 366 * 24 * time.Hour
	minBuckets     = 2
	maxBuckets     = 3600
	defaultBuckets = 60
	// exact is what Lua's numbers count to without a gap.
	exact = 1 << 53
	// ahead is how far a charge may be booked into the future, in µs.
	ahead = 24 * 3600 * 1_000_000
)

func (l *Limit) check() error {
	if int(l.Algorithm) >= len(algo.Steps) {
		return invalid("algorithm", l.Algorithm, "one of "+AlgorithmNames())
	}
	if err := l.checkCount(); err != nil {
		return err
	}
	if l.Period < minPeriod || l.Period > maxPeriod || l.Period%time.Millisecond != 0 {
		return invalid("period", l.Period, "1ms … 8784h (366 days) in whole milliseconds")
	}
	return l.checkOptions()
}

func (l *Limit) checkCount() error {
	most := int64(maxUnits)
	switch {
	case l.reports():
		most = maxReported
	case l.Algorithm == SlidingLog:
		most = maxLogUnits
	}
	if l.Count < 0 || l.Count > most {
		return invalid("count", l.Count, fmt.Sprintf("0 … %d", most))
	}
	if l.Burst < 0 || l.Burst > maxUnits {
		return invalid("burst", l.Burst, fmt.Sprintf("1 … %d, or 0 for the count", maxUnits))
	}
	return nil
}

func (l *Limit) checkOptions() error {
	switch {
	case l.Burst != 0 && !l.bursts():
		return invalid("burst", l.Burst, "none: "+l.Algorithm.String()+" grants at most its count at once")
	case l.Buckets != 0 && l.Algorithm != RollingWindow:
		return invalid("buckets", l.Buckets, "none: only rolling_window has buckets")
	case l.Buckets != 0 && (l.Buckets < minBuckets || l.Buckets > maxBuckets):
		return invalid("buckets", l.Buckets, fmt.Sprintf("%d … %d, or 0 for %d", minBuckets, maxBuckets, defaultBuckets))
	case l.Anchor != AnchorEpoch && l.Algorithm != FixedWindow:
		return invalid("anchor", "first", "none: only fixed_window has an anchor")
	case l.Anchor > AnchorFirst:
		return invalid("anchor", uint8(l.Anchor), "epoch or first")
	case l.ChargeRefused && l.Algorithm == Concurrency:
		return invalid("charge_refused", true, "false: concurrency has holders, not units")
	}
	return l.checkCalendar()
}

// compile fills in the rule: integers in µs whose products stay below 2⁵³.
func (l *Limit) compile() error {
	r := &l.rule
	*r = algo.Rule{
		ID:            algo.ID(l.Algorithm),
		ChargeRefused: l.ChargeRefused,
		AnchorFirst:   l.Anchor == AnchorFirst,
		Count:         max(1, l.Count),
		Period:        l.Period.Microseconds(),
		Burst:         l.Count,
	}
	r.Debt = 2 * r.Burst
	r.Cap, r.Drain = r.Debt, r.Period
	switch l.Algorithm {
	case FixedWindow:
		r.Debt, r.Cap = MaxCount, MaxCount
		r.Calendar = l.TimeZone != ""
		if r.Calendar {
			r.Drain += calendarSlack
		}
	case SlidingCounter:
		return l.compileCounter()
	case RollingWindow:
		r.Buckets = int64(l.Buckets)
		r.Width = ceilDiv(r.Period, r.Buckets)
		r.Drain += r.Width
	case TokenBucket:
		return l.compileBucket()
	case GCRA, LeakyBucket:
		return l.compileGCRA()
	}
	return nil
}

// compileBucket leaves room for debts of a whole bucket and for what can be
// booked ahead, as far as the numbers reach.
func (l *Limit) compileBucket() error {
	r := &l.rule
	if l.Count > 0 {
		r.Burst = l.Burst
	}
	r.Debt = 2 * r.Burst
	refills := int64(exact)/r.Period - 2
	if refills < ceilDiv(2*r.Burst, r.Count) {
		return l.inexact()
	}
	r.Cap = max(2*r.Burst, min(r.Burst+r.Count*ceilDiv(ahead, r.Period), productCap(refills, r.Count)))
	r.Drain = ceilDiv(r.Burst, r.Count) * r.Period
	return nil
}

// compileGCRA picks the finest tick in which every level stays exact.
func (l *Limit) compileGCRA() error {
	r := &l.rule
	if l.Count > 0 {
		r.Burst = l.Burst
	}
	r.Debt = 2 * r.Burst
	for r.Tick = 1; r.Tick <= 1_000_000; r.Tick *= 1000 {
		g := gcd(r.Count*r.Tick, r.Period)
		r.Num, r.Den = r.Count*r.Tick/g, r.Period/g
		// Ticks and levels both have to stay exact.
		most := min((exact-2*r.Num)/r.Den, productCap(r.Num, (exact/r.Tick-2)/r.Den))
		if r.Num > math.MaxUint32 || most < 2*r.Burst {
			continue
		}
		r.Cap = max(2*r.Burst, min(r.Burst+ceilDiv(ahead, r.Period)*r.Count, most))
		r.Full = ceilDiv(r.Cap*r.Den, r.Num)
		r.Drain = ceilDiv(r.Burst*r.Den, r.Num) * r.Tick
		return nil
	}
	return l.inexact()
}

// compileCounter picks the finest tick in which a counter times the period stays
// exact.
func (l *Limit) compileCounter() error {
	r := &l.rule
	r.Drain = 2 * r.Period
	for r.Tick = 1; r.Tick <= 1_000_000; r.Tick *= 1000 {
		if r.Period%r.Tick == 0 && r.Cap <= (exact-1)/(r.Period/r.Tick) {
			return nil
		}
	}
	return invalid("count", l.Count, "a smaller count: this one cannot be weighed exactly over "+periodText(l.Period))
}

// inexact refuses a limit whose levels no unit of time can count exactly.
func (l *Limit) inexact() error {
	return invalid("burst", l.Capacity(), "a smaller burst, or a rounder count: this one cannot be counted exactly at "+
		fmt.Sprintf("%d/%s", l.Count, periodText(l.Period)))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// productCap is a·b, or 2⁵³ if that is less.
func productCap(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low < exact {
		return int64(low)
	}
	return exact
}
