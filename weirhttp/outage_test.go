package weirhttp_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirhttp"
)

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(line))
	return len(line), nil
}

// with returns the lines that have all of the words.
func (l *lines) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// await waits until one line has all of the words, and asks meanwhile.
func (l *lines) await(t *testing.T, ask func(), words ...string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(l.with(words...)) != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("want one line with %q: %q", words, l.with())
		}
		if ask != nil {
			ask()
		}
	}
}

// storeOver returns a store that has reached its server and met no outage before, as it
// may on a machine that is late.
func storeOver(t testing.TB, server *testserver.Redis, kept bool, logger *slog.Logger) (limits *redisstore.Store, stop func()) {
	t.Helper()
	for {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: kept})
		var err error
		if limits, err = redisstore.New(client, redisstore.Options{Logger: logger}); err != nil {
			t.Fatal(err)
		}
		stop = func() {
			if err := errors.Join(limits.Stop(context.Background()), client.Close()); err != nil {
				t.Error(err)
			}
		}
		_, err = newLimiter(t, limits, weir.PerHour(1_000_000)).Allow(t.Context(), "warm")
		if err == nil && limits.Stats().Outages == 0 {
			return limits, stop
		}
		stop()
	}
}

// TestHungRedis: a Redis that hangs costs a request or two the time until it
// counts as unreachable, and later ones nothing; the log has one line for that and one for
// the recovery. Requests pass all the while.
func TestHungRedis(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, kept := range map[string]bool{"a client of its own": false, "whose calls are kept": true} {
		t.Run(name, func(t *testing.T) {
			log := new(lines)
			logger := slog.New(slog.NewTextHandler(log, nil))
			limits, stop := storeOver(t, server, kept, logger)
			defer stop()
			var failures []error // of requests that come one by one
			h := weirhttp.Middleware(newLimiter(t, limits, weir.PerHour(1_000_000)), weirhttp.Options{
				Logger:  logger,
				OnError: func(_ *http.Request, err error) { failures = append(failures, err) },
			})(http.HandlerFunc(ok))
			server.Pause()
			defer server.Resume()
			const later = 200
			begun := time.Now()
			for range 1 + later {
				if w := get(h); w.Code != http.StatusOK {
					t.Fatalf("answered %d", w.Code)
				}
			}
			took := time.Since(begun)
			if len(failures) != 1+later {
				t.Fatalf("%d failures of %d requests", len(failures), 1+later)
			}
			for i, err := range failures {
				if !errors.Is(err, weir.ErrNotApplied) && i >= 5 { // more than one on a busy machine
					t.Fatalf("request %d was sent: %v", i, err)
				}
			}
			if took > later*(250*time.Millisecond)/10 {
				t.Errorf("%d requests took %v", 1+later, took)
			}
			for _, want := range [][]string{{"level=WARN", `msg="the store is unreachable"`}, {"level=WARN", `msg="the limiter reaches no decision`}} {
				log.await(t, nil, want...)
			}
			server.Resume()
			for _, want := range []string{`msg="the store is reachable again"`, `msg="the limiter reaches decisions again"`} {
				log.await(t, func() { get(h) }, "level=INFO", want)
			}
			if len(log.text) != 4 {
				t.Errorf("logged %q", log.text)
			}
		})
	}
}

// TestHungCall: a call may take as long as the middleware says.
func TestHungCall(t *testing.T) {
	t.Parallel()
	asked := &askedUntil{}
	var failed error
	h := weirhttp.Middleware(newLimiter(t, asked, weir.PerHour(10)), weirhttp.Options{
		OnError: func(_ *http.Request, err error) { failed = err },
	})(http.HandlerFunc(ok))
	if w := get(h); w.Code != http.StatusOK || !errors.Is(failed, context.DeadlineExceeded) {
		t.Errorf("%d, %v", w.Code, failed)
	}
	if asked.left <= 0 || asked.left > 250*time.Millisecond {
		t.Errorf("it may take %v, want 250ms", asked.left)
	}
}

// askedUntil hangs, and notes for how long it may.
type askedUntil struct{ left time.Duration }

func (a *askedUntil) Take(ctx context.Context, acts []*weir.Act) {
	if deadline, bounded := ctx.Deadline(); bounded {
		a.left = time.Until(deadline)
	}
	<-ctx.Done()
	for _, act := range acts {
		act.Err = ctx.Err()
	}
}

// BenchmarkHungRedis stops a Redis below a middleware, and reports how long the first
// request waits, in the middle and at worst, and how long each of the next thousand does.
func BenchmarkHungRedis(b *testing.B) {
	server := testserver.StartRedis(b)
	limits, stop := storeOver(b, server, false, slog.New(slog.DiscardHandler))
	defer stop()
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
