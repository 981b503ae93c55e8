package peers_test

import (
	"bytes"
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

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/peers"
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

func (e *ear) subscriber() peers.Subscriber {
	note := func(change func()) {
		e.mu.Lock()
		change()
		e.mu.Unlock()
		select {
		case e.news <- struct{}{}:
		default:
		}
	}
	return peers.Subscriber{
		Message: func(payload []byte) { note(func() { e.heard = append(e.heard, string(payload)) }) },
		Joined:  func() { note(func() { e.joined++ }) },
	}
}

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
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DisableIdentity: true, DialTimeout: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// bus is a bus that has started, with an ear on a topic.
func bus(t *testing.T, client redis.UniversalClient, o peers.RedisOptions) (*peers.Redis, *ear) {
	t.Helper()
	b, err := peers.NewRedis(client, o)
	if err != nil {
		t.Fatal(err)
	}
	e := newEar()
	b.Subscribe("topic", e.subscriber())
	b.Start()
	t.Cleanup(func() { stop(t, b) })
	return b, e
}

func stop(t *testing.T, b *peers.Redis) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func publish(t *testing.T, b peers.Bus, topic, text string) {
	t.Helper()
	if err := b.Publish(context.Background(), topic, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	var b peers.Local
	one, other := newEar(), newEar()
	b.Subscribe("topic", one.subscriber())
	b.Subscribe("topic", one.subscriber())
	b.Subscribe("else", other.subscriber())
	publish(t, &b, "topic", "hello")
	publish(t, &b, "nobody's", "hello")
	if !slices.Equal(one.heard, []string{"hello", "hello"}) || len(other.heard) != 0 || one.joined != 2 {
		t.Errorf("heard %v and %v, joined %d", one.heard, other.heard, one.joined)
	}
}

func TestRedisReachesAll(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, first := bus(t, connect(t, server), peers.RedisOptions{})
	_, second := bus(t, connect(t, server), peers.RedisOptions{})
	_, stranger := bus(t, connect(t, server), peers.RedisOptions{Prefix: "other:"})
	for _, e := range []*ear{first, second, stranger} {
		e.joins(t, 1)
	}
	binary := "\x00\xff{}\r\n"
	publish(t, one, "topic", binary)
	publish(t, one, "another", "not for them")
	publish(t, one, "topic", "last")
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
	b, e := bus(t, client, peers.RedisOptions{})
	e.joins(t, 1)
	killed, err := client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("killed %d: %v", killed, err)
	}
	e.joins(t, 2)
	publish(t, b, "topic", "after the kill")
	e.hears(t, "after the kill")
	server.Restart()
	e.joins(t, 3)
	publish(t, b, "topic", "after the restart")
	e.hears(t, "after the restart")
}

// TestRedisNoticesSilence gives up a connection that nobody answers on any more.
func TestRedisNoticesSilence(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b, e := bus(t, connect(t, server), peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	e.joins(t, 1)
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := b.Publish(ctx, "topic", nil); err == nil {
		t.Error("published to a server that does not answer")
	}
	server.Resume()
	e.joins(t, 2)
	publish(t, b, "topic", "after the pause")
	e.hears(t, "after the pause")
}

// TestRedisLives: a connection on which nothing is said stays.
func TestRedisLives(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	b, e := bus(t, client, peers.RedisOptions{Heartbeat: 500 * time.Millisecond})
	e.joins(t, 1)
	// The pings of some heartbeats have been answered by then.
	for i := range 20 {
		if err := client.Do(context.Background(), "BLPOP", fmt.Sprint("nothing", i), "0.1").Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	publish(t, b, "topic", "still here")
	e.hears(t, "still here")
	if e.joined != 1 {
		t.Errorf("joined %d times", e.joined)
	}
}

func TestRedisStops(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	b, e := bus(t, client, peers.RedisOptions{})
	b.Start()
	e.joins(t, 1)
	server.Pause()
	stop(t, b)
	stop(t, b)
	server.Resume()
	never, err := peers.NewRedis(client, peers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, never)
	never.Start()
	stop(t, never)
}

func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	_, noClient := peers.NewRedis(nil, peers.RedisOptions{})
	_, noTime := peers.NewRedis(client, peers.RedisOptions{Heartbeat: -1})
	for field, err := range map[string]error{"client": noClient, "heartbeat": noTime} {
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestForgedMessages: with a secret nobody is believed who does not know it; without,
// everybody is.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	var log bytes.Buffer
	one, first := bus(t, client, peers.RedisOptions{Secret: "s", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	two, second := bus(t, client, peers.RedisOptions{Secret: "s"})
	other, stranger := bus(t, client, peers.RedisOptions{Secret: "t"})
	plain, trusting := bus(t, client, peers.RedisOptions{})
	for _, e := range []*ear{first, second, stranger, trusting} {
		e.joins(t, 1)
	}
	publish(t, plain, "topic", "without")
	publish(t, other, "topic", "another's")
	publish(t, one, "topic", "first")
	publish(t, two, "topic", "second")
	for _, e := range []*ear{first, second} {
		e.hears(t, "second")
		if !slices.Equal(e.all(), []string{"first", "second"}) {
			t.Errorf("heard %q", e.all())
		}
	}
	trusting.hears(t, "without")
	// What is repeated by somebody who listened.
	trusting.until(t, "all messages", func() bool { return len(trusting.heard) == 4 })
	for _, message := range trusting.all() {
		publish(t, plain, "topic", message)
	}
	publish(t, plain, "topic", strings.Repeat("x", 1<<20+1))
	publish(t, one, "topic", "last")
	for _, e := range []*ear{first, second} {
		e.hears(t, "last")
		if !slices.Equal(e.all(), []string{"first", "second", "last"}) {
			t.Errorf("heard %q", e.all())
		}
	}
	stop(t, one)
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "messages are ignored") {
		t.Errorf("logged: %s", said)
	}
	if slices.ContainsFunc(trusting.all(), func(m string) bool { return len(m) > 1<<20 }) {
		t.Error("a message has no bound")
	}
}
