package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

// changeCases change limits while state exists, for all algorithms.
var changeCases = []testCase{
	{"another period acts on the next charge", changedPeriod},
	{"another algorithm and back", changedTwice},
}

// changedPeriod uses 60 of 100 per hour, half an hour into one of its windows, and peeks
// again at once: units that were used in any of the windows still count, or are in a
// window that is over.
func changedPeriod(b *bench) {
	start := b.clock.Now().Truncate(24 * time.Hour).Add(24*time.Hour + 30*time.Minute)
	for _, algorithm := range counting() {
		b.clock.Set(start)
		for _, period := range []time.Duration{time.Minute, 10 * time.Minute, 90 * time.Minute, 24 * time.Hour} {
			key := period.String()
			hourly, changed := of(algorithm, weir.PerHour(100)), of(algorithm, weir.Per(100, period))
			b.charge(key, hourly, 60)
			d := b.charge(key, changed, 0)
			if d.Remaining != 40 {
				b.Errorf("%v with 60 used a moment ago: %+v", changed, d)
			}
			if d.ResetAfter <= 0 || d.ResetAfter > 2*max(period, time.Hour) {
				b.Errorf("%v: reset after %v", changed, d.ResetAfter)
			}
			b.remains("back again", key, hourly, 40)
		}
		b.charge("shorter", of(algorithm, weir.PerHour(100)), 60)
		b.clock.Advance(20 * time.Minute)
		short := of(algorithm, weir.PerMinute(100))
		b.remains("long ago for the new period", "shorter", short, 100)
	}
}

func changedTwice(b *bench) {
	all := limits()
	for i, l := range all {
		other := all[(i+1)%len(all)]
		b.charge("back and forth "+l.Algorithm.String(), l, 6)
		b.remains("another algorithm", "back and forth "+l.Algorithm.String(), other, 10)
		b.remains("the same again", "back and forth "+l.Algorithm.String(), l, 4)
	}
}
