package redisengine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkWide takes in shapes that are wider than the plain one: windows of many buckets, acts
// with many charges of one limit, and acts under many limits. It reports what one act costs: the
// lower quartile of all rounds, because what else runs on the machine only adds.
func BenchmarkWide(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	plain := large(0)
	window := func(buckets int, count int64, period time.Duration) func(int) *weir.Limit {
		l := weir.Limit{Algorithm: weir.RollingWindow, Count: count, Period: period, Buckets: buckets}.MustCompile()
		return func(int) *weir.Limit { return l }
	}
	charges := func(n int, limit func(int) *weir.Limit) func(key string) *weir.Act {
		return func(key string) *weir.Act {
			a := storetest.NewAct()
			for i := range n {
				a.Charges = append(a.Charges, weir.Charge{Key: fmt.Sprint(key, ":", i), Limit: limit(i), Cost: 1})
			}
			a.Decisions = make([]weir.Decision, n)
			return a
		}
	}
	var eight []*weir.Limit
	for i := range 8 {
		eight = append(eight, weir.Limit{Count: 100_000 + int64(i), Period: time.Minute}.MustCompile())
	}
	held, full := weir.Limit{Count: 10_000_000, Period: 365 * 24 * time.Hour}.MustCompile(), weir.PerDay(1).MustCompile()
	for _, c := range []struct {
		name string
		act  func(string) *weir.Act
		fill func(b *testing.B, store *redisengine.Store, client *redis.Client, prefix string, acts []*weir.Act) // nil: one round
	}{
		{"plain", charges(1, func(int) *weir.Limit { return plain }), nil},
		{"16 low-water marks", charges(1, func(int) *weir.Limit { return held }), hold},
		{"60 buckets", charges(1, window(60, 100_000, time.Hour)), nil},
		{"3600 buckets", charges(1, window(3600, 100_000, time.Hour)), nil},
		{"3600 buckets, another one each time", charges(1, window(3600, 100_000, 3600*time.Millisecond)), nil},
		{"refused", charges(1, func(int) *weir.Limit { return full }), nil},
		{"refused, 3600 buckets, one in use", charges(1, window(3600, 1, 100*time.Hour)), nil},
		{"refused, 3600 buckets, all in use", charges(1, window(3600, 3600, 100*time.Hour)), spread},
		{"8 limits", charges(8, func(i int) *weir.Limit { return eight[i] }), nil},
		{"64 keys", charges(64, func(int) *weir.Limit { return plain }), nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			prefix := "wide " + c.name + ":"
			store := open(b, client, redisengine.Options{Prefix: prefix})
			var acts []*weir.Act
			for i := range 64 {
				acts = append(acts, c.act(fmt.Sprint("user:", i)))
			}
			if c.fill != nil {
				c.fill(b, store, client, prefix, acts)
			}
			store.Take(context.Background(), acts)
			var micros, clients []float64
			for b.Loop() {
				client.ConfigResetStat(context.Background())
				before := clientCPU()
				if store.Take(context.Background(), acts); acts[0].Err != nil {
					b.Fatal(acts[0].Err)
				}
				clients = append(clients, float64((clientCPU() - before).Microseconds()))
				micros = append(micros, costs(client).micros)
			}
			slices.Sort(micros)
			slices.Sort(clients)
			b.ReportMetric(micros[len(micros)/4]/float64(len(acts)), "redis-µs/act")
			b.ReportMetric(clients[len(clients)/4]/float64(len(acts)), "client-µs/act")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// hold takes with many IDs, so that the keys have low-water marks.
func hold(b *testing.B, store *redisengine.Store, _ *redis.Client, _ string, acts []*weir.Act) {
	for i := range 40 {
		for _, a := range acts {
			held := *a
			held.ID, held.Scope.Owner = fmt.Sprint(i), a.Charges[0].Key
			if store.Take(context.Background(), []*weir.Act{&held}); held.Err != nil {
				b.Fatal(held.Err)
			}
		}
	}
}

// spread takes a unit in each bucket of the windows.
func spread(b *testing.B, _ *redisengine.Store, client *redis.Client, prefix string, acts []*weir.Act) {
	l := acts[0].Charges[0].Limit
	now := time.Now()
	clock := now.Add(-l.Period)
	filler, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: prefix}, func() int64 { return clock.UnixMicro() })
	if err != nil {
		b.Fatal(err)
	}
	for width := l.Period / time.Duration(l.Buckets); clock.Before(now.Add(-width)); {
		clock = clock.Add(width)
		if filler.Take(context.Background(), acts); acts[0].Err != nil {
			b.Fatal(acts[0].Err)
		}
	}
}
