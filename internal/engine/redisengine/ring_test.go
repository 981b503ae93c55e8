package redisengine_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A ring is the string of a rolling_window.
type ring struct {
	bytes             int64 // of a counter
	period, at, total int64
	counts            []int64
}

func parseRing(t *testing.T, text string) ring {
	t.Helper()
	number := func(from, bytes int) int64 {
		var n [8]byte
		copy(n[8-bytes:], text[from:from+bytes])
		return int64(binary.BigEndian.Uint64(n[:]))
	}
	if len(text) < 20 {
		t.Fatalf("%q has no head", text)
	}
	r := ring{bytes: number(0, 1), period: number(1, 7), at: number(8, 7), total: number(15, 5)}
	for i := 20; i < len(text); i += int(r.bytes) {
		r.counts = append(r.counts, number(i, int(r.bytes)))
	}
	return r
}

// TestRollingWindowInPlace holds the string of a rolling_window of many buckets against its
// format, which other versions read too, and demands that no command has all of it.
func TestRollingWindowInPlace(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	clock := storetest.NewClock()
	store, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: "ring:", Timeout: time.Minute}, clock.Micros)
	if err != nil {
		t.Fatal(err)
	}
	limit := weir.Limit{Algorithm: weir.RollingWindow, Count: 20, Period: time.Hour, Buckets: 3600}.MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	want := make(map[int64]int64) // units by bucket
	for i := range 400 {
		clock.Advance(time.Duration(i*i) * 3 * time.Millisecond) // up to eight minutes
		a := storetest.NewAct(charge)
		if i%3 == 1 {
			// With another limit, it is no plain take.
			a = storetest.NewAct(charge, weir.Charge{Key: "other", HashTag: "k", Limit: large(0), Cost: 1})
		}
		if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
			t.Fatal(a.Err)
		}
		now, sum := clock.Micros()/1_000_000, int64(0)
		for bucket, n := range want {
			if bucket < now-3600 {
				delete(want, bucket)
			} else {
				sum += n
			}
		}
		if a.Allowed() != (sum < 20) {
			t.Fatalf("act %d: %d units count: %+v", i, sum, a.Decisions[0])
		}
		if !a.Allowed() {
			continue
		}
		want[now]++
		text := client.Get(t.Context(), store.KeyOf(&charge)).Val()
		got := parseRing(t, text)
		if len(got.counts) != 3601 || got.bytes != 2 || got.period != limit.Period.Microseconds() || got.at != clock.Micros() || got.total != sum+1 {
			t.Fatalf("act %d: %d counters of %d bytes, period %d, at %d, %d units: want %d units", i, len(got.counts), got.bytes, got.period, got.at, got.total, sum+1)
		}
		for bucket, n := range want {
			if got.counts[bucket%3601] != n {
				t.Fatalf("act %d: bucket %d has %d units: want %d", i, bucket, got.counts[bucket%3601], n)
			}
			got.counts[bucket%3601] = 0
		}
		for slot, n := range got.counts {
			if n != 0 {
				t.Fatalf("act %d: slot %d has %d units of a bucket that was released", i, slot, n)
			}
		}
	}
	if bytes := client.MemoryUsage(t.Context(), store.KeyOf(&charge)).Val(); bytes > 9000 {
		t.Errorf("the key takes %d bytes", bytes)
	}

	client.ConfigResetStat(t.Context())
	for range 2 { // granted after a pause, and refused
		a := storetest.NewAct(charge)
		a.Charges[0].Cost = 20
		clock.Advance(time.Hour + time.Second)
		for range 2 {
			if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		refund := &weir.Act{Kind: acts.KindRefund, Charges: []weir.Charge{{Key: "k", Limit: limit, Cost: 3, At: clock.Micros()}}, Decisions: make([]weir.Decision, 1)}
		if store.Take(t.Context(), []*weir.Act{refund}); refund.Err != nil || refund.Decisions[0].Granted != 3 {
			t.Fatalf("%+v, %v", refund.Decisions, refund.Err)
		}
	}
	stats := client.Info(t.Context(), "commandstats").Val()
	for _, command := range []string{"get", "mget", "set"} {
		if strings.Contains(stats, fmt.Sprintf("cmdstat_%s:", command)) {
			t.Errorf("%s was called:\n%s", command, stats)
		}
	}
}

// TestRollingWindowOfAnotherShape changes the buckets of a limit, its period and its count, and
// puts other values in the place of its string.
func TestRollingWindowOfAnotherShape(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	clock := storetest.NewClock()
	store, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: "shape:", Timeout: time.Minute}, clock.Micros)
	if err != nil {
		t.Fatal(err)
	}
	take := func(count int64, period time.Duration, buckets int) weir.Decision {
		t.Helper()
		clock.Advance(time.Second)
		limit := weir.Limit{Algorithm: weir.RollingWindow, Count: count, Period: period, Buckets: buckets}.MustCompile()
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
		if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
			t.Fatal(a.Err)
		}
		return a.Decisions[0]
	}
	used := int64(0)
	for _, shape := range []struct {
		count   int64
		period  time.Duration
		buckets int
	}{
		{100, time.Hour, 3600},
		{100, time.Hour, 60},
		{100, time.Hour, 3600},
		{100_000, time.Hour, 3600},
		{100, time.Hour, 2048},
		{100, 2 * time.Hour, 2048},
		{100, 2 * time.Hour, 2},
	} {
		for range 3 {
			used++
			if d := take(shape.count, shape.period, shape.buckets); d.Remaining != shape.count-used {
				t.Fatalf("%+v: %d remain of %d after %d", shape, d.Remaining, shape.count, used)
			}
		}
	}
	limit := weir.Limit{Algorithm: weir.RollingWindow, Count: 100, Period: time.Hour, Buckets: 3600}.MustCompile()
	key := store.KeyOf(&weir.Charge{Key: "k", Limit: limit})
	for i, spoil := range []func(){
		func() { client.Set(t.Context(), key, "another program's", 0) },
		func() { client.Set(t.Context(), key, strings.Repeat("another program's", 100), 0) },
		func() { client.Del(t.Context(), key); client.RPush(t.Context(), key, 1) },
		func() { client.Set(t.Context(), key, client.Get(t.Context(), key).Val()+"?", 0) },
	} {
		spoil()
		for n := range int64(3) {
			if d := take(100, time.Hour, 3600); d.Remaining != 99-n {
				t.Errorf("value %d: %d remain after %d", i, d.Remaining, n+1)
			}
		}
		if store.Foreign() != int64(i)+1 || client.TTL(t.Context(), key).Val() <= 0 || client.StrLen(t.Context(), key).Val() != 20+2*3601 {
			t.Errorf("value %d: %d foreign values, %v to live, %d bytes", i, store.Foreign(), client.TTL(t.Context(), key).Val(), client.StrLen(t.Context(), key).Val())
		}
	}
}
