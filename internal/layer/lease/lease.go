// Package lease spends shares of budgets from memory: an instance charges a share
// ahead in one call and decides from it until it is spent, given back or over. It
// wraps any [weir.Taker], for the limits that opt in.
package lease

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/spin"
)

// What the fields of [Options] are if they are zero.
const (
	// DefaultAhead is how long a share is meant to last, and does last at most.
	DefaultAhead = time.Second
	// DefaultPart is the largest share, as a part of a limit's count.
	DefaultPart = 0.1
	// DefaultMaxKeys is how many keys are watched.
	DefaultMaxKeys = 1 << 17
)

const shardCount = 64

// Options are the settings of a [Leaser]. The zero value leases nothing.
type Options struct {
	// Leased says which limits are leased; it is asked once for each. Nil: none.
	// Limits of which no share can be taken are passed by, see [Check].
	Leased func(*weir.Limit) bool
	// Ahead is how long a share is meant to last at the rate at which it is
	// spent; what is left of it after that time goes back. Zero: [DefaultAhead].
	Ahead time.Duration
	// Part bounds a share, as a part of the limit's count, above 0 and at most
	// 1. Zero: [DefaultPart].
	Part float64
	// MaxKeys bounds how many keys are watched; others are passed by. One takes
	// about 400 bytes and its key. Zero: [DefaultMaxKeys].
	MaxKeys int
	// Around, if not nil, is called with each piece of work in the background and has
	// to do it; it may recover where the wrapped Taker panics.
	Around func(work func())
	// Now is the clock by which shares end. Nil: the machine's, whose steps do
	// not count.
	Now func() time.Time
}

// A Leaser is a [weir.Taker] that asks another one for shares. It is safe for
// concurrent use. Create it with Wrap; Start and Stop it, so that shares which
// nobody spends go back.
//
// A granted charge with the source [weir.SourceLease] was paid with units that
// the store had charged before, at the decision's At. So what the limit promises
// holds for when units are charged, and they are spent at most Ahead later: a
// fixed window never grants more than its count, because a share ends with its
// window; for the other algorithms any interval may see as much more as was out in
// shares when it began: at most Part of the count, for each key and instance.
// While a share is out, others may be refused early, by no more than that. An
// instance that is killed strands what it holds, at most one share a key.
//
// Shares follow demand: one is half of what is asked for in Ahead, so that it is mostly
// spent in time, and at most four times what was asked so far. Keys of which fewer than four such acts come in that time
// have none, and cost the store what they cost without leases. Near the limit shares
// shrink to nothing. Acts with an id, a hold, a MaxWait or an UpTo and looks
// go to the store, as do all acts in which a limit is not leased; a look adds what
// is left of the share here to Remaining.
type Leaser struct {
	next     weir.Taker
	leased   func(*weir.Limit) bool
	ahead    int64 // ns
	part     float64
	perShard int
	seed     maphash.Seed
	now      func() int64 // ns
	limits   limits
	shards   [shardCount]shard
	counts   counts
	around   func(work func())
	keeping  keeping
}

type shard struct {
	mu    spin.Mutex
	cells map[string]*cell // by the key of the first charge
	spent uint64           // acts that were paid from a share
	_     [40]byte         // to the end of a cache line
}

// Wrap returns a Leaser that asks next. It starts nothing.
func Wrap(next weir.Taker, o Options) *Leaser {
	l := &Leaser{next: next, leased: o.Leased, ahead: o.Ahead.Nanoseconds(), part: o.Part, perShard: o.MaxKeys / shardCount, seed: maphash.MakeSeed()}
	if l.leased == nil {
		l.leased = func(*weir.Limit) bool { return false }
	}
	if l.ahead <= 0 {
		l.ahead = DefaultAhead.Nanoseconds()
	}
	if !(l.part > 0 && l.part <= 1) {
		l.part = DefaultPart
	}
	if l.perShard <= 0 {
		l.perShard = DefaultMaxKeys / shardCount
	}
	start := time.Now()
	l.now = func() int64 { return time.Since(start).Nanoseconds() }
	if o.Now != nil {
		l.now = func() int64 { return o.Now().UnixNano() }
	}
	for i := range l.shards {
		l.shards[i].cells = make(map[string]*cell)
	}
	if l.around = o.Around; l.around == nil {
		l.around = func(work func()) { work() }
	}
	l.keeping.init()
	return l
}

// Check says whether shares of a limit can be taken. The error is a
// [*weir.InvalidError]: concurrency limits are held by name, a leaky_bucket lets
// its units out one after another, and a limit that charges what it refuses needs
// to hear of it. A count of 1 is no error, but has no share to give.
func Check(l *weir.Limit) error {
	switch {
	case l.Algorithm == weir.Concurrency, l.Algorithm == weir.LeakyBucket:
		return &weir.InvalidError{Field: "lease", Value: l.Algorithm.String(), Want: "an algorithm whose units can be spent later than they are charged"}
	case l.ChargeRefused:
		return &weir.InvalidError{Field: "lease", Value: "charge_refused", Want: "a limit that charges only what it grants"}
	}
	return nil
}

// limits remembers which limits are leased, so that each is asked about once.
type limits struct {
	known atomic.Pointer[map[*weir.Limit]bool]
	mu    sync.Mutex
}

// maxLimits is how many are remembered before all are forgotten: more than a
// server has, fewer than limits that come with requests can fill memory with.
const maxLimits = 4096

func (l *Leaser) leases(limit *weir.Limit) bool {
	if known := l.limits.known.Load(); known != nil {
		if leased, ok := (*known)[limit]; ok {
			return leased
		}
	}
	l.limits.mu.Lock()
	defer l.limits.mu.Unlock()
	all := map[*weir.Limit]bool{}
	if known := l.limits.known.Load(); known != nil && len(*known) < maxLimits {
		for k, v := range *known {
			all[k] = v
		}
	}
	all[limit] = limit.Count > 1 && Check(limit) == nil && l.leased(limit)
	l.limits.known.Store(&all)
	return all[limit]
}

// leasable reports whether an act can be paid from shares.
func (l *Leaser) leasable(a *weir.Act) bool {
	if a.Kind != weir.KindTake || a.ID != "" || a.Hold != 0 || a.MaxWait != 0 || len(a.Charges) == 0 || len(a.Decisions) != len(a.Charges) {
		return false
	}
	cost := a.Charges[0].Cost
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.Limit == nil || c.Cost <= 0 || c.Cost != cost || c.UpTo != 0 || !l.leases(c.Limit) {
			return false
		}
	}
	return true
}

// Take pays from shares what it can and asks the wrapped Taker for the rest, in
// one call, with new shares.
func (l *Leaser) Take(ctx context.Context, acts []*weir.Act) {
	var t trip
	for _, a := range acts {
		if !l.leasable(a) {
			l.aside(a)
			t.down = append(t.down, a)
			continue
		}
		c, state := l.spend(a)
		if state == busy && len(acts) == 1 {
			// Only one who holds no claim may wait for one.
			state = l.wait(ctx, c, a)
		}
		switch state {
		case paid:
		case claimed:
			t.ask(l, c, a)
		default:
			if len(acts) == 1 {
				t.down = acts
				break
			}
			t.down = append(t.down, a)
		}
	}
	if len(t.down) == 0 {
		return
	}
	t.send(ctx, l)
	for _, a := range t.down {
		l.look(a)
	}
}
