package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
)

// A cached is a deny cache on a Redis in a group.
type cached struct {
	cache  *denycache.Layer
	client *redis.Client
}

func startCache(t *testing.T, server *testserver.Redis) *cached {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(t, client, Options{})
	g.bus.maxSilence = 200 * time.Millisecond
	// Only messages can end a refusal within the test.
	cache := denycache.Wrap(store, denycache.Options{MaxAge: time.Hour, Returned: g.Forget})
	g.Follow(nil, cache)
	g.Start()
	t.Cleanup(func() {
		stopGroup(t, g)
		_ = client.Close()
	})
	eventually(t, "subscribed", func() bool { return g.instances.count.Load() > 0 })
	return &cached{cache, client}
}

func (i *cached) take(a *weir.Act) *weir.Act {
	i.cache.Take(context.Background(), []*weir.Act{a})
	return a
}

func TestResetElsewhere(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := startCache(t, server), startCache(t, server)
	limit := (&weir.Limit{Count: 1, Period: time.Hour}).MustCompile()
	for round := range 3 {
		charge := weir.Charge{Key: fmt.Sprint("k", round), Limit: limit, Cost: 1}
		one.take(storetest.NewAct(charge))
		one.take(storetest.NewAct(charge))
		if a := one.take(storetest.NewAct(charge)); a.Decisions[0].Source != weir.SourceDenyCache {
			t.Fatalf("not known: %+v %v", a.Decisions, a.Err)
		}
		reset := storetest.NewAct(weir.Charge{Key: charge.Key, Limit: limit})
		reset.Kind = weir.KindReset
		other.take(reset)
		eventually(t, "the reset was not heard", func() bool { return one.take(storetest.NewAct(charge)).Allowed() })
	}
}

// A connection that breaks may have lost messages: what is known ends with it.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one := startCache(t, server)
	limit := (&weir.Limit{Count: 1, Period: time.Hour}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	one.take(storetest.NewAct(charge))
	one.take(storetest.NewAct(charge))
	// Reset behind the caches' backs, while nobody listens.
	if err := one.client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	if err := one.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cache was not flushed", func() bool { return one.take(storetest.NewAct(charge)).Allowed() })
}

// TestOddMessages: a message that cannot be decoded empties the cache, once a second at
// most, and a full queue blocks nobody.
func TestOddMessages(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"", "f\xc8", "x from a newer version"} {
		g := newGroup(t, client, Options{})
		cache := denycache.Wrap(store, denycache.Options{MaxAge: time.Hour})
		g.Follow(nil, cache)
		i := &cached{cache: cache}
		charge := weir.Charge{Key: "k", Limit: (&weir.Limit{Count: 1, Period: time.Hour}).MustCompile(), Cost: 1}
		i.take(storetest.NewAct(charge))
		i.take(storetest.NewAct(charge))
		if cache.Stats().Entries != 1 {
			t.Fatal("the refusal is not cached")
		}
		if g.receive([]byte(message)); cache.Stats().Entries != 0 {
			t.Errorf("%q: %d entries", message, cache.Stats().Entries)
		}
		i.take(storetest.NewAct(charge))
		if g.receive([]byte(message)); cache.Stats().Entries != 1 {
			t.Errorf("%q: a second one at once leaves %d entries", message, cache.Stats().Entries)
		}
		for range 3 * maxQueued { // it was not started
			g.Forget([]string{"k"})
		}
	}
}
