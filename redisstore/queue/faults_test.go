package queue_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/redisstore/queue"
)

// everything returns all that is in Redis.
func everything(p *place) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for _, key := range p.client.Keys(background, "*").Val() {
		all[key] = p.client.Dump(background, key).Val()
	}
	return all
}

// TestAKeyOfAnotherTypeIsLeftAlone finds every other type under the queue's key.
func TestAKeyOfAnotherTypeIsLeftAlone(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	limit := weir.PerHour(10)
	plant := map[string]func(p *place, key string){
		"string": func(p *place, key string) { p.client.Set(background, key, "x", 0) },
		"hash":   func(p *place, key string) { p.client.HSet(background, key, "a", "b") },
		"zset":   func(p *place, key string) { p.client.ZAdd(background, key, redis.Z{Member: "a"}) },
		"list":   func(p *place, key string) { p.client.RPush(background, key, "a") },
		"stream": func(p *place, key string) {
			p.client.XAdd(background, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}})
		},
	}
	p := newPlace(t, address)
	for name, kind := range kinds {
		for other, plant := range plant {
			if other == name {
				continue
			}
			key := name + " over " + other
			q := p.open(queue.Options{Key: key, Kind: kind, Push: &limit, Pop: &limit, AtLimit: queue.Trim, TrimTo: 1})
			plant(p, key)
			before := everything(p)
			_, pushErr := q.Push(background, queue.Entry{Body: []byte("x"), ID: "id"})
			_, _, popErr := q.Pop(background)
			_, _, lenErr := q.Len(background)
			for what, err := range map[string]error{"push": pushErr, "pop": popErr, "len": lenErr} {
				if !errors.Is(err, queue.ErrWrongType) || !errors.Is(err, weir.ErrMisconfigured) {
					t.Errorf("%s, %s: %v", key, what, err)
				}
			}
			if d := cmp.Diff(before, everything(p)); d != "" {
				t.Errorf("%s: something was written: %s", key, d)
			}
		}
	}
}

// TestForeignValuesGiveWay puts what is not ours under the queue's own keys.
func TestForeignValuesGiveWay(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{}, func(p *place, q *queue.Queue, _ queue.Kind) {
		t := p.t
		push(t, q, queue.Entry{Body: []byte("a"), ID: "id"})
		record := p.client.Keys(background, "*"+q.Keys()[0]+"*!id").Val()[0]
		for i, plant := range []func(){
			func() { p.client.RPush(background, q.Keys()[1], "x") },
			func() { p.client.Set(background, q.Keys()[2], "x", 0) },
			func() { p.client.Set(background, record, "x", 0) },
			func() { p.client.RPush(background, record, "x") },
		} {
			p.client.Del(background, record)
			plant()
			if got := push(t, q, queue.Entry{Body: []byte("b"), ID: "id"}); !got.Pushed {
				t.Errorf("foreign value %d: %+v", i, got)
			}
			if n := p.store.Stats().Foreign; n != int64(i+1) {
				t.Errorf("foreign value %d: counted %d", i, n)
			}
		}
		item, _ := pop(t, q)
		wantItem(t, item, "a", 1)
		p.client.ZAdd(background, q.Keys()[1], redis.Z{Member: "not one of ours"})
		item, _ = pop(t, q)
		wantItem(t, item, "b", 1)
	})
}

// TestAFullRedisIsNotPushedToButDrains has no memory left.
func TestAFullRedisIsNotPushedToButDrains(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10)
	for name, kind := range kinds {
		p := newPlace(t, testserver.StartRedis(t).Addr())
		q := p.open(queue.Options{Key: name, Kind: kind, Push: &limit, Pop: &limit, Lease: time.Second})
		pushAll(t, q, "a", "b")
		p.client.ConfigSet(background, "maxmemory", "1")
		before := everything(p)
		if _, err := q.Push(background, queue.Entry{Body: []byte("c"), ID: "id"}); !errors.Is(err, weir.ErrNotApplied) {
			t.Errorf("%s, push: %v", name, err)
		}
		if d := cmp.Diff(before, everything(p)); d != "" {
			t.Errorf("%s: something was written: %s", name, d)
		}
		for _, want := range []string{"a", "b"} {
			item, _ := pop(t, q)
			wantItem(t, item, want, 1)
			if err := item.Ack(background); err != nil {
				t.Error(err)
			}
		}
		wantLen(t, q, 0, 0)
	}
}

