// Package memstore keeps limits in memory: for one process, and for tests. Everything that
// a limiter over Redis can do works here, too, without a server.
package memstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/stack"
)

// DefaultMaxBytes is the default bound on the memory of a store's keys.
const DefaultMaxBytes = memengine.DefaultMaxBytes

// Options are the settings of a [Store]. The zero value is ready for use.
type Options struct {
	// MaxBytes bounds the memory of all keys together, as the store estimates it. At the
	// bound, keys that are as fresh as new ones are removed; no other key is evicted. If
	// that makes no room, all new keys of a limit share one budget: some are refused too
	// early, but none is granted too much. Zero: [DefaultMaxBytes], or a quarter of the
	// process's memory limit if that is less, see [runtime/debug.SetMemoryLimit].
	MaxBytes int64
	// MaxIDBytes bounds the memory of all IDs together, in addition to that of the keys.
	// At the bound, new IDs are not remembered, so their takes cannot be settled or
	// refunded. IDs of refused takes have at most a quarter of it. Zero: half of
	// MaxBytes.
	MaxIDBytes int64
	// KeyLimit returns the bound on the tracked keys of a limit, for limits whose keys
	// clients can make up. It is called from many goroutines. Nil: no bound.
	KeyLimit func(*weir.Limit) weir.KeyLimit
	// MaxOverrides bounds the overrides that can be in force. Zero: 10 000.
	MaxOverrides int
	// Now is the store's clock. Nil: the time at which New was called, plus the time that
	// the monotonic clock has measured since.
	Now func() time.Time
	// Logger receives a line when a bound is first reached. Nil: none.
	Logger *slog.Logger
}

// Store is a [weir.Taker] in memory. It is safe for concurrent use and starts no
// goroutines: calls of Take also remove fresh keys. Create it with New.
type Store struct {
	keys     *memengine.Store
	layers   *stack.Stack
	keyLimit func(*weir.Limit) weir.KeyLimit
}

// New returns an empty store.
func New(o Options) *Store {
	keys := memengine.New(memengine.Options{MaxBytes: o.MaxBytes, MaxIDBytes: o.MaxIDBytes, Now: o.Now, Logger: o.Logger})
	layers := stack.New(keys, stack.Options{
		Logger: o.Logger, Now: o.Now, KeyLimit: stack.OfLimits(o.KeyLimit), MaxOverrides: o.MaxOverrides,
	})
	return &Store{keys, layers, o.KeyLimit}
}

// Take decides the acts, each at one reading of the clock, while it holds the locks of
// all shards that the act touches. It never waits for anything else, so it ignores ctx.
// Its only errors are of the class [weir.ErrInvalid].
func (s *Store) Take(ctx context.Context, acts []*weir.Act) { s.layers.Take(ctx, acts) }

// TakeOne decides a valid take of one charge without an act, see [weir.Taker]. It decides
// nothing if the key may have to share a budget or has an override. It does not allocate.
func (s *Store) TakeOne(prefix, key string, limit *weir.Limit, cost int64) (d weir.Decision, decided bool) {
	if s.layers.Override.Has(prefix, key) || s.keyLimit != nil && !s.layers.KeyLimit.Tracks(s.keyLimit(limit), limit, prefix, key) {
		return d, false
	}
	return s.keys.TakeOne(prefix, key, limit, cost)
}

// Patience returns 0: Take never waits, see [weir.Taker].
func (s *Store) Patience() time.Duration { return 0 }

// ChangeOverride is how a [weir.Limiter] puts an override in force, or ends it if o is nil. The
// key is that in the store: the name of the limiter, "#" and the limit's name or position if
// there are several, ":", and the limiter's key.
func (s *Store) ChangeOverride(key string, o *weir.Override) (had bool, err error) {
	return s.layers.Override.ChangeOverride(key, o)
}

// Overrides returns the overrides in force, by key. The Name of each is a key as for
// ChangeOverride.
func (s *Store) Overrides() []weir.Override { return s.layers.Override.All() }

// Stats are the counts of a store.
type Stats struct {
	Keys       int   // keys with a budget of their own
	Bytes      int64 // their memory, as the store estimates it
	IDs        int   // IDs that are remembered
	IDBytes    int64 // their memory
	Overflowed int64 // charges of keys that shared a budget, since the start
}

// Stats counts the store's keys. It locks one shard after another.
func (s *Store) Stats() Stats {
	st := Stats(s.keys.Stats())
	st.Overflowed += int64(s.layers.Overflowed())
	return st
}
