package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// RepeatedWindow sets the clock back behind the fixed window that a limit of 4 was used up in,
// to the one that it was used up in before. It returns an error if the windows that the clock
// repeats grant anything.
func RepeatedWindow(taker weir.Taker, clock *Clock) error {
	const day = 24 * time.Hour
	for _, l := range []weir.Limit{
		{Algorithm: weir.FixedWindow, Count: 4, Period: 10 * time.Second},
		{Algorithm: weir.FixedWindow, Count: 4, Period: 10 * time.Second, Anchor: weir.AnchorFirst},
		{Algorithm: weir.FixedWindow, Count: 4, Period: day, TimeZone: "UTC"},
	} {
		limit, key := l.MustCompile(), l.String()+l.TimeZone
		take := func(cost int64) bool {
			a := NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
			taker.Take(context.Background(), []*weir.Act{a})
			return a.Allowed()
		}
		end := clock.Now().Truncate(l.Period).Add(2 * l.Period)
		start := end.Add(-l.Period / 20)
		if l.Anchor == weir.AnchorFirst {
			end = start.Add(l.Period)
		}
		if clock.Set(start); !take(4) || take(1) {
			return fmt.Errorf("%v: not 4 in a window", l)
		}
		if clock.Set(end.Add(l.Period / 20)); !take(4) || take(1) {
			return fmt.Errorf("%v: not 4 in the next window", l)
		}
		// Within a period from here on, 8 units are granted already.
		back := end.Add(-l.Period / 10)
		for since := time.Duration(0); since < l.Period; since += l.Period / 40 {
			if clock.Set(back.Add(since)); take(1) {
				return fmt.Errorf("%v: granted %v after the clock went back", l, since)
			}
		}
		if clock.Set(back.Add(2 * l.Period)); !take(4) {
			return fmt.Errorf("%v: locked out", l)
		}
	}
	return nil
}
