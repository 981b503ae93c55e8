package queue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// ErrLeaseLost says that the item was leased to another consumer after the lease had
// ended, or was deleted. It wraps [weir.ErrInvalid].
var ErrLeaseLost = fmt.Errorf("%w: the item is not this consumer's any more", weir.ErrInvalid)

// An Item is one delivery of an item. It is immutable and safe for concurrent
// use.
type Item struct {
	// ID is the same at every delivery of the item; in a stream it is the entry's ID.
	ID string
	// Body is the item.
	Body []byte
	// Attempt counts the deliveries of the item: 1 for the first.
	Attempt int64
	// Until is when the lease ends, by the clock of Redis.
	Until time.Time

	queue *Queue
}

// Pop leases an item, if the Pop limit grants it: one whose lease has ended, or
// else the oldest waiting one. If there is none, the item is nil and the decision is
// zero: the limit was not charged. If the limit refuses, the item is nil, the decision
// says when to try again, and the queue is unchanged.
//
// An item that is not acknowledged within its lease is delivered again, so consumers see
// each item at least once. A Pop that returns [weir.ErrAmbiguous] may have leased an item,
// which is delivered again too. Other errors are those of Push.
func (q *Queue) Pop(ctx context.Context) (*Item, weir.Decision, error) {
	r := request{op: opPop, item: newID(), lease: q.options.Lease, keys: q.keys}
	got, err := q.run(ctx, &r, q.charge(q.options.Pop, '<', "", 1))
	if err != nil {
		return nil, weir.Decision{}, fmt.Errorf("weir: pop: %w", err)
	}
	switch got.status {
	case statusEmpty:
		return nil, weir.Decision{}, nil
	case statusRefused:
		return nil, got.decision, nil
	}
	item := &Item{
		ID: string(got.strings[0]), Body: got.strings[1], Attempt: got.attempt,
		Until: time.UnixMicro(got.till), queue: q,
	}
	return item, got.decision, nil
}

// newID returns a unique id.
func newID() []byte {
	var id [16]byte
	// It never fails, by its own promise.
	_, _ = rand.Read(id[:])
	return hex.AppendEncode(nil, id[:])
}

// Ack removes the item for good, and a stream's entry with it. It returns nil if the item
// will not be delivered again, so you may repeat it, even after the lease has ended. It
// returns [ErrLeaseLost] if another consumer has leased the item since.
func (i *Item) Ack(ctx context.Context) error {
	got, err := i.queue.run(ctx, i.request(opAck, 0), i.queue.peek())
	if err == nil && got.status == statusLost {
		err = ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("weir: ack: %w", err)
	}
	return nil
}

// Extend makes the lease end after the given time from now, at most [MaxLease]. Zero
// returns the item to the queue at once. It works after the lease has ended, as long as
// no other consumer has leased the item, and returns [ErrLeaseLost] otherwise. Until does
// not change.
func (i *Item) Extend(ctx context.Context, lease time.Duration) error {
	if lease < 0 || lease > MaxLease {
		return invalid("lease", lease, fmt.Sprintf("0 … %v", MaxLease))
	}
	got, err := i.queue.run(ctx, i.request(opExtend, lease), i.queue.peek())
	if err == nil && got.status != statusDone {
		err = ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("weir: extend: %w", err)
	}
	return nil
}

func (i *Item) request(op byte, lease time.Duration) *request {
	return &request{op: op, item: []byte(i.ID), lease: lease, attempt: i.Attempt, keys: i.queue.keys}
}
