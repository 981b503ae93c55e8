package weirhttp_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirhttp"
)

// hung is a store that never answers.
type hung struct{}

func (hung) Take(ctx context.Context, acts []*weir.Act) {
	<-ctx.Done()
	for _, act := range acts {
		act.Err = ctx.Err()
	}
}

// TestHungStore: a request waits for its decision as long as the middleware says, then it
// passes, and the log has a line.
func TestHungStore(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{0: 250 * time.Millisecond, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			h := weirhttp.Middleware(newLimiter(t, hung{}, weir.PerHour(10)), weirhttp.Options{
				Timeout: timeout, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})(http.HandlerFunc(ok))
			begun := time.Now()
			if w := get(h); w.Code != http.StatusOK || time.Since(begun) != want || !strings.Contains(log.String(), "the limiter reaches no decision") {
				t.Errorf("%d after %v, logged %s", w.Code, time.Since(begun), log.String())
			}
		})
	}
}

// BenchmarkHungRedis stops a Redis below a middleware, and reports how long the first
// request waits, in the middle and at worst, and how long each of the next thousand does.
func BenchmarkHungRedis(b *testing.B) {
	server := testserver.StartRedis(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	limits, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(limits.Stop(context.Background()), client.Close()); err != nil {
			b.Error(err)
		}
	}()
	h := weirhttp.Middleware(newLimiter(b, limits, weir.PerHour(1_000_000_000)), weirhttp.Options{})(http.HandlerFunc(ok))
	var first, later []float64 // ms
	for b.Loop() {
		get(h)
		server.Pause()
		begun := time.Now()
		get(h)
		first = append(first, time.Since(begun).Seconds()*1000)
		begun = time.Now()
		for range 1000 {
			get(h)
		}
		later = append(later, time.Since(begun).Seconds())
		server.Resume()
		for len(limits.Outages()) > 0 || limits.Stats().Outstanding > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	slices.Sort(first)
	slices.Sort(later)
	b.ReportMetric(first[len(first)/2], "first-ms")
	b.ReportMetric(first[len(first)-1], "first-worst-ms")
	b.ReportMetric(later[len(later)/2]*1000, "later-µs")
	b.ReportMetric(later[len(later)-1]*1000, "later-worst-µs")
	b.ReportMetric(0, "ns/op")
}
