package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/redisstore/queue"
)

var kinds = map[string]queue.Kind{"list": queue.List, "stream": queue.Stream}

// A place is a Redis in which a test has its queues, and the time that they go
// by.
type place struct {
	t      *testing.T
	client *redis.Client
	store  *redisstore.Store
	clock  *storetest.Clock
}

func newPlace(t *testing.T, address string) *place {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &place{t: t, client: client, store: store, clock: storetest.NewClock()}
}

func (p *place) open(o queue.Options) *queue.Queue {
	p.t.Helper()
	q, err := queue.New(p.store, o)
	if err != nil {
		p.t.Fatal(err)
	}
	return q.At(p.clock.Micros)
}

func push(t *testing.T, q *queue.Queue, e queue.Entry) queue.Pushed {
	t.Helper()
	got, err := q.Push(context.Background(), e)
	if err != nil {
		t.Fatalf("push %q: %v", e.Body, err)
	}
	return got
}

func pushAll(t *testing.T, q *queue.Queue, bodies ...string) queue.Pushed {
	t.Helper()
	var got queue.Pushed
	for _, body := range bodies {
		got = push(t, q, queue.Entry{Body: []byte(body)})
	}
	return got
}

func pop(t *testing.T, q *queue.Queue) (*queue.Item, weir.Decision) {
	t.Helper()
	item, d, err := q.Pop(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return item, d
}

// contents reads the queue as its other users do.
func (p *place) contents(q *queue.Queue, kind queue.Kind) []string {
	p.t.Helper()
	ctx := context.Background()
	var bodies []string
	if kind == queue.List {
		return p.client.LRange(ctx, q.Keys()[0], 0, -1).Val()
	}
	for _, m := range p.client.XRange(ctx, q.Keys()[0], "-", "+").Val() {
		bodies = append(bodies, m.Values["body"].(string))
	}
	return bodies
}

// TestAtTheLimit has what can happen to a push and does not in the histories of
// [TestEveryStepIsAsTheModelSays], for lists and streams.
func TestAtTheLimit(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	two := weir.PerHour(2)
	for name, tc := range map[string]struct {
		options queue.Options
		before  []string // pushed first
		pushed  bool
		granted bool
		dropped []string
		left    []string
	}{
		"no limit":                   {queue.Options{}, []string{"a"}, true, true, nil, []string{"a", "new"}},
		"rate, trim a short queue":   {queue.Options{Push: &two, AtLimit: queue.Trim, TrimTo: 9}, []string{"a", "b"}, true, false, nil, []string{"a", "b", "new"}},
		"length, trim to the length": {queue.Options{MaxLen: 2, AtLimit: queue.Trim}, []string{"a", "b"}, true, true, []string{"a"}, []string{"b", "new"}},
		"count 0, refuse":            {queue.Options{Push: &weir.Limit{Period: time.Hour}}, nil, false, false, nil, nil},
		"count 0, nothing to drop":   {queue.Options{Push: &weir.Limit{Period: time.Hour}, AtLimit: queue.DropOldest}, nil, false, false, nil, nil},
		"count 0, trim":              {queue.Options{Push: &weir.Limit{Period: time.Hour}, AtLimit: queue.Trim, TrimTo: 1}, []string{"a"}, true, false, []string{"a"}, []string{"new"}},
	} {
		for kindName, kind := range kinds {
			t.Run(name+", "+kindName, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, address)
				o := tc.options
				o.Key, o.Kind = name+kindName, kind
				q := p.open(o)
				pushAll(t, q, tc.before...)
				got := pushAll(t, q, "new")
				if got.Pushed != tc.pushed || got.Full || got.Decision.Allowed() != tc.granted {
					t.Errorf("got %+v", got)
				}
				if got.Waiting != int64(len(tc.left)) {
					t.Errorf("%d wait, want %d", got.Waiting, len(tc.left))
				}
				var dropped []string
				for _, body := range got.Dropped {
					dropped = append(dropped, string(body))
				}
				if d := cmp.Diff(tc.dropped, dropped); d != "" {
					t.Errorf("dropped: %s", d)
				}
				if left := p.contents(q, kind); strings.Join(left, " ") != strings.Join(tc.left, " ") {
					t.Errorf("left %q, want %q", left, tc.left)
				}
			})
		}
	}
}

// TestDropsAreBounded shortens a list that others have made long.
func TestDropsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	for i := range 300 {
		p.client.RPush(context.Background(), "q", i)
	}
	q := p.open(queue.Options{Key: "q", MaxLen: 2, AtLimit: queue.Trim})
	for _, want := range []int64{301 - queue.MaxDropped, 2, 2} {
		if got := pushAll(t, q, "new"); got.Waiting != want || !got.Pushed {
			t.Errorf("%d wait, want %d", got.Waiting, want)
		}
	}
}

// TestBudgets has a limit for each of those who push to one queue, and keeps the
// queues of one hash tag apart.
func TestBudgets(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	limit := weir.PerHour(1)
	for _, key := range []string{"{u}mail", "{u}sms"} {
		q := p.open(queue.Options{Key: key, Push: &limit})
		for _, budget := range []string{"", "alice", "bob"} {
			for i := range 2 {
				if got := push(t, q, queue.Entry{Budget: budget}); got.Pushed != (i == 0) {
					t.Errorf("%s, %q, push %d: %+v", key, budget, i+1, got)
				}
			}
		}
	}
	q := p.open(queue.Options{Key: "costs", Push: &limit})
	if got := push(t, q, queue.Entry{Cost: 2}); got.Pushed || got.Decision.RetryAfter != weir.Never {
		t.Errorf("cost above the limit: %+v", got)
	}
}

