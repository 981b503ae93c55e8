package memstore_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// large is a limit of an algorithm that a benchmark does not exhaust.
func large(id int) *weir.Limit {
	l := weir.Limit{Algorithm: weir.Algorithm(id), Count: 100_000, Period: time.Second}
	return l.MustCompile()
}

func BenchmarkTakeOneKey(b *testing.B) {
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // each take is another holder
		}
		b.Run(step.Name, func(b *testing.B) {
			store := memstore.New(memstore.Options{})
			acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "user:42", Limit: large(id), Cost: 1})}
			b.ReportAllocs()
			for b.Loop() {
				store.Take(context.Background(), acts)
			}
		})
	}
}

func BenchmarkTakeManyKeys(b *testing.B) {
	const keys = 1 << 20
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("user:%07d", i)
	}
	store := memstore.New(memstore.Options{})
	act := storetest.NewAct(weir.Charge{Limit: weir.PerHour(1000).MustCompile(), Cost: 1})
	acts := []*weir.Act{act}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		// A stride that visits all keys in no order that a cache could guess.
		i = (i + 611_953) % keys
		act.Charges[0].Key = names[i]
		store.Take(context.Background(), acts)
	}
}

func BenchmarkAllow(b *testing.B) {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerSecond(1000))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := limiter.Allow(context.Background(), "user:42"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBytesPerKey reports what a key costs in memory beside its own bytes.
func BenchmarkBytesPerKey(b *testing.B) {
	const keys = 200_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("user:%011d", i)
	}
	for id, step := range algo.Steps {
		b.Run(step.Name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				store := memstore.New(memstore.Options{MaxBytes: 1 << 40})
				for _, name := range names {
					take(b, store, name, large(id), 1)
				}
				b.ReportMetric(float64(heap()-before)/keys-16, "bytes/key")
				runtime.KeepAlive(store)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
