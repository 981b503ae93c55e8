package remote_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkOutage holds Redis up for two seconds below eight callers and reports
// the longest call, the 99th percentile of those that began once the store counted
// as away, and which part of the second second after its return it decided; beside
// them how late the machine woke a goroutine that did nothing but sleep, which is in
// the longest call too. Run it with -benchtime 1x.
func BenchmarkOutage(b *testing.B) {
	server := testserver.StartRedis(b)
	taker := remote.New(overRedis(b, server.Addr()), remote.Options{})
	stop(b, taker)
	limit := weir.PerDay(1_000_000_000).MustCompile()
	for b.Loop() {
		calls := make([][]timed, 8)
		var callers sync.WaitGroup
		end := make(chan struct{})
		var late time.Duration
		callers.Go(func() { late = latest(end) })
		for i := range calls {
			callers.Go(func() { calls[i] = call(taker, fmt.Sprint(i), limit, end) })
		}
		<-time.After(time.Second)
		server.Pause()
		<-time.After(2 * time.Second)
		server.Resume()
		back := time.Now()
		<-time.After(3 * time.Second)
		close(end)
		callers.Wait()
		report(b, slices.Concat(calls...), back)
		b.ReportMetric(float64(late.Microseconds())/1000, "woken-late-ms")
	}
}

// latest is how late a goroutine was woken at most.
func latest(end <-chan struct{}) time.Duration {
	const nap = time.Millisecond
	var late time.Duration
	for {
		slept := time.Now()
		select {
		case <-end:
			return late
		case <-time.After(nap):
			late = max(late, time.Since(slept)-nap)
		}
	}
}

// A timed call is one of a benchmark.
type timed struct {
	began  time.Time
	took   time.Duration
	away   bool // when it began
	source weir.Source
}

func call(taker *remote.Remote, key string, limit *weir.Limit, end chan struct{}) []timed {
	var calls []timed
	for {
		select {
		case <-end:
			return calls
		case <-time.After(500 * time.Microsecond):
		}
		c := timed{began: time.Now(), away: unreachable(taker)}
		a := take(taker, weir.Charge{Key: key, Limit: limit, Cost: 1})
		c.took, c.source = time.Since(c.began), a.Decisions[0].Source
		calls = append(calls, c)
	}
}

func report(b *testing.B, calls []timed, back time.Time) {
	var longest time.Duration
	var away []time.Duration
	asked, decided := 0, 0
	for _, c := range calls {
		longest = max(longest, c.took)
		if c.away {
			away = append(away, c.took)
		}
		if since := c.began.Sub(back); since > 2*time.Second && since < 3*time.Second {
			asked++
			if c.source == acts.SourceStore {
				decided++
			}
		}
	}
	slices.Sort(away)
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
	b.ReportMetric(float64(away[len(away)*99/100].Microseconds())/1000, "p99-away-ms")
	b.ReportMetric(100*float64(decided)/float64(max(1, asked)), "%-from-store-after-2s")
	b.ReportMetric(float64(len(calls)), "calls")
}
