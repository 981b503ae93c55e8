// Package fallback answers while a store does not. It wraps any [weir.Taker]:
// each call has a deadline, a store that keeps failing is left alone until it
// answers again, and what it did not decide is decided by a policy for each limit:
// grant this instance's share, let everything pass, refuse everything, or hand the
// error over.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/memstore"
)

// What the fields of [Options] are if they are zero.
const (
	// DefaultDeadline leaves time to answer a caller that waits 20 ms.
	DefaultDeadline = 12 * time.Millisecond
	// DefaultProbeEvery is how often a store that is away is tried, give or take a
	// half.
	DefaultProbeEvery = 200 * time.Millisecond
	// DefaultMaxKeys is for how many keys memory is kept.
	DefaultMaxKeys = 1 << 17
	// DefaultMaxBytes bounds the memory of what is decided here.
	DefaultMaxBytes = 64 << 20
)

// RetryAfter is what a refusal says where nobody knows when there will be room:
// by then the store may be back.
const RetryAfter = time.Second

// Policy is what is answered to a charge that the store did not decide.
type Policy uint8

// The policies, named as in rules files.
const (
	// Local grants this instance's share of the limit. The zero value.
	Local Policy = iota
	// Allow grants everything.
	Allow
	// Deny refuses everything but looks.
	Deny
	// Error hands the error of the store over.
	Error
)

// Options are the settings of a [Taker]. The zero value is a good one for a store
// that one instance uses.
type Options struct {
	// Deadline is how long the store has for a call, or up to a sixteenth less: calls
	// that begin together end together. A call whose context ends sooner gets a little
	// less than that. Zero: [DefaultDeadline].
	Deadline time.Duration
	// Policy says what is answered to a charge that the store did not decide. It
	// is called for every charge, from many goroutines. Nil: [Local] for all.
	Policy func(*weir.Charge) Policy
	// Instances is how many instances share the limits: a share is a limit
	// divided by it, at least 1. It is called for every charge that is decided
	// here. Nil: 1.
	Instances func() int
	// ProbeEvery is how often a store that is away is tried. Zero:
	// [DefaultProbeEvery].
	ProbeEvery time.Duration
	// MaxKeys bounds of how many keys is remembered what the store last said, and,
	// apart from them, what was granted here and is to be charged back. Beyond it
	// limits hold all the same, by whole shares, but nothing is charged back. A key
	// takes 32 bytes, or about 300 while it is to be charged back. Zero:
	// [DefaultMaxKeys].
	MaxKeys int
	// MaxBytes bounds the memory of what is decided here, see
	// [memstore.Options]. Zero: [DefaultMaxBytes].
	MaxBytes int64
	// Now is the clock of what is decided here. Nil: the machine's, whose steps
	// do not count.
	Now func() time.Time
	// Logger hears when the store goes and when it comes back. Nil: nobody does.
	Logger *slog.Logger
}

// A Taker asks another one as long as that answers. It is safe for concurrent
// use. Create it with Wrap; it works in the background only while the store is
// away or is told what happened meanwhile, and Stop waits for that.
//
// What a policy decided says so by its source: [weir.SourceFallback],
// [weir.SourceFailOpen], [weir.SourceFailClosed]. Errors of the class
// [weir.ErrInvalid] are answers, and go through.
//
// An act is decided by the policies of all its charges: if any is Error, it is an
// error; else if any is Deny, it is refused; else the Local ones decide. A refund
// or a record without an id is done here if all its charges are Local. A take with an
// id that was decided here stays here, with all that is done to it, also when the
// store is back; other ids cannot be settled, released, renewed or refunded while
// the store is away, and nothing can be reset.
//
// Places of a concurrency limit that were given here are the store's as soon as their
// holder renews them, the store is back and has room for them. Until then, so for at most a
// lease unless the limit is full, there may be one share more holders for each
// instance than the limit says. Those of an act that also took units stay here.
//
// A call that ran into its deadline may have been charged in the store, or may
// still be. It is decided here all the same, and charged back like all others: so
// it may count twice, and nothing is granted that was not charged.
type Taker struct {
	next      weir.Taker
	policy    func(*weir.Charge) Policy
	deadline  time.Duration
	usual     *deadline.Group // of calls that end after it
	every     time.Duration
	instances func() int
	logger    *slog.Logger

	breaker breaker
	known   *known
	local   *memstore.Store
	now     func() int64 // µs
	shares  shares
	ids     *ids
	debts   *debts
	counts  counts
	scratch sync.Pool
	mending mending
}