// TestAStreamOutOfIDsIsNotCharged fails the one write that can fail by itself.
func TestAStreamOutOfIDsIsNotCharged(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	limit := weir.PerHour(1)
	q := p.open(queue.Options{Key: "s", Kind: queue.Stream, Push: &limit, MaxLen: 1, AtLimit: queue.Trim})
	p.client.Do(background, "xadd", "s", "18446744073709551615-18446744073709551615", "body", "last")
	before := everything(p)
	if _, err := q.Push(background, queue.Entry{ID: "id"}); !errors.Is(err, weir.ErrBackend) {
		t.Errorf("push: %v", err)
	}
	if d := cmp.Diff(before, everything(p)); d != "" {
		t.Errorf("something was written: %s", d)
	}
}

// TestEveryKeyIsForgotten lists what a used queue leaves behind.
func TestEveryKeyIsForgotten(t *testing.T) {
	t.Parallel()
	limit := weir.PerMinute(10)
	each(t, queue.Options{Push: &limit, Pop: &limit}, func(p *place, q *queue.Queue, _ queue.Kind) {
		t := p.t
		for i := range 3 {
			push(t, q, queue.Entry{ID: fmt.Sprint(i)})
		}
		for range 2 {
			item, _ := pop(t, q)
			if err := item.Ack(background); err != nil {
				t.Error(err)
			}
		}
		for _, key := range p.client.Keys(background, "weir:*{"+q.Keys()[0]+"}*").Val() {
			if p.client.PTTL(background, key).Val() <= 0 {
				t.Errorf("%s stays for ever", key)
			}
		}
		if n := len(p.client.Keys(background, "weir:*{"+q.Keys()[0]+"}*").Val()); n != 5 {
			t.Errorf("%d keys, want two limits and three ids", n)
		}
	})
}

// TestPermissions gives Redis's user what docs/queue.md says that it needs.
func TestPermissions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/queue.md")
	if err != nil {
		t.Fatal(err)
	}
	_, needs, _ := strings.Cut(string(text), "The Redis user needs")
	needs, _, _ = strings.Cut(needs, "besides")
	rules := []any{"acl", "setuser", "queue", "on", ">secret", "~*", "+eval", "+evalsha"}
	for i, words := range strings.Split(needs, "`") {
		for _, command := range strings.Fields(words) {
			if i%2 > 0 {
				rules = append(rules, "+"+strings.ToLower(command))
			}
		}
	}
	server := testserver.StartRedis(t)
	admin := newPlace(t, server.Addr())
	if err := admin.client.Do(background, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "queue", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, client: client, store: store, clock: storetest.NewClock()}
	for name, kind := range kinds {
		for i, o := range choices {
			o.Key, o.Kind, o.Lease = fmt.Sprint(name, i), kind, 300*time.Millisecond
			o.Push = &weir.Limit{Count: 2, Period: 500 * time.Millisecond}
			if err := history(p, o, 1, historySteps, same); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLooksLeaveLimitsAlone moves the clock back, when states are rewritten by
// whoever reads them first.
func TestLooksLeaveLimitsAlone(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(2)
	each(t, queue.Options{Push: &limit, Pop: &limit}, func(p *place, q *queue.Queue, _ queue.Kind) {
		t := p.t
		pushAll(t, q, "a", "b")
		pop(t, q)
		item, _ := pop(t, q)
		p.clock.Advance(-30 * time.Minute)
		wantLen(t, q, 0, 2)
		if err := errors.Join(item.Extend(background, time.Second), item.Ack(background)); err != nil {
			t.Error(err)
		}
		p.clock.Advance(30*time.Minute + time.Second)
		if got := pushAll(t, q, "c"); got.Pushed {
			t.Errorf("pushed beyond the limit: %+v", got)
		}
	})
}

// TestCalendarLimits charges by windows that reach Redis's time only at the second
// try.
func TestCalendarLimits(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	daily := weir.Limit{Algorithm: weir.FixedWindow, Count: 2, Period: 24 * time.Hour, TimeZone: "Europe/Paris"}
	q := p.open(queue.Options{Key: "q", Push: &daily})
	p.clock.Set(time.Now().Add(1000 * 24 * time.Hour))
	for i := range 3 {
		if got := push(t, q, queue.Entry{}); got.Pushed != (i < 2) {
			t.Errorf("push %d: %+v", i+1, got)
		}
	}
}

// openReal returns a queue by the clock of Redis whose client never sends twice.
func openReal(t *testing.T, address string, o queue.Options) *queue.Queue {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	// The client gives up a server that is away by itself; a busy machine may take longer.
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestUnreachable says that nothing was done.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	q := openReal(t, "127.0.0.1:1", queue.Options{Key: "q"})
	_, err := q.Push(background, queue.Entry{})
	if !errors.Is(err, weir.ErrNotApplied) || !strings.HasPrefix(err.Error(), "weir: push: ") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, _, err := q.Pop(background); !errors.Is(err, weir.ErrNotApplied) {
		t.Errorf("nobody listens: %v", err)
	}
}
