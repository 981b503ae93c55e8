// Package memengine keeps limits in memory: for one process, for tests, and for decisions
// during a store outage. It runs the steps of internal/algo under the locks of its
// shards.
package memengine

import (
	"context"
	"hash/maphash"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// DefaultMaxBytes is the default bound on the memory of a store's keys.
const DefaultMaxBytes = 256 << 20

// Options are the settings of a [Store], as the public package documents them.
type Options struct {
	MaxBytes   int64
	MaxIDBytes int64
	Now        func() time.Time
	Logger     *slog.Logger
}

// Store is a [weir.Taker] in memory. It is safe for concurrent use and starts no
// goroutines: calls of Take also remove fresh keys. Create it with New.
type Store struct {
	shards   [shardCount]shard
	seeds    [2]maphash.Seed
	clock    func() time.Time // nil: the machine's monotonic clock, from start on
	start    time.Time
	epoch    int64 // start in µs since 1970
	maxBytes int64
	bytes    atomic.Int64
	overflow overflow
	// maxIDBytes bounds ids, the memory of granted and amended takes' records, and
	// refused, that of refused ones', together.
	maxIDBytes   int64
	ids, refused atomic.Int64
	calls        sync.Pool
}

// New returns an empty store.
func New(o Options) *Store {
	s := &Store{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		clock: o.Now, start: time.Now(), maxBytes: o.MaxBytes,
	}
	s.epoch = s.start.UnixMicro()
	if s.maxBytes <= 0 {
		s.maxBytes = min(DefaultMaxBytes, debug.SetMemoryLimit(-1)/4)
	}
	if s.maxIDBytes = o.MaxIDBytes; s.maxIDBytes <= 0 {
		s.maxIDBytes = s.maxBytes / 2
	}
	if s.overflow.logger = o.Logger; o.Logger == nil {
		s.overflow.logger = slog.New(slog.DiscardHandler)
	}
	pages := slices.Repeat([]entry{{nothing.cells, nothing}}, shardCount)
	for i := range s.shards {
		s.shards[i].table = table{pages: pages[i : i+1 : i+1], shift: 64}
	}
	s.calls.New = func() any { return new(call) }
	return s
}

// read reads the store's own clock, in µs since 1970. That is done before the locks
// are taken, to hold them for less time.
func (s *Store) read() int64 {
	if s.clock != nil {
		return 0
	}
	return s.epoch + time.Since(s.start).Microseconds()
}

// now is the instant of an act that holds its locks: when it read the clock, or when
// one was decided that read it later and came first. A clock that was given to the
// store is read only now, and may step back.
func (s *Store) now(read, last int64) int64 {
	if s.clock != nil {
		return s.given()
	}
	return max(read, last)
}

// given reads the clock that was given to the store.
func (s *Store) given() int64 { return s.clock().UnixMicro() }

// Take decides the acts, each at one reading of the clock, while it holds the locks of
// all shards that the act touches. It never waits for anything else, so it ignores ctx.
// Its only errors are of the class [weir.ErrInvalid].
func (s *Store) Take(ctx context.Context, acts []*weir.Act) { weir.TakeValid(ctx, acts, s.takeValid) }

// takeValid decides acts that are valid.
func (s *Store) takeValid(_ context.Context, all []*weir.Act) {
	for _, a := range all {
		if !acts.Prepare(a) && (!isSingle(a) || !s.takeOne(a)) {
			s.take(a)
		}
	}
}

// take decides any act that is prepared.
func (s *Store) take(a *weir.Act) {
	c := s.calls.Get().(*call)
	c.gather(s, a)
	fills := acts.Fills(a)
	if s.decideLocked(c, a); fills {
		acts.FillRest(a)
	}
	if c.filled != nil {
		s.overflow.warn(c.filled.Name)
	}
	c.reset()
	s.calls.Put(c)
}

// decideLocked locks the act's shards and does it. If that panics, the shards are unlocked,
// and the call is not used again.
func (s *Store) decideLocked(c *call, a *weir.Act) {
	now := s.read()
	c.lock(s)
	defer c.unlock(s)
	s.decide(c, a, c.now(s, now))
}

// decide does the act while its shards are locked.
func (s *Store) decide(c *call, a *weir.Act, now int64) {
	for i := range c.slots {
		t := &c.slots[i]
		full := s.load(t, now)
		switch {
		case t.known:
		case t.blocks:
			t.homeless = full
		case full || s.overflow.active.Load():
			s.overflow.load(c, t, full, now)
		}
	}
	if c.overflowed {
		c.merge(len(a.Charges))
	}
	for i := range c.slots {
		c.slots[i].age(now)
	}
	done := c.recall(s, a, now)
	switch {
	case done:
	case a.Kind == acts.KindTake:
		c.decide(a, now)
	default:
		a.Err = c.move(a, now)
		done = a.Err != nil
	}
	for i := range c.slots {
		s.publish(&c.slots[i], c.tight, now)
	}
	if !done {
		c.report(a, now)
		c.remember(s, a, now)
	}
}

// Stats are the counts of a store.
type Stats struct {
	Keys       int   // keys with a budget of their own
	Bytes      int64 // their memory, as the store estimates it
	IDs        int   // IDs that are remembered
	IDBytes    int64 // their memory
	Overflowed int64 // charges of new keys that shared a budget, since the start
}

// Stats counts the store's keys. It locks one shard after another.
func (s *Store) Stats() Stats {
	now := s.now(s.read(), 0)
	stats := Stats{Bytes: s.bytes.Load(), Overflowed: s.overflow.charges.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		stats.Keys += sh.keys
		if sh.ids != nil {
			sh.ids.turn(s, now)
			stats.IDs += len(sh.ids.kept) + len(sh.ids.refused[0].records) + len(sh.ids.refused[1].records)
		}
		sh.mu.Unlock()
	}
	stats.IDBytes = s.ids.Load() + s.refused.Load()
	return stats
}
