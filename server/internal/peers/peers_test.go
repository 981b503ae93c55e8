package peers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A pool of go-redis whose server is away looks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func connect(t *testing.T, server *testserver.Redis) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DisableIdentity: true, DialTimeout: patience, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// An instance is one of several that share a Redis.
type instance struct {
	*override.Layer
	group *Group
}

// open returns an instance that was not started: it synchronizes when the test says so.
// Redis counts it until the test ends.
func open(t testing.TB, client redis.UniversalClient, o Options) *instance {
	t.Helper()
	i := &instance{Layer: override.Wrap(memengine.New(memengine.Options{}), override.Options{})}
	o.Client, o.Overrides = client, i.Layer
	var err error
	if i.group, err = New(o); err != nil {
		t.Fatal(err)
	}
	i.group.interval = time.Hour
	return i
}

// start returns an instance that polls often.
func start(t *testing.T, client redis.UniversalClient) *instance {
	t.Helper()
	i := open(t, client, Options{Timeout: patience})
	i.group.interval = 20 * time.Millisecond
	i.group.Start()
	i.group.Start()
	t.Cleanup(func() { i.stop(t) })
	return i
}

// stop stops an instance, twice.
func (i *instance) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range 2 {
		if err := i.group.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// synchronize synchronizes instances that were not started, each in turn.
func synchronize(t *testing.T, all ...*instance) {
	for _, i := range all {
		i.group.synchronize(t.Context(), true)
	}
}

// TestCount: instances come, crash and stop, and stay counted while Redis is unreachable
// and after it has lost them.
func TestCount(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	one, other, stranger := open(t, client, Options{Timeout: patience}), open(t, client, Options{Timeout: patience}), open(t, client, Options{Prefix: "other:", Timeout: patience})
	counts := func(want int, when string) {
		t.Helper()
		if n := one.group.Count(); n != want {
			t.Errorf("%s: %d instances, want %d", when, n, want)
		}
	}
	counts(1, "before the first poll")
	synchronize(t, stranger, other, one)
	counts(2, "after it")

	crashed := open(t, client, Options{Timeout: patience})
	crashed.group.interval = time.Millisecond
	synchronize(t, crashed)
	if n := crashed.group.Count(); n != 3 {
		t.Errorf("the third one knows %d", n)
	}
	testserver.Eventually(t, "the third is missed", func() bool { synchronize(t, one); return one.group.Count() == 2 })

	server.Pause()
	one.group.Timeout = 50 * time.Millisecond
	for range 2 * maxMissed {
		synchronize(t, one)
	}
	counts(2, "while Redis does not answer")
	one.group.Timeout = patience
	server.Resume()

	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	synchronize(t, one)
	counts(2, "before the other one has polled Redis, which forgot it")
	one.group.synchronize(t.Context(), false)
	one.group.synchronize(t.Context(), false)
	counts(2, "after changes of overrides")
	synchronize(t, other, one)
	counts(2, "after it has")
	// Stop tells it to others once it was started.
	_, other.group.cancel = context.WithCancel(t.Context())
	other.stop(t)
	for range maxMissed {
		synchronize(t, one)
	}
	counts(1, "after the other has stopped")
}

// TestJoin: an instance has joined when all others have counted it, those that no longer poll
// aside.
func TestJoin(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	joined := 0
	one := open(t, client, Options{Timeout: patience, Joined: func() { joined++ }})
	wants := func(i *instance, joined bool, count int, when string) {
		t.Helper()
		if err := i.group.Join(over); (err == nil) != joined || i.group.HasJoined() != joined || i.group.Count() != count {
			t.Errorf("%s: joined %v, %v; counts %d, want %v and %d", when, i.group.HasJoined(), err, i.group.Count(), joined, count)
		}
	}
	wants(one, false, 1, "before its first poll")
	synchronize(t, one, one)
	wants(one, true, 1, "alone")
	if joined != 1 {
		t.Errorf("joined %d times", joined)
	}
	other := open(t, client, Options{Timeout: patience})
	synchronize(t, other, other)
	wants(other, false, 2, "while the first one knows of nobody")
	wants(one, true, 1, "after another one came")
	one.group.synchronize(t.Context(), false) // for a change of an override
	wants(one, true, 2, "after it polled")
	testserver.Eventually(t, "the first one has polled a millisecond later", func() bool { synchronize(t, one, other); return other.group.HasJoined() })
	wants(other, true, 2, "after the first one polled")

	third := open(t, client, Options{Timeout: patience})
	third.group.interval = 100 * time.Millisecond
	crashed := open(t, client, Options{Timeout: patience})
	crashed.group.interval = third.group.interval
	synchronize(t, crashed, third, one, other)
	if third.group.HasJoined() {
		t.Error("joined beside one that has not counted it")
	}
	testserver.Eventually(t, "nobody waits for it for long", func() bool { synchronize(t, one, other, third); return third.group.HasJoined() })
}

// TestJoinFails says why.
func TestJoinFails(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	i := open(t, client, Options{Timeout: patience})
	must(t, client.Set(t.Context(), i.group.key("instances"), "no set", 0).Err())
	synchronize(t, i)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.group.Join(ctx); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("got %v", err)
	}
	must(t, client.Del(t.Context(), i.group.key("instances")).Err())
	synchronize(t, i)
	if err := i.group.Join(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestForgedCount: whoever writes to the set of instances makes no more than the bound.
func TestForgedCount(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	i := open(t, client, Options{Timeout: patience})
	forged := make([]redis.Z, maxInstances+1)
	for n := range forged {
		forged[n] = redis.Z{Score: 1e15, Member: n}
	}
	if err := client.ZAdd(t.Context(), i.group.key("instances"), forged...).Err(); err != nil {
		t.Fatal(err)
	}
	if synchronize(t, i); i.group.Count() != maxInstances {
		t.Errorf("%d instances", i.group.Count())
	}
}

// TestStop stops groups that run, that cannot reach Redis, and that were never started.
func TestStop(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	running := open(t, client, Options{Timeout: 100 * time.Millisecond})
	running.group.Start()
	testserver.Eventually(t, "one", func() bool { return running.group.count.Load() == 1 })
	server.Pause()
	running.stop(t)
	server.Resume()
	never := open(t, client, Options{})
	never.stop(t)
	never.group.Start()
	never.stop(t)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for field, o := range map[string]Options{"client": {}, "overrides": {Client: client}} {
		var invalid *weir.InvalidError
		if _, err := New(o); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
