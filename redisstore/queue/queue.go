// Package queue writes and reads a Redis list or stream under limits. The limit decides
// and the queue changes in one script, so a call is applied as a whole or not at all.
// Consumers lease items and acknowledge them; an item that is not acknowledged is
// delivered again. docs/queue.md has the promises.
package queue

import (
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	public "github.com/weirlimit/weir/redisstore"
)

// Kind is the type of a queue's key in Redis.
type Kind uint8

const (
	// List: items are pushed to the tail and popped from the head. The zero
	// value.
	List Kind = iota
	// Stream: an item is an entry. Other programs can read it until it is acknowledged
	// and deleted.
	Stream
	kinds
)

// AtLimit is the policy for a push at the limit: if the Push limit refuses it, or if
// MaxLen items wait already.
type AtLimit uint8

const (
	// Refuse pushes nothing. A push that finds no room charges nothing. The zero
	// value.
	Refuse AtLimit = iota
	// DropOldest drops the oldest waiting item in favour of the new one. A push that the
	// limit refused charges nothing and replaces an item, so no more items pass than were
	// granted. If no item waits, the push is refused.
	DropOldest
	// Trim always pushes, and drops from the old end until TrimTo items wait,
	// the new one among them. A push that the limit refused charges nothing.
	Trim
	choices
)

const (
	// MaxKeyBytes is the greatest length of a key, of a queue or of a budget.
	MaxKeyBytes = 1 << 10
	// MaxItemBytes is the greatest size of an item.
	MaxItemBytes = 1 << 20
	// MaxDropped is the largest number of items that one push drops. The next push at the
	// limit drops the rest.
	MaxDropped = 256
	// MaxLease is the longest lease.
	MaxLease = weir.MaxWait

	maxLen       = 1_000_000_000
	defaultLease = 30 * time.Second
	defaultField = "body"
)

// Options are the settings of a [Queue]. Key is required. All programs that use a queue
// through this package should use the same options.
type Options struct {
	// Key is the queue's key in Redis, as its other users know it. The keys of
	// limits, ids and leases take its hash tag; [redisengine.HashTag] must find
	// one.
	Key string
	// Kind is the type of the key. Zero: a list.
	Kind Kind
	// Field is the field of a stream's entries that holds the item; an entry
	// without it counts as an empty item. Empty: "body". Lists have none.
	Field string
	// Push limits pushes, and Pop limits deliveries, first and repeated ones. A
	// leaky_bucket refuses items that would have to wait. Not concurrency. Nil: no
	// limit.
	Push, Pop *weir.Limit
	// MaxLen is the largest number of items that may wait, without those in flight. Zero:
	// any number.
	MaxLen int64
	// AtLimit is the policy at the limit. Zero: Refuse.
	AtLimit AtLimit
	// TrimTo is the number of items that Trim leaves waiting, at least 1 and, if there is
	// a MaxLen, at most that. Zero: MaxLen. Only for Trim.
	TrimTo int64
	// Lease is the time in which a consumer has to acknowledge an item before it is
	// delivered again. 1 ms … [MaxLease]. Zero: 30 s.
	Lease time.Duration
}

// Queue is a queue under limits. It is immutable, safe for concurrent use and
// needs no closing. Create it with New.
type Queue struct {
	store     *redisengine.Store
	extension *redisengine.Extension
	extra     func() []any // what a test's clock adds to the arguments
	options   Options
	tag       string
	keys      []string // the queue, its leases, what is leased
}

var (
	//go:embed lua/queue.lua
	queueLua string
	shipped  = redisengine.NewExtension("queue", queueLua)
	// unlimited is the limit of a peek if there is nothing to charge.
	unlimited = weir.Per(1, time.Second).MustCompile()
)

const (
	leasesLetter = 'z'
	leasedLetter = 'h'
	recordLetter = 'p'
)

// New returns a queue in the Redis of the store. It does not call Redis. The error is a
// [*weir.InvalidError].
func New(store *public.Store, o Options) (*Queue, error) {
	if store == nil {
		return nil, invalid("store", "nil", "a store")
	}
	inside := redisengine.Of(store)
	if err := o.complete(); err != nil {
		return nil, err
	}
	tag, ok := redisengine.HashTag(o.Key)
	if !ok || len(o.Key) > MaxKeyBytes {
		return nil, invalid("key", strconv.Quote(o.Key), fmt.Sprintf("1 … %d bytes with a hash tag, or without closing braces", MaxKeyBytes))
	}
	leases := shipped.Key(inside, tag, leasesLetter, o.Key)
	leased := shipped.Key(inside, tag, leasedLetter, o.Key)
	return &Queue{store: inside, extension: shipped, options: o, tag: tag, keys: []string{o.Key, leases, leased}}, nil
}

// complete checks the options and fills in their defaults.
func (o *Options) complete() error {
	if o.Field == "" {
		o.Field = defaultField
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.AtLimit == Trim && o.TrimTo == 0 {
		o.TrimTo = o.MaxLen
	}
	var err error
	if o.Push, err = compile("push", o.Push); err != nil {
		return err
	}
	o.Pop, err = compile("pop", o.Pop)
	return err
}

func (o *Options) check() error {
	switch {
	case o.Kind >= kinds:
		return invalid("kind", uint8(o.Kind), "List or Stream")
	case o.AtLimit >= choices:
		return invalid("at_limit", uint8(o.AtLimit), "Refuse, DropOldest or Trim")
	case o.MaxLen < 0 || o.MaxLen > maxLen:
		return invalid("max_len", o.MaxLen, fmt.Sprintf("0 … %d", maxLen))
	case o.Lease < time.Millisecond || o.Lease > MaxLease:
		return invalid("lease", o.Lease, fmt.Sprintf("1ms … %v", MaxLease))
	case o.AtLimit != Trim && o.TrimTo != 0:
		return invalid("trim_to", o.TrimTo, "none: only Trim trims")
	case o.AtLimit == Trim && o.TrimTo == 0 && o.MaxLen == 0:
		return invalid("trim_to", o.TrimTo, "how many items to leave, at least 1")
	case o.TrimTo < 0 || o.TrimTo > maxLen || o.MaxLen > 0 && o.TrimTo > o.MaxLen:
		return invalid("trim_to", o.TrimTo, "1 … max_len")
	}
	return nil
}

func compile(field string, l *weir.Limit) (*weir.Limit, error) {
	if l == nil {
		return nil, nil
	}
	if algo.TraitsOf(l.Algorithm).HoldsSlots {
		return nil, invalid(field, l, "another algorithm: a queue has no holders")
	}
	return l.Compile()
}

func invalid(field string, value any, want string) error {
	return &weir.InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
}
