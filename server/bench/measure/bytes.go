package measure

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
)

// A Size is what a key takes.
type Size struct {
	Contestant string  `json:"contestant"`
	Where      string  `json:"where"` // memory or redis
	Keys       int     `json:"keys"`
	Bytes      float64 `json:"bytes"`    // a key, in memory without the key's own bytes
	NameLen    int     `json:"name_len"` // of the caller's key
}

// Bytes fills a contestant with keys and says what one of them takes. The keys
// have 16 bytes.
func Bytes(ctx context.Context, c contest.Contestant, n int, r *Redis) (Size, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user:%011d", i)
	}
	size := Size{Contestant: c.Name, Where: "memory", Keys: n, NameLen: len(names[0])}
	used := heap
	env := contest.Env{Limits: []contest.Limit{{Count: 1000, Period: time.Hour}}, Callers: 1, Prefix: "b:"}
	if r != nil {
		if err := r.Clear(); err != nil {
			return size, err
		}
		size.Where, used, env.Address = "redis", r.Memory, r.Address
	}
	l, err := c.Open(env)
	if err != nil {
		return size, fmt.Errorf("bench: open %s: %w", c.Name, err)
	}
	if _, err := l.Allow(ctx, "warm"); err != nil {
		return size, err
	}
	before, err := used()
	if err != nil {
		return size, err
	}
	for _, name := range names {
		if _, err := l.Allow(ctx, name); err != nil {
			return size, fmt.Errorf("bench: fill %s: %w", c.Name, err)
		}
	}
	after, err := used()
	size.Bytes = (after - before) / float64(n)
	runtime.KeepAlive(names)
	if err != nil {
		return size, err
	}
	return size, l.Close()
}

// heap is what the process holds, after two collections: the first one only
// empties pools.
func heap() (float64, error) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), nil
}

// A Growth is what a decision costs among so many keys.
type Growth struct {
	Subject string  `json:"subject"`
	Keys    int     `json:"keys"`
	Nanos   float64 `json:"ns"`
}

// GrowMemory times look-ups of uniform keys among 10^3 to 10^max of them, in a
// limiter and in a bare map.
func GrowMemory(ctx context.Context, c contest.Contestant, largest int, progress func(string)) ([]Growth, error) {
	var all []Growth
	for n := 1000; n <= largest; n *= 10 {
		progress(fmt.Sprintf("growth in memory, %d keys", n))
		keys := Uniform(n)
		l, err := c.Open(contest.Env{Limits: []contest.Limit{contest.Ample}, Callers: 1})
		if err != nil {
			return nil, err
		}
		bare := make(map[string]int, n)
		for i, name := range keys.names {
			bare[name] = i
			if _, err := l.Allow(ctx, name); err != nil {
				return nil, err
			}
		}
		total := 0
		limiterNs, mapNs := paired(
			func(i int) { _, _ = l.Allow(ctx, keys.at(i)) },
			func(i int) { total += bare[keys.at(i)] })
		runtime.KeepAlive(total)
		all = append(all, Growth{c.Name, n, limiterNs}, Growth{"map", n, mapNs})
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// paired times two functions in turn and returns the median of each, in ns.
func paired(a, b func(i int)) (first, second float64) {
	const times, calls = 9, 1 << 17
	var as, bs []float64
	for t := range times {
		as = append(as, spell(a, t*calls, calls))
		bs = append(bs, spell(b, t*calls, calls))
	}
	return middle(as), middle(bs)
}

func spell(f func(i int), from, calls int) float64 {
	begun := time.Now()
	for i := range calls {
		f(from + i)
	}
	return float64(time.Since(begun).Nanoseconds()) / float64(calls)
}
