package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

// changeCases change limits while state exists, for all algorithms.
var changeCases = []testCase{
	{"a raise or a cut of the count acts on the next charge", changedCount},
	{"a cut says when there is room again", cutWaits},
	{"a changed burst acts on the next charge", changedBurst},
	{"another period acts on the next charge", changedPeriod},
	{"other buckets keep what was granted", changedBuckets},
	{"other windows keep what was granted", changedWindows},
	{"another algorithm and back", changedTwice},
	{"a refund after a change", changedRefund},
	{"a debt is cut to what the limit allows", changedRecord},
	{"no change hands out a new budget", changedOften},
}

// A remainder has the remaining units after a limit has changed.
type remainder struct {
	used, remains int64
	count         int64
}

func changedCount(b *bench) {
	for _, algorithm := range counting() {
		for _, row := range []remainder{
			{used: 50, count: 100, remains: 50},
			{used: 50, count: 1000, remains: 950},
			{used: 50, count: 60, remains: 10},
			{used: 50, count: 50, remains: 0},
			{used: 50, count: 10, remains: 0},
			{used: 0, count: 1, remains: 1},
			{used: 100, count: 101, remains: 1},
		} {
			key := of(algorithm, weir.PerHour(row.count)).String() + time.Duration(row.used).String()
			before := of(algorithm, weir.PerHour(100))
			b.charge(key, before, row.used)
			b.remains("changed", key, of(algorithm, weir.PerHour(row.count)), row.remains)
			b.remains("changed back", key, before, 100-row.used)
		}
	}
}

// cutWaits cuts 1000 to 100 with 500 used.
func cutWaits(b *bench) {
	for _, algorithm := range counting() {
		before, after := of(algorithm, weir.PerHour(1000)), of(algorithm, weir.PerHour(100))
		b.charge("cut", before, 500)
		d := b.charge("cut", after, 1)
		if d.Outcome != weir.Refused || d.Remaining != 0 || d.RetryAfter <= 0 || d.RetryAfter > 5*time.Hour {
			b.Errorf("%v cut with 500 used: %+v", after, d)
		}
		b.clock.Advance(d.RetryAfter - time.Microsecond)
		if early := b.charge("cut", after, 1); early.Allowed() {
			b.Errorf("%v: granted before retry after %v", after, d.RetryAfter)
		}
		b.clock.Advance(time.Microsecond)
		if late := b.charge("cut", after, 1); !late.Allowed() {
			b.Errorf("%v: refused after retry after %v: %+v", after, d.RetryAfter, late)
		}
	}
}

func changedBurst(b *bench) {
	for _, algorithm := range counting() {
		if !bookable(of(algorithm, weir.PerHour(1))) {
			continue
		}
		with := func(burst int64) *weir.Limit {
			return of(algorithm, weir.Limit{Count: 100, Period: time.Hour, Burst: burst})
		}
		b.charge("burst", with(20), 15)
		for burst, remains := range map[int64]int64{5: 0, 15: 0, 16: 1, 20: 5, 100: 85} {
			b.remains("other burst", "burst", with(burst), remains)
		}
	}
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

func changedBuckets(b *bench) {
	with := func(buckets int) *weir.Limit {
		return weir.Limit{Algorithm: weir.RollingWindow, Count: 100, Period: time.Hour, Buckets: buckets}.MustCompile()
	}
	b.charge("buckets", with(60), 30)
	b.clock.Advance(20 * time.Minute)
	b.charge("buckets", with(60), 30)
	for _, buckets := range []int{2, 3, 7, 60, 3600, 60} {
		b.remains("other buckets", "buckets", with(buckets), 40)
		b.charge("buckets", with(buckets), 1)
		b.take(about(weir.KindRefund, "", weir.Charge{Key: "buckets", Limit: with(buckets), Cost: 1, At: b.clock.Micros()}))
	}
	b.clock.Advance(41*time.Minute + time.Hour)
	b.remains("all is over", "buckets", with(5), 100)
}

// changedWindows goes from windows of the epoch to windows of the first charge,
// and to calendar windows.
func changedWindows(b *bench) {
	daily := weir.Limit{Algorithm: weir.FixedWindow, Count: 100, Period: 24 * time.Hour}
	first, local := daily, daily
	first.Anchor, local.TimeZone = weir.AnchorFirst, "Pacific/Kiritimati"
	for i, limits := range [][2]weir.Limit{{daily, first}, {first, daily}, {daily, local}, {local, daily}, {local, first}} {
		key := time.Duration(i).String()
		b.charge(key, limits[0].MustCompile(), 30)
		b.remains("other windows", key, limits[1].MustCompile(), 70)
		b.charge(key, limits[1].MustCompile(), 30)
		b.clock.Advance(48 * time.Hour)
		b.remains("two days later", key, limits[1].MustCompile(), 100)
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

func changedRefund(b *bench) {
	for _, algorithm := range counting() {
		c := weir.Charge{Key: "refund", Limit: of(algorithm, weir.PerHour(100)), Cost: 60}
		d := b.charge(c.Key, c.Limit, 60)
		for _, count := range []int64{50, 1000} {
			c.Limit, c.Cost = of(algorithm, weir.PerHour(count)), 20
			a := undo(c, d)
			if b.take(a); a.Decisions[0].Granted != 20 {
				b.Errorf("%v: %+v", c.Limit, a.Decisions[0])
			}
		}
		b.remains("40 of 60 refunded", c.Key, c.Limit, 980)
	}
}

func changedRecord(b *bench) {
	for _, algorithm := range counting() {
		b.take(about(weir.KindRecord, "", weir.Charge{Key: "debt", Limit: of(algorithm, weir.PerHour(1000)), Cost: 2000}))
		small := of(algorithm, weir.PerMinute(10))
		d := b.charge("debt", small, 1)
		if d.Allowed() || d.RetryAfter == weir.Never || d.RetryAfter > 25*time.Hour {
			b.Errorf("%v with the debt of another: %+v", small, d)
		}
		b.clock.Advance(d.RetryAfter)
		if late := b.charge("debt", small, 1); !late.Allowed() {
			b.Errorf("%v: refused after retry after %v: %+v", small, d.RetryAfter, late)
		}
	}
}

// changedOften changes count, period and burst up and down at one instant.
func changedOften(b *bench) {
	for _, algorithm := range counting() {
		granted := 0
		for _, l := range []weir.Limit{
			weir.PerHour(10), weir.PerDay(10), weir.PerHour(9), weir.PerHour(10), weir.Per(10, 2*time.Hour), weir.PerHour(10),
		} {
			granted += b.granted("often", of(algorithm, l), 4)
		}
		if granted != 10 {
			b.Errorf("%v: %d of 10", algorithm, granted)
		}
	}
}
