package peers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/testserver"
)

// A pool of go-redis whose server is away looks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// ear hears what is said.
type ear struct {
	mu     sync.Mutex
	heard  []string
	joined int
	news   chan struct{}
}

func newEar() *ear { return &ear{news: make(chan struct{}, 1)} }

func (e *ear) note(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	signal(e.news)
}

func (e *ear) message(payload []byte) { e.note(func() { e.heard = append(e.heard, string(payload)) }) }
func (e *ear) join()                  { e.note(func() { e.joined++ }) }

// all returns what was heard so far.
func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// until waits until a condition on what was heard holds.
func (e *ear) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		e.mu.Lock()
		done := holds()
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-e.news:
		case <-deadline:
			t.Fatalf("waited in vain for %s; heard %v, joined %d times", what, e.heard, e.joined)
		}
	}
}

func (e *ear) hears(t *testing.T, text string) {
	t.Helper()
	e.until(t, text, func() bool { return slices.Contains(e.heard, text) })
}

func (e *ear) joins(t *testing.T, times int) {
	t.Helper()
	e.until(t, fmt.Sprint(times, " times joined"), func() bool { return e.joined >= times })
}

func connect(t *testing.T, server *testserver.Redis) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DisableIdentity: true, DialTimeout: patience, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// startBus returns a bus that runs until the test ends or stop is called, and its ear.
func startBus(t *testing.T, client redis.UniversalClient, o Options, silence time.Duration) (b *bus, e *ear, stop func()) {
	t.Helper()
	o.Client, o.Prefix, o.Timeout = client, cmp.Or(o.Prefix, DefaultPrefix), cmp.Or(o.Timeout, patience)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	e = newEar()
	started := newBus(o, e.message, e.join)
	started.maxSilence = silence
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		started.run(ctx)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the bus does not stop")
		}
	}
	t.Cleanup(stop)
	return &started, e, stop
}

func publish(t *testing.T, b *bus, text string) {
	t.Helper()
	if err := b.publish(context.Background(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestRedisReachesAll(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, first, _ := startBus(t, connect(t, server), Options{}, maxSilence)
	_, second, _ := startBus(t, connect(t, server), Options{}, maxSilence)
	_, stranger, _ := startBus(t, connect(t, server), Options{Prefix: "other:"}, maxSilence)
	for _, e := range []*ear{first, second, stranger} {
		e.joins(t, 1)
	}
	binary := "\x00\xff{}\r\n"
	publish(t, one, binary)
	publish(t, one, "last")
	for _, e := range []*ear{first, second} {
		e.hears(t, "last")
		if !slices.Equal(e.heard, []string{binary, "last"}) {
			t.Errorf("heard %q", e.heard)
		}
	}
	if len(stranger.heard) > 0 {
		t.Errorf("another prefix heard %q", stranger.heard)
	}
}

// TestRedisHeals kills connections, and the server.
func TestRedisHeals(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	b, e, _ := startBus(t, client, Options{}, maxSilence)
	e.joins(t, 1)
	killed, err := client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("killed %d: %v", killed, err)
	}
	e.joins(t, 2)
	publish(t, b, "after the kill")
	e.hears(t, "after the kill")
	server.Restart()
	e.joins(t, 3)
	publish(t, b, "after the restart")
	e.hears(t, "after the restart")
}

// TestRedisNoticesSilence gives up a connection that nobody answers on any more.
func TestRedisNoticesSilence(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b, e, _ := startBus(t, connect(t, server), Options{}, 100*time.Millisecond)
	e.joins(t, 1)
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := b.publish(ctx, nil); err == nil {
		t.Error("published to a server that does not answer")
	}
	server.Resume()
	e.joins(t, 2)
	publish(t, b, "after the pause")
	e.hears(t, "after the pause")
}

// TestRedisLives: a connection on which nothing is said stays.
func TestRedisLives(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	b, e, _ := startBus(t, client, Options{}, 500*time.Millisecond)
	e.joins(t, 1)
	// The pings of some heartbeats have been answered by then.
	for i := range 20 {
		if err := client.Do(context.Background(), "BLPOP", fmt.Sprint("nothing", i), "0.1").Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	publish(t, b, "still here")
	e.hears(t, "still here")
	if e.joined != 1 {
		t.Errorf("joined %d times", e.joined)
	}
}

// TestForgedMessages: with a secret nobody is believed who does not know it; without,
// everybody is.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	listening := client.Subscribe(t.Context(), channel)
	defer listening.Close()
	if _, err := listening.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	one, first, stop := startBus(t, client, Options{Secret: "s", Logger: slog.New(slog.NewTextHandler(&log, nil))}, maxSilence)
	two, second, _ := startBus(t, client, Options{Secret: "s"}, maxSilence)
	other, stranger, _ := startBus(t, client, Options{Secret: "t"}, maxSilence)
	plain, trusting, _ := startBus(t, client, Options{}, maxSilence)
	for _, e := range []*ear{first, second, stranger, trusting} {
		e.joins(t, 1)
	}
	publish(t, plain, "without")
	publish(t, other, "another's")
	publish(t, one, "first")
	publish(t, two, "second")
	for _, e := range []*ear{first, second} {
		e.hears(t, "second")
		if !slices.Equal(e.all(), []string{"first", "second"}) {
			t.Errorf("heard %q", e.all())
		}
	}
	trusting.hears(t, "without")
	// An eavesdropper repeats every message.
	for range 4 {
		overheard, err := listening.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		publish(t, plain, overheard.Payload)
	}
	publish(t, plain, strings.Repeat("x", 1<<20+1))
	publish(t, one, "last")
	for _, e := range []*ear{first, second} {
		e.hears(t, "last")
		if !slices.Equal(e.all(), []string{"first", "second", "last"}) {
			t.Errorf("heard %q", e.all())
		}
	}
	stop()
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "ignored messages") {
		t.Errorf("logged: %s", said)
	}
	if got := trusting.all(); slices.ContainsFunc(got, func(m string) bool { return m != "without" }) {
		t.Errorf("without a secret, sealed or long messages were believed: %.100q", got)
	}
}
