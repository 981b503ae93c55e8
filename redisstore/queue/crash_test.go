package queue_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore/queue"
)

// A ledger is what producers and consumers know of their items, by body.
type ledger struct {
	queue *queue.Queue
	calls atomic.Int64
	stop  atomic.Bool

	mu    sync.Mutex
	known map[string]bool      // tried to push; true if that succeeded
	seen  map[string][]attempt // popped
	acked map[string]int64     // tried to acknowledge: how many calls had begun when that succeeded, 0 if it is not known to
}

// An attempt is one delivery of an item, to a call that was the began-th.
type attempt struct{ number, began int64 }

func newLedger(q *queue.Queue) *ledger {
	return &ledger{queue: q, known: map[string]bool{}, seen: map[string][]attempt{}, acked: map[string]int64{}}
}

// attempts returns how often an item was delivered, as far as is known. No two
// deliveries have the same number, and none begins once the item was acknowledged.
func (l *ledger) attempts(t *testing.T, body string) (last int64) {
	t.Helper()
	known := map[int64]bool{}
	for _, a := range l.seen[body] {
		if known[a.number] {
			t.Errorf("%s came twice as attempt %d", body, a.number)
		}
		if acked := l.acked[body]; acked > 0 && a.began > acked {
			t.Errorf("%s came to call %d as attempt %d, and was acknowledged before call %d", body, a.began, a.number, acked)
		}
		known[a.number] = true
		last = max(last, a.number)
	}
	return last
}

func (l *ledger) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// produce pushes items, every other one with an id, until it is stopped. What has
// an id, or was surely not done, is repeated.
func (l *ledger) produce(name string) {
	for i := 0; !l.stop.Load(); i++ {
		e := queue.Entry{Body: fmt.Appendf(nil, "%s/%d", name, i)}
		if i%2 == 0 {
			e.ID = string(e.Body)
		}
		l.note(func() { l.known[string(e.Body)] = false })
		for {
			got, err := l.queue.Push(background, e)
			l.calls.Add(1)
			if err == nil {
				l.note(func() { l.known[string(e.Body)] = got.Pushed })
				break
			}
			if !errors.Is(err, weir.ErrNotApplied) && e.ID == "" {
				break
			}
		}
	}
}

// consume pops items and acknowledges three of four, until it is stopped.
func (l *ledger) consume() {
	for i := 0; !l.stop.Load(); i++ {
		began := l.calls.Add(1)
		item, _, err := l.queue.Pop(background)
		if err != nil || item == nil {
			continue
		}
		body := string(item.Body)
		l.note(func() { l.seen[body] = append(l.seen[body], attempt{item.Attempt, began}) })
		if i%4 > 0 {
			l.note(func() { l.acked[body] = max(l.acked[body], 0) })
			if err := item.Ack(background); err == nil {
				l.note(func() { l.acked[body] = cmp.Or(l.acked[body], l.calls.Load()) })
			}
		}
	}
}

// found is what a queue holds: how often each of its items was delivered.
func found(t *testing.T, client *redis.Client, q *queue.Queue, kind queue.Kind) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	add := func(body string, attempts int64) {
		if _, twice := all[body]; twice {
			t.Errorf("%s is there twice", body)
		}
		all[body] = attempts
	}
	leased := client.HGetAll(background, q.Keys()[2]).Val()
	attempts := func(held string) int64 {
		if len(held) < 4 {
			return 0
		}
		return int64(binary.BigEndian.Uint32([]byte(held)))
	}
	if kind == queue.Stream {
		for _, m := range client.XRange(background, q.Keys()[0], "-", "+").Val() {
			add(m.Values["body"].(string), attempts(leased[m.ID]))
		}
		return all
	}
	for _, body := range client.LRange(background, q.Keys()[0], 0, -1).Val() {
		add(body, 0)
	}
	for _, held := range leased {
		add(held[4:], attempts(held))
	}
	return all
}

// audit compares the ledger with what the queue holds, and returns how often items
// were pushed and popped.
func (l *ledger) audit(t *testing.T, there map[string]int64) (pushes, pops int64) {
	t.Helper()
	for body, pushed := range l.known {
		attempts, present := there[body]
		acked, tried := l.acked[body]
		last := l.attempts(t, body)
		switch {
		case present && acked > 0:
			t.Errorf("%s is there and was acknowledged", body)
		case !present && !tried && (pushed || last > 0):
			t.Errorf("%s was pushed and is lost", body)
		case present && attempts < last:
			t.Errorf("%s was delivered %d times, and %d are known", body, last, attempts)
		}
		if !present {
			attempts = last
		}
		if present || attempts > 0 {
			pushes++
		}
		pops += attempts
	}
	for body := range there {
		if _, known := l.known[body]; !known {
			t.Errorf("%q is there and nobody pushed it", body)
		}
	}
	return pushes, pops
}

// A siege is a Redis that was killed again and again during pushes, pops and
// acknowledgements, and what is known of them.
type siege struct {
	server *testserver.Redis
	queue  *queue.Queue
	ledger *ledger
}

const kills, callsBetween = 5, 150

// besiege returns a siege after which Redis holds what it wrote.
func besiege(t *testing.T, o queue.Options) siege {
	t.Helper()
	for range 5 {
		server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		q := openReal(t, server.Addr(), o)
		s := siege{server, q, newLedger(q)}
		if s.run(); !server.Torn() {
			return s
		}
		t.Log("Redis restored a part of a script; once more")
	}
	t.Fatal("Redis restored a part of a script each time")
	return siege{}
}

func (s siege) run() {
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { s.ledger.produce(fmt.Sprint(w)) })
		workers.Go(s.ledger.consume)
	}
	for range kills {
		before := s.ledger.calls.Load()
		for s.ledger.calls.Load() < before+callsBetween {
			time.Sleep(time.Millisecond)
		}
		s.server.Kill()
		s.server.Restart()
	}
	s.ledger.stop.Store(true)
	workers.Wait()
}

// TestKilledAtAnyPoint audits what is left.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	const count = 1_000_000
	// Its bucket fills up once a year, so that what it was charged can be read.
	limit := weir.Limit{Algorithm: weir.TokenBucket, Count: count, Period: 366 * 24 * time.Hour}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := besiege(t, queue.Options{Key: name, Kind: kind, Push: &limit, Pop: &limit, Lease: 50 * time.Millisecond})
			client := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			pushes, pops := s.ledger.audit(t, found(t, client, s.queue, kind))
			if len(s.ledger.seen) == 0 || pushes < callsBetween {
				t.Errorf("only %d were pushed and %d popped", pushes, len(s.ledger.seen))
			}
			if left := push(t, s.queue, queue.Entry{}).Decision.Remaining; count-left-1 != pushes {
				t.Errorf("charged for %d pushes, %d items were pushed", count-left-1, pushes)
			}
			_, d := pop(t, s.queue)
			if charged := count - d.Remaining - 1; charged != pops {
				t.Errorf("charged for %d pops, %d items were delivered", charged, pops)
			}
		})
	}
}
