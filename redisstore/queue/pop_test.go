package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore/queue"
)

var background = context.Background()

// each runs a test for a list and for a stream, each in a place of its own.
func each(t *testing.T, o queue.Options, test func(p *place, q *queue.Queue, kind queue.Kind)) {
	t.Helper()
	address := testserver.StartRedis(t).Addr()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, address)
			own := o
			own.Key, own.Kind = name, kind
			test(p, p.open(own), kind)
		})
	}
}

func wantItem(t *testing.T, item *queue.Item, body string, attempt int64) {
	t.Helper()
	if item == nil || string(item.Body) != body || item.Attempt != attempt {
		t.Fatalf("popped %+v, want %q, attempt %d", item, body, attempt)
	}
}

func wantLen(t *testing.T, q *queue.Queue, waiting, flying int64) {
	t.Helper()
	if n, leased, err := q.Len(background); err != nil || n != waiting || leased != flying {
		t.Errorf("%d waiting, %d leased, %v; want %d and %d", n, leased, err, waiting, flying)
	}
}

func TestAnItemComesAgainUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{Lease: time.Minute}, func(p *place, q *queue.Queue, kind queue.Kind) {
		t := p.t
		pushAll(t, q, "a", "b")
		first, _ := pop(t, q)
		wantItem(t, first, "a", 1)
		if want := p.clock.Now().Add(time.Minute); !first.Until.Equal(want) {
			t.Errorf("leased until %v, want %v", first.Until, want)
		}
		p.clock.Advance(time.Minute - time.Microsecond)
		second, _ := pop(t, q)
		wantItem(t, second, "b", 1)
		p.clock.Advance(time.Microsecond)
		again, _ := pop(t, q)
		wantItem(t, again, "a", 2)
		wantLen(t, q, 0, 2)
		if again.ID != first.ID {
			t.Errorf("ids %q and %q of one item", first.ID, again.ID)
		}
		for _, err := range []error{first.Ack(background), first.Extend(background, time.Second)} {
			if !errors.Is(err, queue.ErrLeaseLost) || !errors.Is(err, weir.ErrInvalid) {
				t.Errorf("of the first lease: %v", err)
			}
		}
		for _, item := range []*queue.Item{again, second, again, first} {
			if err := item.Ack(background); err != nil {
				t.Errorf("ack: %v", err)
			}
		}
		if err := again.Extend(background, time.Second); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("extend what is gone: %v", err)
		}
		p.clock.Advance(time.Hour)
		if item, d := pop(t, q); item != nil || d != (weir.Decision{}) {
			t.Errorf("popped %+v, %+v of an empty queue", item, d)
		}
		for _, key := range q.Keys()[1:] {
			if p.client.Exists(background, key).Val() != 0 {
				t.Errorf("%s is left", key)
			}
		}
		if left := p.contents(q, kind); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
}

// TestExtend ends a lease at once, or asks for too much.
func TestExtend(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{Lease: time.Minute}, func(p *place, q *queue.Queue, _ queue.Kind) {
		t := p.t
		pushAll(t, q, "a")
		item, _ := pop(t, q)
		if err := item.Extend(background, 0); err != nil {
			t.Fatal(err)
		}
		again, _ := pop(t, q)
		wantItem(t, again, "a", 2)
		wantInvalid(t, "lease", item.Extend(background, -1))
		wantInvalid(t, "lease", item.Extend(background, queue.MaxLease+1))
	})
}

// TestAStreamIsShared reads, trims and adds entries behind the queue's back.
func TestAStreamIsShared(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	q := p.open(queue.Options{Key: "s", Kind: queue.Stream, Lease: time.Minute})
	pushAll(t, q, "a", "b")
	item, _ := pop(t, q)
	if got := p.contents(q, queue.Stream); len(got) != 2 {
		t.Errorf("others see %q, want the leased item too", got)
	}
	p.client.XDel(background, "s", item.ID)
	p.client.Do(background, "xadd", "s", "*", "other", "x", "body", "c")
	p.client.Do(background, "xadd", "s", "*", "other", "x")
	p.clock.Advance(time.Hour)
	for _, body := range []string{"b", "c", ""} {
		item, _ := pop(t, q)
		wantItem(t, item, body, 1)
	}
	wantLen(t, q, 0, 3)
	p.client.Del(background, "s")
	p.clock.Advance(time.Hour)
	if item, _ := pop(t, q); item != nil {
		t.Errorf("popped %+v from nothing", item)
	}
	wantLen(t, q, 0, 0)
	p.client.Do(background, "xadd", "s", "1-1", "body", "early")
	item, _ = pop(t, q)
	wantItem(t, item, "early", 1)
}

// TestWhatOthersDeletedIsClearedAway deletes more leased entries than one pop clears
// away.
func TestWhatOthersDeletedIsClearedAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testserver.StartRedis(t).Addr())
	q := p.open(queue.Options{Key: "s", Kind: queue.Stream, Lease: time.Minute})
	const gone = queue.MaxDropped + 10
	for range gone {
		pushAll(t, q, "gone")
		pop(t, q)
	}
	p.client.XTrimMaxLen(background, "s", 0)
	pushAll(t, q, "kept")
	last, _ := pop(t, q)
	wantItem(t, last, "kept", 1)
	p.clock.Advance(time.Hour)
	if item, _ := pop(t, q); item != nil {
		t.Errorf("popped %+v, want the first of the deleted ones cleared away", item)
	}
	wantLen(t, q, 0, gone+1-queue.MaxDropped)
	again, _ := pop(t, q)
	wantItem(t, again, "kept", 2)
	wantLen(t, q, 0, 1)
}
