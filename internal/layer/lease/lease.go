// Package lease charges units of a limit ahead, in one call of the store, and spends these
// leased units from memory until they are used up, returned or expired. Limits opt in.
package lease

import (
	"cmp"
	"context"
	"hash/maphash"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/spin"
)

// Defaults of the fields of [Options] that are zero.
const (
	DefaultAhead   = time.Second
	DefaultPart    = 0.1
	DefaultMaxKeys = 1 << 17
)

const (
	shardBits  = 6
	shardCount = 1 << shardBits
)

// Options configure a [Layer]. The zero value leases nothing.
type Options struct {
	// Leased reports whether a limit is leased. It is called for every charge, from many
	// goroutines. Limits that cannot be leased, see [Check], are passed through. Nil: none is
	// leased.
	Leased func(*weir.Limit) bool
	// Ahead is how long a lease lasts at most, and is meant to suffice at the current rate;
	// unused units are returned afterwards. Zero: [DefaultAhead].
	Ahead time.Duration
	// Part bounds a lease, as a part of the limit's count, above 0 and at most 1. Zero:
	// [DefaultPart].
	Part float64
	// MaxKeys bounds the keys whose demand is watched; others are passed through. Keys that
	// an act charges together count as one, which takes about 400 bytes and their length.
	// Zero: [DefaultMaxKeys].
	MaxKeys int
	// Around is called with each piece of background work and must run it; it can recover
	// from panics of the next Taker. Nil: the work runs by itself.
	Around func(work func())
	// Now is the clock by which leases end. Nil: the monotonic clock.
	Now func() time.Time
}

// A Layer leases units from the next Taker. It is safe for concurrent use. Create it with
// Wrap; Start and Stop it so that unused units are returned.
//
// A charge granted with the source [acts.SourceLease] was paid with units that the store
// charged before, at the decision's At. So the limit's promises hold for the instants at
// which units are charged, and units are spent at most Ahead later: a fixed window never
// grants more than its count, because a lease ends with its window; for the other
// algorithms, an interval may see as many units more as were leased when it began: at most
// Part of the count for each key and instance. While units are leased, other instances may
// be refused early, by no more than that. An instance that is killed strands the units it
// has leased, at most one lease a key.
//
// Leases follow demand: a lease is half of the units asked for in Ahead, so that most of it
// is spent in time, and at most four times those asked for so far. Acts that charge several
// keys have a lease of their own for each combination of keys, and Part bounds all leases of a
// key together. Keys with fewer than
// four such acts in that time have no lease, and cost the store as much as without this
// layer. Near the limit, leases shrink to nothing. Acts with an ID, a hold, a MaxWait or an
// UpTo or Keep, peeks, acts with alternatives, and acts in which a limit is not leased go to
// the store. A peek adds the units leased here to Remaining, if a take of its charges would
// spend them.
type Layer struct {
	Options
	next     weir.Taker
	ahead    int64 // ns
	perShard int
	seed     maphash.Seed
	now      func() int64 // ns
	shards   [shardCount]shard
	total    total
	counts   counts
	returner returner
}

type shard struct {
	mu    spin.Mutex
	cells map[uint64]*cell // by the hash of the keys
	spent uint64           // acts paid with leased units
	_     [40]byte         // to the end of a cache line
}

// Wrap returns a Layer that asks next. It starts nothing.
func Wrap(next weir.Taker, o Options) *Layer {
	if o.Leased == nil {
		o.Leased = func(*weir.Limit) bool { return false }
	}
	if !(o.Part > 0 && o.Part <= 1) {
		o.Part = DefaultPart
	}
	if o.Around == nil {
		o.Around = func(work func()) { work() }
	}
	l := &Layer{
		Options: o, next: next, seed: maphash.MakeSeed(),
		ahead:    cmp.Or(max(o.Ahead, 0), DefaultAhead).Nanoseconds(),
		perShard: cmp.Or(max(o.MaxKeys, 0)/shardCount, DefaultMaxKeys/shardCount),
	}
	start := time.Now()
	l.now = func() int64 { return time.Since(start).Nanoseconds() }
	if o.Now != nil {
		l.now = func() int64 { return o.Now().UnixNano() }
	}
	for i := range l.shards {
		l.shards[i].cells = make(map[uint64]*cell)
	}
	l.returner.init()
	return l
}

// Check returns an error if units of a limit cannot be leased. It is a
// [*weir.InvalidError]: slots of concurrency limits have holders, a leaky_bucket spaces
// its units out, a limit that charges refused requests needs a call for each, and a block has to
// be seen by all instances at once. A count
// of 1 is no error, but there is nothing to lease.
func Check(l *weir.Limit) error {
	switch {
	case algo.TraitsOf(l.Algorithm).HoldsSlots, algo.TraitsOf(l.Algorithm).Delays:
		return &weir.InvalidError{Field: "lease", Value: l.Algorithm.String(), Want: "an algorithm whose units can be spent later than they are charged"}
	case l.Block > 0:
		return &weir.InvalidError{Field: "lease", Value: "block", Want: "a limit without a block, which all instances have to see at once"}
	case l.ChargeRefused:
		return &weir.InvalidError{Field: "lease", Value: "charge_refused", Want: "a limit that charges only what it grants"}
	}
	return nil
}

// leases asks about each charge anew, and remembers no limits: those that come with requests
// have no number.
func (l *Layer) leases(limit *weir.Limit) bool {
	return limit.Count > 1 && l.Leased(limit) && Check(limit) == nil
}

// leasable reports whether an act can be paid with leased units, or is a peek at limits whose
// takes can.
func (l *Layer) leasable(a *weir.Act) bool {
	if a.Kind != acts.KindTake || a.Dry || a.ID != "" || a.Hold != 0 || a.MaxWait != 0 || len(a.Charges) == 0 || len(a.Decisions) != len(a.Charges) {
		return false
	}
	cost := a.Charges[0].Cost
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.Limit == nil || c.Cost < 0 || c.Cost != cost || c.UpTo != 0 || c.Keep != 0 || !l.leases(c.Limit) {
			return false
		}
	}
	return !a.Alternatives()
}

// Take grants as much as it can from leased units. It asks the next Taker for the rest,
// and for new leases, in one call.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	var t trip
	for _, a := range acts {
		if !l.leasable(a) || a.Charges[0].Cost == 0 {
			l.expire(a)
			t.pass(a, acts)
			continue
		}
		c, state, expired := l.spend(a)
		if expired != nil {
			t.acts = append(t.acts, expired)
		}
		if state == busy && len(acts) == 1 {
			// A call that has claims itself must not wait for those of others.
			state = l.wait(ctx, c, a)
		}
		switch state {
		case paid:
		case claimed:
			t.refill(l, c, a)
		default:
			t.pass(a, acts)
		}
	}
	if len(t.acts) == 0 {
		return
	}
	t.send(ctx, l)
	for _, a := range t.acts {
		l.addLeased(a)
	}
}
