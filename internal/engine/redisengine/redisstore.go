// Package redisengine keeps limits in Redis or Valkey, so that all instances of a service
// share them. One script call decides a whole batch of acts, of any algorithms, at one
// reading of the server's clock. The call reads first and writes last, so it is applied
// as a whole or not at all.
package redisengine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

// Options are the settings of a [Store], as the public package documents them.
type Options struct {
	Prefix  string
	Secret  string
	Timeout time.Duration // of a call whose context has no deadline
	Logger  *slog.Logger  // of values that the store did not write
}

const defaultTimeout = 250 * time.Millisecond

// A Store is a [weir.Taker] in Redis. It is safe for concurrent use and needs no closing: the
// client belongs to the caller. The goroutines that it starts, to read late replies and to undo
// parts of acts, end within ten seconds, or with the client's own timeouts. Create it with New.
type Store struct {
	client    redis.UniversalClient
	keys      keyer
	timeout   time.Duration
	punctual  bool                    // the client itself keeps to the context's deadline
	slotOfTag func(tag uint32) uint32 // see slotsOf
	keeps     bool                    // replies are read after their calls have ended
	address   string                  // of the server, if there is one
	scripts   scripts
	uploads   uploads
	extra     func() []any // what a test's clock adds to the arguments
	logger    *slog.Logger
	foreign   atomic.Int64
	offset    atomic.Int64 // the store's clock less ours, µs; for calendars only
	located   atomic.Bool  // a cluster's client knows where the slots are
}

// New returns a store on a client, as the public package documents it.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if client == nil {
		return nil, &weir.InvalidError{Field: "client", Value: "nil", Want: "a client"}
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, &weir.InvalidError{Field: "timeout", Value: o.Timeout.String(), Want: "a positive duration, or 0 for 250ms"}
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	keys, slotOfTag := newKeyer(o.Prefix, o.Secret), slotsOf(client)
	keys.apart = slotOfTag != nil
	return &Store{
		client: client, keys: keys, timeout: o.Timeout,
		punctual: punctual(client), slotOfTag: slotOfTag, scripts: shipped, logger: o.Logger,
		keeps: keep(client), address: address(client),
	}, nil
}

// address returns the address of a client's server; empty if it may have several.
func address(client redis.UniversalClient) string {
	if c, single := client.(*redis.Client); single {
		// The client has a name for whichever server it is.
		return strings.Replace(c.Options().Addr, "FailoverClient", "sentinel's master", 1)
	}
	return ""
}

func checkPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return &weir.InvalidError{Field: "prefix", Value: fmt.Sprintf("%q", prefix), Want: "no braces"}
	}
	return nil
}

// punctual reports whether a client ends its reads and writes at the context's
// deadline by itself.
func punctual(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// Foreign returns the number of values under the store's keys that its scripts did not
// write. Each was treated as a fresh key.
func (s *Store) Foreign() int64 { return s.foreign.Load() }

// Take decides the acts, in order, in one script call, or in several if one cannot hold
// them. It returns when ctx ends. Acts in flight then have an error of the class
// [weir.ErrAmbiguous], and may still be charged.
func (s *Store) Take(ctx context.Context, acts []*weir.Act) { weir.TakeValid(ctx, acts, s.takeValid) }

// takeValid decides acts that are valid.
func (s *Store) takeValid(ctx context.Context, acts []*weir.Act) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if s.slotOfTag != nil {
		s.takeSlots(ctx, acts)
		return
	}
	for len(acts) > 0 {
		b := newBatch(s.keys, s.estimate())
		n := b.fill(acts)
		// After an error the client may still be writing the batch.
		if len(b.acts) == 0 || s.run(ctx, b) {
			b.free()
		}
		acts = acts[n:]
	}
}

// bound gives a context the store's timeout unless it has a deadline.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// estimate returns the store's time, as far as it is known without asking.
func (s *Store) estimate() int64 { return time.Now().UnixMicro() + s.offset.Load() }

// run sends a batch and answers its acts, and reports whether the store decided. Acts whose
// calendar windows did not reach the store's time are sent once more, with the windows
// around that time.
func (s *Store) run(ctx context.Context, b *batch) bool {
	for again := false; ; again = true {
		s.pack(b)
		got, err := s.send(ctx, b)
		if err != nil {
			s.fail(b, err)
			return false
		}
		if got.outside == 0 || again {
			return true
		}
		s.offset.Store(got.outside - time.Now().UnixMicro())
		b = s.outside(b, got.outside)
	}
}

// outside returns a batch of the acts whose calendar windows did not reach the store's time.
func (s *Store) outside(b *batch, now int64) *batch {
	again := newBatch(s.keys, now)
	for _, a := range b.acts {
		if a.Err == errOutside {
			a.Err = nil
			again.add(a)
		}
	}
	return again
}

// pack writes the request of a batch and chooses the script for it.
func (s *Store) pack(b *batch) {
	b.pack(nil)
	if s.extra != nil {
		b.args = append(b.args, s.extra()...)
	}
	if b.script = &s.scripts.whole; b.plain {
		b.script = &s.scripts.plain
	}
}

// read answers the acts with a reply.
func (s *Store) read(b *batch, reply string) (answer, error) {
	got, err := b.decode(reply)
	if got.foreign > 0 && s.foreign.Add(got.foreign) == got.foreign {
		s.logger.Warn("redis holds values under weir's keys that weir did not write; they count as fresh keys", "prefix", s.keys.prefix)
	}
	return got, err
}
