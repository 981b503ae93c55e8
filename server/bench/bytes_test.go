package bench

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
)

// BenchmarkBytes reports the memory that a key takes. The callers' keys have 16 bytes, which
// are not counted in memory. The limit is so slow that no key expires during the run.
func BenchmarkBytes(b *testing.B) {
	r := startServer(b)
	for kind, used := range map[Kind]func(testing.TB) float64{Memory: heap, Redis: r.memory} {
		for _, c := range contestants(kind) {
			if c.Keyless {
				continue
			}
			b.Run(fmt.Sprintf("%s/limiter=%s", kind, c.Name), func(b *testing.B) {
				names := make([]string, b.N)
				for i := range names {
					names[i] = fmt.Sprintf("user:%011d", i)
				}
				r.clear(b)
				l := open(b, c, Env{Address: r.Addr(), Prefix: "b:", Limits: []Limit{{Count: 10, Period: 24 * time.Hour}}})
				allow(b, l, "warm")
				before := used(b)
				b.ResetTimer()
				for _, name := range names {
					allow(b, l, name)
				}
				b.StopTimer()
				b.ReportMetric((used(b)-before)/float64(b.N), "bytes/key")
				runtime.KeepAlive(names)
				runtime.KeepAlive(l)
			})
		}
	}
}

// heap returns the memory that the process holds after two collections: the first one only
// empties pools.
func heap(testing.TB) float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkState reports the memory that a key of each algorithm takes in Redis. Its name has
// 30 bytes, of which 11 are Weir's own.
func BenchmarkState(b *testing.B) {
	r := startServer(b)
	hour := func(a weir.Algorithm) weir.Limit { return weir.Limit{Algorithm: a, Count: 1000, Period: time.Hour} }
	ring := hour(weir.RollingWindow)
	ring.Buckets = 60
	for _, s := range []struct {
		name  string
		limit weir.Limit
		takes int // of every key, each at an instant of its own
		cost  int64
	}{
		{"gcra", hour(weir.GCRA), 1, 1},
		{"fixed_window", hour(weir.FixedWindow), 1, 1},
		{"token_bucket", hour(weir.TokenBucket), 1, 1},
		{"leaky_bucket", hour(weir.LeakyBucket), 1, 1},
		{"sliding_counter", hour(weir.SlidingCounter), 1, 1},
		{"rolling_window of 60", ring, 1, 1},
		{"sliding_log, 1 grant", hour(weir.SlidingLog), 1, 1},
		{"sliding_log, 1000 grants in 10 instants", hour(weir.SlidingLog), 10, 100},
		{"sliding_log, 1000 grants in 1000 instants", hour(weir.SlidingLog), 1000, 1},
		{"concurrency, 1 holder", weir.Limit{Algorithm: weir.Concurrency, Count: 10, Period: time.Hour}, 1, 1},
	} {
		b.Run(s.name, func(b *testing.B) {
			r.clear(b)
			store, err := redisengine.New(r.client, redisengine.Options{Prefix: "w:", Timeout: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			limit := s.limit.MustCompile()
			fill(b, store, limit, "warm", 1, s.takes, s.cost) // the script, the client's buffers
			before := r.memory(b)
			keys := int(math.Ceil(float64(b.N) / float64(s.takes)))
			b.ResetTimer()
			fill(b, store, limit, "fill", keys, s.takes, s.cost)
			b.StopTimer()
			b.ReportMetric((r.memory(b)-before)/float64(keys), "bytes/key")
		})
	}
}

// fill takes from each key, 64 keys a call.
func fill(b *testing.B, store weir.Taker, limit *weir.Limit, word string, keys, takes int, cost int64) {
	for first := 0; first < keys; first += 64 {
		var acts []*weir.Act
		for i := first; i < min(first+64, keys); i++ {
			a := &weir.Act{
				Charges:   []weir.Charge{{Key: fmt.Sprintf("%s%015d", word, i), Limit: limit, Cost: cost}},
				Decisions: make([]weir.Decision, 1),
			}
			if limit.Algorithm == weir.Concurrency {
				a.ID, a.Scope.Owner = fmt.Sprint(word, i), word
			}
			acts = append(acts, a)
		}
		for range takes {
			store.Take(b.Context(), acts)
			for _, a := range acts {
				if !a.Allowed() {
					b.Fatalf("not granted: %v", a.Err)
				}
			}
		}
	}
}
