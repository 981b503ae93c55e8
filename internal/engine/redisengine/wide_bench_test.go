package redisengine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkWide takes in shapes that are wider than the plain one: windows of many buckets, acts
// with many charges of one limit, and acts under many limits. It reports what one act costs.
func BenchmarkWide(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	plain := large(0)
	buckets := func(n int) *weir.Limit {
		return weir.Limit{Algorithm: weir.RollingWindow, Count: 100_000, Period: time.Hour, Buckets: n}.MustCompile()
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
	held := weir.Limit{Count: 10_000_000, Period: 365 * 24 * time.Hour}.MustCompile()
	for _, c := range []struct {
		name string
		act  func(string) *weir.Act
		ids  int // how many takes with an ID come first: their keys have low-water marks
	}{
		{"plain", charges(1, func(int) *weir.Limit { return plain }), 0},
		{"16 low-water marks", charges(1, func(int) *weir.Limit { return held }), 40},
		{"60 buckets", charges(1, func(int) *weir.Limit { return buckets(60) }), 0},
		{"3600 buckets", charges(1, func(int) *weir.Limit { return buckets(3600) }), 0},
		{"8 limits", charges(8, func(i int) *weir.Limit { return eight[i] }), 0},
		{"64 keys", charges(64, func(int) *weir.Limit { return plain }), 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := open(b, client, redisengine.Options{Prefix: "wide " + c.name + ":"})
			var acts []*weir.Act
			for i := range 64 {
				acts = append(acts, c.act(fmt.Sprint("user:", i)))
			}
			for i := range c.ids {
				for _, a := range acts {
					hold := *a
					hold.ID, hold.Scope.Owner = fmt.Sprint(i), a.Charges[0].Key
					store.Take(context.Background(), []*weir.Act{&hold})
				}
			}
			store.Take(context.Background(), acts)
			client.ConfigResetStat(context.Background())
			before := clientCPU()
			for b.Loop() {
				if store.Take(context.Background(), acts); acts[0].Err != nil {
					b.Fatal(acts[0].Err)
				}
			}
			n := float64(b.N * len(acts))
			b.ReportMetric(float64((clientCPU()-before).Microseconds())/n, "client-µs/act")
			report(b, client, b.N*len(acts))
		})
	}
}
