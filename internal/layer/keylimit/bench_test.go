package keylimit_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// idle grants nothing and does nothing.
type idle struct{}

func (idle) Take(context.Context, []*weir.Act) {}

// BenchmarkTake is what the decorator itself costs: over a Taker that does nothing.
func BenchmarkTake(b *testing.B) {
	limit := weir.PerHour(10).MustCompile()
	for _, c := range []struct {
		name    string
		maxKeys int
		key     string
	}{{"without a budget", 0, "known"}, {"a known key", 1000, "known"}, {"one too many", 1000, "new"}} {
		b.Run(c.name, func(b *testing.B) {
			taker := keylimit.Wrap(idle{}, keylimit.Options{Budget: of(c.maxKeys)})
			acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "known", Limit: limit, Cost: 1})}
			taker.Take(context.Background(), acts)
			for i := range c.maxKeys {
				acts[0].Charges[0].Key = fmt.Sprint(i)
				taker.Take(context.Background(), acts)
			}
			acts[0].Charges[0].Key = c.key
			b.ReportAllocs()
			for b.Loop() {
				taker.Take(context.Background(), acts)
			}
		})
	}
}

// BenchmarkKey is how many bytes of memory a known key takes.
func BenchmarkKey(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			limit := weir.PerDay(10).MustCompile()
			for b.Loop() {
				before := live()
				taker := keylimit.Wrap(idle{}, keylimit.Options{Budget: of(n)})
				acts := []*weir.Act{storetest.NewAct(weir.Charge{Limit: limit, Cost: 1})}
				for i := range n {
					acts[0].Charges[0].Key = fmt.Sprint(i)
					taker.Take(context.Background(), acts)
				}
				b.ReportMetric(float64(live()-before)/float64(n), "bytes/key")
				runtime.KeepAlive(taker)
			}
		})
	}
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
