package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
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
				a.ID = "id"
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
		return redisstore.PackedAt(now.UnixMicro(), a)
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

// apart runs f on a host whose clock stands in the year 2000, with a client and a
// store of its own.
func apart(t *testing.T, address string, o redisstore.Options, f func(*testing.T, *redisstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if y := time.Now().Year(); y != 2000 {
			t.Fatalf("this host's clock stands at %d", y)
		}
		client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
		defer client.Close()
		f(t, open(t, client, o))
	})
}

// TestSkewChangesNothing lets hosts whose clocks are decades apart take from the
// same keys in turn.
func TestSkewChangesNothing(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	here := open(t, dial(t, address), redisstore.Options{})
	apart(t, address, redisstore.Options{}, func(t *testing.T, there *redisstore.Store) {
		for id := range algo.Steps {
			l := weir.PerDay(10)
			l.Algorithm = weir.Algorithm(id)
			limit := l.MustCompile()
			if n := inTurn(t, limit, here, there); n != 10 {
				t.Errorf("%v: granted %d of 10", limit, n)
			}
		}
	})
}

// TestSkewIsNoticed shows that stores which go by their hosts' clocks grant more.
func TestSkewIsNoticed(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	host := func(client redis.UniversalClient, now func() int64) *redisstore.Store {
		store, err := redisstore.NewWithClock(client, redisstore.Options{}, now)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	client := dial(t, address)
	here := host(client, func() int64 { return time.Now().UnixMicro() })
	there := host(client, func() int64 { return time.Now().Add(time.Second).UnixMicro() })
	if n := inTurn(t, weir.Per(10, time.Second).MustCompile(), here, there); n <= 10 {
		t.Errorf("granted %d of 10: this test sees nothing", n)
	}
}

// inTurn takes units through one store after the other and counts those granted.
func inTurn(t *testing.T, limit *weir.Limit, stores ...weir.Taker) int {
	t.Helper()
	granted := 0
	for i := range 60 {
		a := storetest.NewAct(weir.Charge{Key: limit.String(), Limit: limit, Cost: 1})
		if limit.Algorithm == weir.Concurrency {
			a.ID = fmt.Sprint("holder", i)
		}
		stores[i%len(stores)].Take(context.Background(), []*weir.Act{a})
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
	client := dial(t, address)
	here := open(t, client, redisstore.Options{})
	const day = 24 * time.Hour
	for _, period := range []time.Duration{day, 7 * day, 30 * day, 365 * day} {
		limit := weir.Limit{Algorithm: weir.FixedWindow, Count: 10, Period: period, TimeZone: "Pacific/Auckland"}.MustCompile()
		apart(t, address, redisstore.Options{}, func(t *testing.T, there *redisstore.Store) {
			if n := inTurn(t, limit, there, here); n != 10 {
				t.Errorf("%v: granted %d of 10", limit, n)
			}
			look := func(store weir.Taker) (weir.Decision, time.Time) {
				a := storetest.NewAct(weir.Charge{Key: limit.String(), Limit: limit})
				if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
					t.Fatal(a.Err)
				}
				d := a.Decisions[0]
				return d, d.At.Add(d.ResetAfter)
			}
			right, end := look(here)
			wrong, wrongEnd := look(there)
			if right.Remaining != 0 || wrong.Remaining != 0 || !end.Equal(wrongEnd) {
				t.Errorf("%v: %+v until %v; with the wrong clock %+v until %v", limit, right, end, wrong, wrongEnd)
			}
			zone, err := time.LoadLocation("Pacific/Auckland")
			if err != nil {
				t.Fatal(err)
			}
			if h, m, s := end.In(zone).Clock(); h+m+s != 0 || end.Before(right.At) {
				t.Errorf("%v: the window ends at %v", limit, end.In(zone))
			}
		})
	}
}

// TestLeasesLastWhenTheClockGoesBack sets the clock back under holders: their
// leases last as long as they did, also where the first act to see it fails.
func TestLeasesLastWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	inRedis, err := redisstore.NewWithClock(dial(t, testserver.StartRedis(t).Addr()), redisstore.Options{}, clock.Micros)
	if err != nil {
		t.Fatal(err)
	}
	limit := weir.Limit{Algorithm: weir.Concurrency, Count: 10, Period: time.Minute}.MustCompile()
	for name, store := range map[string]weir.Taker{"redis": inRedis, "memory": memstore.New(memstore.Options{Now: clock.Now})} {
		do := func(kind weir.Kind, id string, hold time.Duration) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "key", Limit: limit})
			if a.Kind, a.ID, a.Hold = kind, id, hold; kind == acts.KindTake && id != "" {
				a.Charges[0].Cost = 1
			}
			store.Take(context.Background(), []*weir.Act{a})
			return a
		}
		want := func(remaining int64, reset time.Duration) {
			t.Helper()
			got := do(acts.KindTake, "", 0).Decisions[0]
			if diff := cmp.Diff(weir.Decision{Outcome: weir.Granted, Remaining: remaining, ResetAfter: reset}, weir.Decision{
				Outcome: got.Outcome, Remaining: got.Remaining, ResetAfter: got.ResetAfter,
			}); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		do(acts.KindTake, "ended", 0)
		clock.Advance(61 * time.Second)
		do(acts.KindTake, "held", 0)
		clock.Advance(-time.Hour)
		if a := do(acts.KindRenew, "ended", 0); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Errorf("%s: renewed a lease that had ended: %v", name, a.Err)
		}
		want(9, time.Minute)
		clock.Advance(20 * time.Second)
		want(9, 40*time.Second)
		do(acts.KindRenew, "held", 5*time.Minute)
		clock.Advance(-time.Hour)
		want(9, 5*time.Minute)
		do(acts.KindRelease, "held", 0)
		want(10, 0)
	}
}
