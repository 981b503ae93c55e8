package memengine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	public "github.com/weirlimit/weir/memstore"
)

// large is a limit of an algorithm that a benchmark does not exhaust.
func large(id int) *weir.Limit {
	l := weir.Limit{Algorithm: weir.Algorithm(id), Count: 100_000, Period: time.Second}
	return l.MustCompile()
}

func BenchmarkTakeSameKey(b *testing.B) {
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // each take is another holder
		}
		b.Run(step.Name, func(b *testing.B) {
			store := memengine.New(memengine.Options{})
			acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "user:42", Limit: large(id), Cost: 1})}
			b.ReportAllocs()
			for b.Loop() {
				store.Take(context.Background(), acts)
			}
		})
	}
}

// BenchmarkAlternatives takes one charge, and one of two alternatives.
func BenchmarkAlternatives(b *testing.B) {
	plenty, spent := large(int(weir.GCRA)), weir.PerDay(1).MustCompile()
	charge := func(key string, limit *weir.Limit, alt uint8) weir.Charge {
		return weir.Charge{Key: key, HashTag: "t", Limit: limit, Cost: 1, Alt: alt}
	}
	for _, c := range []struct {
		name    string
		charges []weir.Charge
	}{
		{"one charge", []weir.Charge{charge("a", plenty, 0)}},
		{"two charges", []weir.Charge{charge("a", plenty, 0), charge("b", plenty, 0)}},
		{"the first of two alternatives", []weir.Charge{charge("a", plenty, 0), charge("b", plenty, 1)}},
		{"the second of two alternatives", []weir.Charge{charge("spent", spent, 0), charge("b", plenty, 1)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := memengine.New(memengine.Options{})
			store.Take(context.Background(), []*weir.Act{storetest.NewAct(charge("spent", spent, 0))})
			acts := []*weir.Act{storetest.NewAct(c.charges...)}
			b.ReportAllocs()
			for b.Loop() {
				store.Take(context.Background(), acts)
			}
		})
	}
}

// keyNames are names of 16 bytes.
func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user:%011d", i)
	}
	return names
}

// newLimiter returns a limiter in a store of the library with room for any benchmark, whose keys
// are not exhausted.
func newLimiter(b *testing.B, limits ...weir.Limit) *weir.Limiter {
	if limits == nil {
		limits = []weir.Limit{weir.PerSecond(100_000_000)}
	}
	limiter, err := weir.NewLimiter(public.New(public.Options{MaxBytes: 1 << 40}), "test", limits...)
	if err != nil {
		b.Fatal(err)
	}
	return limiter
}

func allow(b *testing.B, limiter *weir.Limiter, key string) {
	if d, err := limiter.Allow(context.Background(), key); err != nil || !d.Allowed() {
		b.Fatal(d, err)
	}
}

func BenchmarkAllowOneKey(b *testing.B) {
	b.Run("granted", func(b *testing.B) {
		limiter := newLimiter(b)
		b.ReportAllocs()
		for b.Loop() {
			allow(b, limiter, "user:42")
		}
	})
	b.Run("refused", func(b *testing.B) {
		limiter := newLimiter(b, weir.PerDay(1))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := limiter.Allow(context.Background(), "user:42"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("goroutines=8", func(b *testing.B) {
		limiter := newLimiter(b)
		b.SetParallelism(max(1, 8/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				allow(b, limiter, "user:42")
			}
		})
	})
}

func BenchmarkAllowThreeLimits(b *testing.B) {
	limiter := newLimiter(b, weir.PerSecond(100_000_000), weir.PerMinute(1_000_000_000), weir.PerHour(1_000_000_000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := limiter.AllowN(context.Background(), "user:42", 2); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAllowManyKeys draws from keys that the store knows, evenly, so that no
// cache can guess. "map" only looks the key up in a Go map, behind no lock, and
// says what the machine takes for that.
func BenchmarkAllowManyKeys(b *testing.B) {
	for keys := 1000; keys <= 10_000_000; keys *= 10 {
		names := keyNames(keys)
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			b.Run("map", func(b *testing.B) { benchmarkMap(b, names) })
			limiter := newLimiter(b)
			for _, name := range names {
				allow(b, limiter, name)
			}
			runtime.GC()
			b.Run("allow", func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				for b.Loop() {
					allow(b, limiter, names[random.IntN(keys)])
				}
			})
			b.Run("allow/parallel", func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					random := rand.New(rand.NewPCG(rand.Uint64(), 2))
					for pb.Next() {
						allow(b, limiter, names[random.IntN(keys)])
					}
				})
			})
		})
	}
}

func benchmarkMap(b *testing.B, names []string) {
	m, sum := make(map[string]int64), int64(0)
	for i, name := range names {
		m[name] = int64(i)
	}
	runtime.GC()
	random := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		sum += m[names[random.IntN(len(names))]]
	}
	runtime.KeepAlive(sum)
}

// BenchmarkNewKeys is the cost of keys that the store does not know, and the
// longest that any of them took while the store grew to ten million of them.
func BenchmarkNewKeys(b *testing.B) {
	const keys = 10_000_000
	names := keyNames(keys)
	for b.Loop() {
		limiter, longest := newLimiter(b), time.Duration(0)
		runtime.GC()
		start := time.Now()
		last := start
		for _, name := range names {
			allow(b, limiter, name)
			now := time.Now()
			longest = max(longest, now.Sub(last))
			last = now
		}
		b.ReportMetric(float64(last.Sub(start))/keys, "ns/key")
		b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBytesPerKey reports what a key costs in memory beside its own bytes.
func BenchmarkBytesPerKey(b *testing.B) {
	const keys = 200_000
	names := keyNames(keys)
	for id, step := range algo.Steps {
		b.Run(step.Name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				store := memengine.New(memengine.Options{MaxBytes: 1 << 40})
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
