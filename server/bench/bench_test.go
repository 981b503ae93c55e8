package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A scenario is what all contestants are asked.
type scenario struct {
	name    string
	limits  []Limit
	keys    *Keys
	callers []int
	// keyless lets contestants with one budget for all keys take part.
	keyless bool
	// warm is the number of decisions before those that count.
	warm int
}

// BenchmarkRedis asks the limiters on Redis. Besides ns and allocations, it reports the CPU
// time of this process and of Redis, the script calls and the latency's 99th percentile.
func BenchmarkRedis(b *testing.B) {
	r := startServer(b)
	uniform, all := Uniform(100_000), []int{1, 8, 64, 256}
	for _, s := range []scenario{
		{name: "hot key granted", limits: []Limit{Ample}, keys: Hot(), callers: all},
		{name: "hot key refused", limits: []Limit{Tight}, keys: Hot(), callers: all},
		{name: "100 000 uniform keys", limits: []Limit{Ample}, keys: uniform, callers: all},
		{name: "100 000 keys by Zipf's law", limits: []Limit{Ample}, keys: Zipf(100_000), callers: []int{64, 256}},
		{name: "three limits", limits: []Limit{Ample, Ample, Ample}, keys: uniform, callers: []int{64}},
	} {
		s.run(b, contestants(Redis), r)
	}
	patient := scenario{name: "leases of a minute", limits: []Limit{Ample}, keys: uniform, callers: []int{64}, warm: 4_000_000}
	patient.run(b, []Contestant{Patient}, r)
	for _, n := range []int{1, 2, 4} {
		s := scenario{name: fmt.Sprintf("instances=%d", n), limits: []Limit{Ample}, keys: uniform, callers: []int{64}}
		s.run(b, []Contestant{Fleet(contestants(Redis)[0], n)}, r)
	}
	for n := 1000; n <= 1_000_000; n *= 10 {
		s := scenario{name: fmt.Sprintf("keys=%d", n), limits: []Limit{Ample}, keys: Uniform(n), callers: []int{64}}
		s.run(b, contestants(Redis)[:1], r)
	}
}

// BenchmarkMemory asks the limiters in memory.
func BenchmarkMemory(b *testing.B) {
	many := Uniform(1_000_000)
	for _, s := range []scenario{
		{name: "one key", limits: []Limit{Ample}, keys: Hot(), callers: []int{1, 2, 8}, keyless: true},
		{name: "1 000 000 uniform keys", limits: []Limit{Ample}, keys: many, callers: []int{1, 2}, warm: len(many.draws)},
		{name: "one key refused", limits: []Limit{Tight}, keys: Hot(), callers: []int{1, 2}, keyless: true},
	} {
		s.run(b, contestants(Memory), nil)
	}
}

// BenchmarkGrowth looks keys up among more and more of them, in Weir and in a bare map.
func BenchmarkGrowth(b *testing.B) {
	for n := 1000; n <= 10_000_000; n *= 10 {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			if testing.Short() && n > 100_000 {
				b.Skip("takes minutes")
			}
			keys, bare := Uniform(n), make(map[string]int, n)
			l := open(b, contestants(Memory)[0], Env{Limits: []Limit{Ample}})
			for i, name := range keys.names {
				bare[name] = i
				allow(b, l, name)
			}
			b.Run("weir", func(b *testing.B) {
				for i := range b.N {
					allow(b, l, keys.at(i))
				}
			})
			b.Run("map", func(b *testing.B) {
				for i := range b.N {
					if bare[keys.at(i)] > n {
						b.Fatal("no such key")
					}
				}
			})
		})
	}
}

// TestExact lets 64 callers on each of some nodes ask for ten times the limit. Weir grants
// exactly the limit; -v shows the others.
func TestExact(t *testing.T) {
	const callers = 64
	r := startServer(t)
	for _, c := range slices.Concat(contestants(Redis), contestants(Memory)) {
		for nodes := 1; nodes <= 2 && (c.Kind == Redis || nodes == 1); nodes++ {
			if c.Blocking {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/nodes=%d", c.Kind, c.Name, nodes), func(t *testing.T) {
				l := open(t, Fleet(c, nodes), Env{Address: r.Addr(), Limits: []Limit{Counted}, Prefix: fmt.Sprint("exact:", c.Name, nodes, ":")})
				var granted, failed atomic.Int64
				var done sync.WaitGroup
				for range callers * nodes {
					done.Go(func() {
						for range 10 * Counted.Count / (callers * nodes) {
							ok, err := l.Allow(t.Context(), "user:exact")
							if ok {
								granted.Add(1)
							}
							if err != nil {
								failed.Add(1)
							}
						}
					})
				}
				done.Wait()
				t.Logf("granted %d of %d, %d errors", granted.Load(), Counted.Count, failed.Load())
				if strings.HasPrefix(c.Name, "weir") && (granted.Load() != int64(Counted.Count) || failed.Load() > 0) {
					t.Error("not exact")
				}
			})
		}
	}
}