// Wrap returns a Taker that asks next, which has to return when its context ends.
// It starts nothing.
func Wrap(next weir.Taker, o Options) *Taker {
	maxKeys := cmp.Or(max(o.MaxKeys, 0), DefaultMaxKeys)
	t := &Taker{
		next: next, policy: o.Policy, instances: o.Instances, now: clock(o.Now),
		deadline: cmp.Or(max(o.Deadline, 0), DefaultDeadline),
		every:    cmp.Or(max(o.ProbeEvery, 0), DefaultProbeEvery),
		logger:   cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		known:    newKnown(maxKeys),
		ids:      newIDs(maxKeys),
		debts:    newDebts(maxKeys),
	}
	if t.policy == nil {
		t.policy = func(*weir.Charge) Policy { return Local }
	}
	if t.instances == nil {
		t.instances = func() int { return 1 }
	}
	t.local = memstore.New(memstore.Options{
		MaxBytes: cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes),
		Now:      func() time.Time { return time.UnixMicro(t.now()) }, Logger: o.Logger,
	})
	t.scratch.New = func() any { return new(scratch) }
	t.usual = deadline.NewGroup(t.deadline)
	t.mending.init()
	return t
}

// clock returns a clock in µs since 1970 that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
}

// Take asks the wrapped Taker, unless it is away, and decides by policy what that
// did not.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	if t.ids.used.Load() {
		acts = t.keep(ctx, acts)
	}
	if len(acts) == 0 {
		return
	}
	if away := t.breaker.away.Load(); away != nil {
		for _, a := range acts {
			t.instead(a, away.err)
		}
		return
	}
	t.ask(ctx, acts)
}

// ask asks the wrapped Taker.
func (t *Taker) ask(ctx context.Context, acts []*weir.Act) {
	within, cancel, whole := t.bound(ctx)
	t.next.Take(within, acts)
	cancel()
	failure := error(nil)
	for _, a := range acts {
		if failed(a) {
			failure = a.Err
		} else if a.Err == nil {
			t.learn(a)
		}
	}
	switch {
	case failure == nil:
		t.breaker.succeeded()
		return
	case ctx.Err() != nil:
		// Nobody waits for an answer any more.
		return
	case whole || !late(failure):
		if t.breaker.failed(failure) {
			t.opened()
		}
	}
	for _, a := range acts {
		if failed(a) {
			t.instead(a, a.Err)
		}
	}
}

// The most that is kept of a caller's time for the answer, as a part of it and in
// all.
const (
	spared    = 8
	sparedMax = 2 * time.Millisecond
)

// bound gives a call its deadline, and reports whether it is the usual one.
func (t *Taker) bound(ctx context.Context) (within context.Context, cancel context.CancelFunc, whole bool) {
	left := t.deadline
	if theirs, bounded := ctx.Deadline(); bounded {
		left = time.Until(theirs)
		left -= min(sparedMax, left/spared)
	}
	switch {
	case left < t.deadline:
		within, cancel = context.WithTimeout(ctx, left)
		return within, cancel, false
	case deadline.Fixed(ctx):
		return t.usual.Context(ctx), func() {}, true
	}
	within, cancel = context.WithTimeout(ctx, t.deadline)
	return within, cancel, true
}

// failed reports whether the store reached no decision.
func failed(a *weir.Act) bool { return a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) }

// late reports whether an error may be due to a deadline.
func late(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// counts are what Stats tells.
type counts struct {
	local, allowed, denied, errors           atomic.Int64
	openings, chargedBack, doubtful, adopted atomic.Int64
}

// Stats is what a [Taker] has done since it was made.
type Stats struct {
	// Local, Allowed, Denied and Errors are how many acts were decided by each
	// policy.
	Local, Allowed, Denied, Errors int64
	// Openings is how often the store went away.
	Openings int64
	// ChargedBack is how many units the store was told of.
	ChargedBack int64
	// Doubtful is how many units it may not have heard of, because its answer
	// was lost or MaxKeys reached.
	Doubtful int64
	// Adopted is how many holders of places the store took over that had come in here.
	Adopted int64
	// Owed is how many keys were asked for here since it was last told, or is being
	// told of.
	Owed int
}

// Stats returns the counts.
func (t *Taker) Stats() Stats {
	c := &t.counts
	return Stats{
		Local: c.local.Load(), Allowed: c.allowed.Load(), Denied: c.denied.Load(), Errors: c.errors.Load(),
		Openings: c.openings.Load(), ChargedBack: c.chargedBack.Load(), Doubtful: c.doubtful.Load(), Adopted: c.adopted.Load(),
		Owed: t.debts.len(),
	}
}

// Err says since when and why the store is left alone; nil if it is not.
func (t *Taker) Err() error {
	if away := t.breaker.away.Load(); away != nil {
		return away.err
	}
	return nil
}
