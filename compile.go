package weir

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

const (
	maxUnits       = 1_000_000_000
	maxReported    = 1<<32 - 1
	maxLogUnits    = 100_000
	minPeriod      = time.Millisecond
	maxPeriod      = 366 * 24 * time.Hour
	maxBlock       = 240 * time.Hour
	minBuckets     = 2
	maxBuckets     = 3600
	defaultBuckets = 60
)

func (l *Limit) check() error {
	if int(l.Algorithm) >= len(algo.Steps) {
		return invalid("algorithm", l.Algorithm, "one of "+algo.Names())
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
	case l.Algorithm == FixedWindow:
		most = algo.MaxWindow
	case algo.TraitsOf(l.Algorithm).KeepsLog:
		most = maxLogUnits
		if l.Count > most {
			return invalidBeside("count", l.Count, "algorithm", fmt.Sprintf("0 … %d", most))
		}
	}
	if l.Count < 0 || l.Count > most {
		return invalid("count", l.Count, fmt.Sprintf("0 … %d", most))
	}
	if l.Burst < 0 || l.Burst > maxUnits {
		return invalidNumber("burst", l.Burst, 1, maxUnits, "the count")
	}
	return nil
}

func (l *Limit) checkOptions() error {
	traits := algo.TraitsOf(l.Algorithm)
	switch {
	case l.Burst != 0 && !traits.Bursts:
		return invalidBeside("burst", l.Burst, "algorithm", "none: "+l.Algorithm.String()+" grants at most its count at once")
	case l.Buckets != 0 && !traits.Buckets:
		return invalidBeside("buckets", l.Buckets, "algorithm", "none: only rolling_window has buckets")
	case l.Buckets != 0 && (l.Buckets < minBuckets || l.Buckets > maxBuckets):
		return invalidNumber("buckets", l.Buckets, minBuckets, maxBuckets, strconv.Itoa(defaultBuckets))
	case l.Anchor != AnchorEpoch && !traits.Calendars:
		return invalidBeside("anchor", "first", "algorithm", "none: only fixed_window has an anchor")
	case l.Anchor > AnchorFirst:
		return invalid("anchor", uint8(l.Anchor), "epoch or first")
	case l.ChargeRefused && traits.HoldsSlots:
		return invalidBeside("charge_refused", true, "algorithm", "false: concurrency has holders, not units")
	}
	if err := l.checkBlock(); err != nil {
		return err
	}
	return l.checkCalendar()
}

func (l *Limit) checkBlock() error {
	switch traits := algo.TraitsOf(l.Algorithm); {
	case l.Block == 0:
		return nil
	case l.Block < minPeriod || l.Block > maxBlock || l.Block%time.Millisecond != 0:
		return invalid("block", l.Block, "1ms … 240h in whole milliseconds")
	case traits.HoldsSlots:
		return invalidBeside("block", l.Block, "algorithm", "none: a slot of concurrency may be released at any time")
	case l.ChargeRefused:
		return invalidBeside("block", l.Block, "charge_refused", "none: a limit that charges refused requests keeps those out that go on")
	}
	return nil
}

// compile fills in the rule: integers in µs whose products stay below 2⁵³.
func (l *Limit) compile() error {
	l.rule = algo.Rule{
		ID:            algo.ID(l.Algorithm),
		ChargeRefused: l.ChargeRefused,
		AnchorFirst:   l.Anchor == AnchorFirst,
		Calendar:      l.TimeZone != "",
		Count:         max(1, l.Count),
		Period:        l.Period.Microseconds(),
		Burst:         l.Count,
		Buckets:       int64(l.Buckets),
	}
	bursts := algo.TraitsOf(l.Algorithm).Bursts
	if bursts && l.Count > 0 {
		l.rule.Burst = l.Burst
	}
	switch {
	case l.rule.Compile():
		if l.blocks = nil; l.Block > 0 {
			l.blocks = algo.Blocks(l.Block)
		}
		return nil
	case bursts:
		return l.inexact()
	}
	return invalidBeside("count", l.Count, "period", "a smaller count: this one cannot be weighed exactly over "+periodText(l.Period))
}

// inexact refuses a limit whose levels no unit of time can count exactly.
func (l *Limit) inexact() error {
	return invalidBeside("burst", l.Capacity(), "count", "a smaller burst, or a rounder count: this one cannot be counted exactly at "+
		fmt.Sprintf("%d/%s", l.Count, periodText(l.Period)))
}