// TestPushWithAnIDHappensOnce repeats pushes that were granted, refused, full and
// such that dropped something.
func TestPushWithAnIDHappensOnce(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	one := weir.PerHour(1)
	for name, o := range map[string]queue.Options{
		"refuse":      {Push: &one},
		"full":        {MaxLen: 1},
		"drop oldest": {Push: &one, AtLimit: queue.DropOldest},
		"trim":        {MaxLen: 1, AtLimit: queue.Trim},
	} {
		for kindName, kind := range kinds {
			t.Run(name+", "+kindName, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, address)
				o := o
				o.Key, o.Kind = name+kindName, kind
				q := p.open(o)
				for _, id := range []string{"1", "2"} {
					e := queue.Entry{Body: []byte("body " + id), ID: id}
					first := push(t, q, e)
					left := p.contents(q, kind)
					p.clock.Advance(9 * time.Minute)
					if d := cmp.Diff(first, push(t, q, e)); d != "" {
						t.Errorf("push %s again: %s", id, d)
					}
					if d := cmp.Diff(left, p.contents(q, kind)); d != "" {
						t.Errorf("push %s again changed the queue: %s", id, d)
					}
					for _, other := range []queue.Entry{
						{Body: []byte("other"), ID: id},
						{Body: e.Body, ID: id, Cost: 2},
						{Body: e.Body, ID: id, Budget: "other"},
					} {
						if _, err := q.Push(context.Background(), other); !errors.Is(err, weir.ErrIDReused) {
							t.Errorf("other content under id %s: %v", id, err)
						}
					}
				}
				for _, key := range p.client.Keys(context.Background(), "*p1:*"+o.Key+"!*").Val() {
					if left := p.client.PTTL(context.Background(), key).Val(); left < acts.IDLife-time.Minute || left > acts.IDLife {
						t.Errorf("record %s lives %v", key, left)
					}
				}
			})
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "127.0.0.1:1")
	holders := weir.Limit{Count: 1, Period: time.Second, Algorithm: weir.Concurrency}
	for field, bad := range map[string][]queue.Options{
		"key":      {{}, {Key: "a}b"}, {Key: "{}"}, {Key: strings.Repeat("k", queue.MaxKeyBytes+1)}},
		"kind":     {{Key: "q", Kind: 2}},
		"at_limit": {{Key: "q", AtLimit: 3}},
		"max_len":  {{Key: "q", MaxLen: -1}, {Key: "q", MaxLen: 1_000_000_001}},
		"lease":    {{Key: "q", Lease: -1}, {Key: "q", Lease: time.Microsecond}, {Key: "q", Lease: 25 * time.Hour}},
		"trim_to":  {{Key: "q", TrimTo: 1}, {Key: "q", AtLimit: queue.Trim}, {Key: "q", AtLimit: queue.Trim, MaxLen: 1, TrimTo: 2}, {Key: "q", AtLimit: queue.Trim, TrimTo: -1}},
		"push":     {{Key: "q", Push: &holders}},
		"pop":      {{Key: "q", Pop: &holders}},
		"count":    {{Key: "q", Push: &weir.Limit{Count: -1, Period: time.Second}}, {Key: "q", Pop: &weir.Limit{Count: -1, Period: time.Second}}},
	} {
		for _, o := range bad {
			_, err := queue.New(p.store, o)
			wantInvalid(t, field, err)
		}
	}
	_, err := queue.New(nil, queue.Options{Key: "q"})
	wantInvalid(t, "store", err)
	for field, e := range map[string]queue.Entry{
		"body":   {Body: make([]byte, queue.MaxItemBytes+1)},
		"id":     {ID: strings.Repeat("i", weir.MaxIDBytes+1)},
		"budget": {Budget: strings.Repeat("b", queue.MaxKeyBytes+1)},
		"cost":   {Cost: -1},
	} {
		_, err := p.open(queue.Options{Key: "q"}).Push(context.Background(), e)
		wantInvalid(t, field, err)
	}
}

func wantInvalid(t *testing.T, field string, err error) {
	t.Helper()
	var invalid *weir.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("want an invalid %s, got %v", field, err)
	}
}

// TestKeysOfAnyBytesShareASlot runs everything on a cluster of one, which refuses
// calls whose keys lie in several slots.
func TestKeysOfAnyBytesShareASlot(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t, "--cluster-enabled", "yes").Addr())
	ctx := context.Background()
	if err := p.client.Do(ctx, "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(p.client.ClusterInfo(ctx).Val(), "cluster_state:ok") {
		if time.Now().After(deadline) {
			t.Fatal("the cluster does not come up")
		}
		time.Sleep(5 * time.Millisecond)
	}
	limit := weir.PerHour(5)
	for i, key := range []string{"plain", "{tag}q", "a{b", "{{a}b", "a{b}{c}", "x{y}}", "\x00\n{\xff}", strings.Repeat("long", 200), "{" + strings.Repeat("long", 200) + "}"} {
		for _, kind := range kinds {
			q := p.open(queue.Options{Key: fmt.Sprint(key, kind), Kind: kind, Push: &limit, Pop: &limit})
			push(t, q, queue.Entry{Body: []byte("a"), ID: "id {of} any } bytes", Budget: "{b}"})
			item, _ := pop(t, q)
			if item == nil || item.Ack(ctx) != nil {
				t.Errorf("key %d: %+v", i, item)
			}
		}
	}
}