// run measures the contestants, each with one limiter for all numbers of callers.
func (s *scenario) run(b *testing.B, all []Contestant, r *server) {
	b.Run(s.name, func(b *testing.B) {
		for i, c := range all {
			if c.Keyless && !s.keyless || c.Blocking && s.limits[0] == Tight {
				continue
			}
			b.Run("limiter="+c.Name, func(b *testing.B) {
				e := Env{Limits: s.limits, Prefix: fmt.Sprint(i, ":")}
				if r != nil {
					r.clear(b)
					e.Address = r.Addr()
				}
				l := open(b, c, e)
				ask(b, l, s.keys, 64, s.warm)
				for _, callers := range s.callers {
					b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { measure(b, l, s.keys, callers, r) })
				}
			})
		}
	})
}

// measure asks for b.N decisions.
func measure(b *testing.B, l Limiter, keys *Keys, callers int, r *server) {
	b.ReportAllocs()
	var before spending
	if r != nil {
		before = r.spent(b)
	}
	own := ownCPU()
	b.ResetTimer()
	late, failed := ask(b, l, keys, callers, b.N)
	b.StopTimer()
	n := float64(b.N)
	if failed > 0 { // some peers give up when many callers change one key
		b.ReportMetric(float64(failed)/n, "errors/op")
	}
	b.ReportMetric(micros(ownCPU()-own)/n, "client-µs/op")
	if r != nil {
		after := r.spent(b)
		b.ReportMetric(micros(after.cpu-before.cpu)/n, "redis-µs/op")
		b.ReportMetric((after.scripts-before.scripts)/n, "scripts/op")
		b.ReportMetric(micros(late), "p99-µs")
	}
}

// ask divides n decisions among callers. It returns the 99th percentile of the latencies and
// the number of errors. It times one decision in sixteen: reading the clock costs as much as
// a decision in memory.
func ask(b *testing.B, l Limiter, keys *Keys, callers, n int) (late time.Duration, failed int64) {
	const stride = 16
	var failures atomic.Int64
	timed := make([][]time.Duration, callers)
	var done sync.WaitGroup
	for c := range callers {
		done.Go(func() {
			for i := c; i < n; i += callers {
				var begun time.Time
				sample := i/callers%stride == 0
				if sample {
					begun = time.Now()
				}
				if _, err := l.Allow(b.Context(), keys.at(i)); err != nil {
					failures.Add(1)
				}
				if sample {
					timed[c] = append(timed[c], time.Since(begun))
				}
			}
		})
	}
	done.Wait()
	all := slices.Concat(timed...)
	if len(all) == 0 {
		return 0, failures.Load()
	}
	slices.Sort(all)
	return all[len(all)*99/100], failures.Load()
}

// contestants returns those of a kind, Weir's first.
func contestants(kind Kind) []Contestant {
	all := slices.Concat(Weir, RedisPeers, MemoryPeers)
	return slices.DeleteFunc(all, func(c Contestant) bool { return c.Kind != kind })
}

func open(t testing.TB, c Contestant, e Env) Limiter {
	t.Helper()
	l, err := c.Open(e)
	if err != nil {
		t.Fatalf("open %s: %v", c.Name, err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func allow(b *testing.B, l Limiter, key string) {
	if _, err := l.Allow(b.Context(), key); err != nil {
		b.Fatal(err)
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// A server is a Redis without persistence.
type server struct {
	*testserver.Redis
	client *redis.Client
}

func startServer(t testing.TB) *server { return startServerWith(t) }

// startServerWith is startServer with more arguments.
func startServerWith(t testing.TB, args ...string) *server {
	t.Helper()
	r := testserver.StartRedis(t, args...)
	s := &server{r, redis.NewClient(&redis.Options{Addr: r.Addr()})}
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

func (s *server) clear(t testing.TB) {
	t.Helper()
	if err := s.client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

func (s *server) info(t testing.TB, sections ...string) map[string]map[string]string {
	t.Helper()
	info, err := s.client.InfoMap(context.Background(), sections...).Result()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// memory returns the bytes in use.
func (s *server) memory(t testing.TB) float64 {
	used, _ := strconv.ParseFloat(s.info(t, "memory")["Memory"]["used_memory"], 64)
	return used
}

// spending is what a server has done so far.
type spending struct {
	cpu     time.Duration
	scripts float64
}

func (s *server) spent(t testing.TB) spending {
	t.Helper()
	info, all := s.info(t, "cpu", "commandstats"), spending{}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info["CPU"][field], 64)
		all.cpu += time.Duration(seconds * 1e9)
	}
	for _, name := range []string{"evalsha", "eval"} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_"+name], "calls="), ",")
		n, _ := strconv.ParseFloat(calls, 64)
		all.scripts += n
	}
	return all
}
