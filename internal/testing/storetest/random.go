package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// RandomLimit returns a random valid limit of an algorithm that is likely to find
// mistakes: small counts, odd fractions, and sometimes large numbers.
func RandomLimit(rng *rand.Rand, algorithm weir.Algorithm) *weir.Limit {
	periods := []time.Duration{
		time.Millisecond, 7 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Second,
		3 * time.Second, time.Minute, 97 * time.Minute, 24 * time.Hour,
	}
	for {
		l := weir.Per(1+rng.Int64N(20), periods[rng.IntN(len(periods))])
		l.Algorithm = algorithm
		if rng.IntN(8) == 0 {
			l.Count = 1 + rng.Int64N(100_000)
		}
		traits := algo.TraitsOf(algorithm)
		switch {
		case traits.Bursts:
			if rng.IntN(2) == 0 {
				l.Burst = 1 + rng.Int64N(30)
			}
		case traits.Buckets:
			if l.Buckets = 2 + rng.IntN(9); l.Buckets == 10 {
				l.Buckets = 100 + rng.IntN(200)
			}
		case traits.Calendars:
			l.Anchor = weir.Anchor(rng.IntN(2))
			if rng.IntN(3) == 0 {
				calendar(rng, &l)
			}
		}
		l.ChargeRefused = !traits.HoldsSlots && rng.IntN(4) == 0
		if compiled, err := l.Compile(); err == nil {
			return compiled
		}
	}
}

// calendar gives a fixed_window the windows of a place, with clocks that change
// or are odd.
func calendar(rng *rand.Rand, l *weir.Limit) {
	const day = 24 * time.Hour
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Australia/Lord_Howe"}
	l.Anchor, l.TimeZone = weir.AnchorEpoch, zones[rng.IntN(len(zones))]
	l.Period = []time.Duration{day, day, 7 * day, 30 * day, 365 * day}[rng.IntN(5)]
	if l.Period == 30*day {
		l.AnchorDay = rng.IntN(32)
	}
}
