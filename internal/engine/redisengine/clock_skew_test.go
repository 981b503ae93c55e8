package redisengine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// everyAct is one act of each kind for each algorithm that has it.
func everyAct() []*weir.Act {
	var all []*weir.Act
	for id := range algo.Steps {
		for kind := acts.KindTake; kind <= acts.KindRecord; kind++ {
			l := weir.PerMinute(10)
			l.Algorithm = weir.Algorithm(id)
			a := storetest.NewAct(weir.Charge{Key: "key", Limit: l.MustCompile(), Cost: 1})
			if a.Kind = kind; kind < acts.KindReset {
				a.ID, a.Scope.Owner = "id", a.Charges[0].Key
			}
			if kind == acts.KindTake {
				a.Hold = time.Minute
			}
			if acts.Check(a); a.Err == nil {
				all = append(all, a)
			}
		}
	}
	return all
}

// TestNoClockButTheStores compares what clients send whose clocks are years apart.
func TestNoClockButTheStores(t *testing.T) {
	t.Parallel()
	sent := func(now time.Time, a *weir.Act) string {
		return redisengine.PackedAt(now.UnixMicro(), a)
	}
	now := time.Date(2026, 7, 31, 12, 0, 0, 0, time.UTC)
	list := everyAct()
	for _, a := range list {
		for _, skew := range []time.Duration{time.Microsecond, 10 * time.Millisecond, -10 * time.Millisecond, time.Second, -time.Second, time.Hour, -time.Hour, 100 * 24 * time.Hour} {
			if sent(now, a) != sent(now.Add(skew), a) {
				t.Errorf("%v of %v depends on the client's clock", a.Kind, a.Charges[0].Limit)
			}
		}
	}
	if want := len(algo.Steps)*int(acts.KindRecord+1) - 1; len(list) != want {
		t.Errorf("looked at %d acts, want all %d but the record of a holder", len(list), want)
	}
	calendar := weir.Limit{Algorithm: weir.FixedWindow, Count: 10, Period: 24 * time.Hour, TimeZone: "UTC"}.MustCompile()
	a := storetest.NewAct(weir.Charge{Key: "key", Limit: calendar, Cost: 1})
	if sent(now, a) == sent(now.Add(24*time.Hour), a) {
		t.Error("a calendar's windows were not sent: this test sees nothing")
	}
}

// apart runs f on a host whose clock stands at an instant from the year 2000 on, with a client and
// a store of its own. Stores that are called within f go by that clock.
func apart(t *testing.T, address string, at time.Time, f func(*testing.T, *redisengine.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
		defer client.Close()
		f(t, open(t, client, redisengine.Options{}))
	})
}

// TestSkewChangesNothing lets hosts whose clocks are a day apart take from the same keys.
func TestSkewChangesNothing(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	here := open(t, dial(t, address), redisengine.Options{})
	for id := range algo.Steps {
		l := weir.PerDay(10)
		l.Algorithm = weir.Algorithm(id)
		limit := l.MustCompile()
		n := grants(t, limit, here)
		apart(t, address, time.Now().Add(24*time.Hour), func(t *testing.T, there *redisengine.Store) {
			n += grants(t, limit, there)
		})
		if n != 10 {
			t.Errorf("%v: granted %d of 10", limit, n)
		}
	}
}

// grants takes units and counts those granted.
func grants(t *testing.T, limit *weir.Limit, store weir.Taker) int {
	t.Helper()
	granted := 0
	for i := range 30 {
		a := storetest.NewAct(weir.Charge{Key: limit.String(), Limit: limit, Cost: 1})
		if limit.Algorithm == weir.Concurrency {
			a.ID, a.Scope.Owner = fmt.Sprint("holder ", i, " at ", time.Now()), a.Charges[0].Key
		}
		store.Take(context.Background(), []*weir.Act{a})
		if a.Err != nil {
			t.Fatalf("%v: %v", limit, a.Err)
		}
		if a.Allowed() {
			granted++
		}
	}
	return granted
}

// TestCalendarsGoByTheStoresClock asks for calendar windows from hosts whose
// clocks are right and decades wrong.
func TestCalendarsGoByTheStoresClock(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	here := open(t, dial(t, address), redisengine.Options{})
	const day = 24 * time.Hour
	zone, err := time.LoadLocation("Pacific/Auckland")
	if err != nil {
		t.Fatal(err)
	}
	for _, period := range []time.Duration{day, 7 * day, 30 * day, 365 * day} {
		limit := weir.Limit{Algorithm: weir.FixedWindow, Count: 10, Period: period, TimeZone: "Pacific/Auckland"}.MustCompile()
		look := func(store weir.Taker) (weir.Decision, time.Time) {
			a := storetest.NewAct(weir.Charge{Key: limit.String(), Limit: limit})
			if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
			d := a.Decisions[0]
			return d, d.At.Add(d.ResetAfter)
		}
		var n int
		var wrong weir.Decision
		var wrongEnd time.Time
		apart(t, address, time.Time{}, func(t *testing.T, there *redisengine.Store) {
			n = grants(t, limit, there)
			wrong, wrongEnd = look(there)
		})
		n += grants(t, limit, here)
		right, end := look(here)
		if n != 10 || right.Remaining != 0 || wrong.Remaining != 0 || !end.Equal(wrongEnd) {
			t.Errorf("%v: granted %d, %+v until %v; with the wrong clock %+v until %v", limit, n, right, end, wrong, wrongEnd)
		}
		if h, m, s := end.In(zone).Clock(); h+m+s != 0 || end.Before(right.At) {
			t.Errorf("%v: the window ends at %v", limit, end.In(zone))
		}
	}
}
