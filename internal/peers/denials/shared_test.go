package denials_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/peers"
	"github.com/weirlimit/weir/internal/peers/denials"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

// An instance is a deny cache on a Redis, told of the others.
type instance struct {
	cache  *denycache.Cache
	client *redis.Client
}

func start(t *testing.T, address string) *instance {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bus, err := peers.NewRedis(client, peers.RedisOptions{Heartbeat: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sharer := denials.New(bus, nil)
	// Only messages can end a refusal within the test.
	cache := denycache.Wrap(store, denycache.Options{MaxAge: time.Hour, Returned: sharer.Returned})
	sharer.Follow(cache)
	joined := make(chan struct{}, 16)
	bus.Subscribe("returned", peers.Subscriber{Message: func([]byte) {}, Joined: func() { joined <- struct{}{} }})
	bus.Start()
	sharer.Start()
	t.Cleanup(func() {
		for _, stop := range []func(context.Context) error{sharer.Stop, sharer.Stop, bus.Stop} {
			if err := stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
		_ = client.Close()
	})
	<-joined
	return &instance{cache, client}
}

func (i *instance) take(a *weir.Act) *weir.Act {
	i.cache.Take(context.Background(), []*weir.Act{a})
	return a
}

// eventually asks until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAResetElsewhereIsHeard(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	one, other := start(t, address), start(t, address)
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
func TestABrokenConnectionIsHealed(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	one := start(t, address)
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

// Messages that nobody can read end everything; a full queue waits for nobody.
func TestOddMessages(t *testing.T) {
	t.Parallel()
	bus := new(peers.Local)
	sharer := denials.New(bus, nil)
	store := testserver.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	under, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cache := denycache.Wrap(under, denycache.Options{MaxAge: time.Hour})
	sharer.Follow(cache)
	limit := (&weir.Limit{Count: 1, Period: time.Hour}).MustCompile()
	i := &instance{cache: cache}
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	i.take(storetest.NewAct(charge))
	i.take(storetest.NewAct(charge))
	if cache.Stats().Entries != 1 {
		t.Fatal("nothing is known")
	}
	if err := bus.Publish(t.Context(), "returned", []byte{200}); err != nil || cache.Stats().Entries != 0 {
		t.Errorf("%d entries, %v", cache.Stats().Entries, err)
	}
	// Nobody keeps the cache empty with such messages: once a second is enough.
	i.take(storetest.NewAct(charge))
	if err := bus.Publish(t.Context(), "returned", []byte{200}); err != nil || cache.Stats().Entries != 1 {
		t.Errorf("a second message at once leaves %d entries, %v", cache.Stats().Entries, err)
	}
	for range 3000 { // it was not started
		sharer.Returned([]string{"k"})
	}
	if sharer.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
}
