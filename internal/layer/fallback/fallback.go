// Package fallback answers while a store does not. It wraps any [weir.Taker]: what the
// store did not decide in time is decided by a policy for each limit: grant this
// instance's share, let everything pass, refuse everything, or return the error.
//
// A caller waits as long as its context lasts, or as long as [Options.Patience]. The
// store learns of the answers that callers got without it: of the difference to its own
// if its reply comes late, and of the whole if it was never asked.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/memstore"
)

// What the fields of [Options] are if they are zero.
const (
	// DefaultPatience is how long a call waits whose caller names no end.
	DefaultPatience = 250 * time.Millisecond
	// DefaultMaxKeys is for how many keys memory is kept.
	DefaultMaxKeys = 1 << 17
	// DefaultMaxBytes bounds the memory of what is decided here.
	DefaultMaxBytes = 64 << 20
)

// RetryAfter is what a refusal says where nobody knows when there will be room:
// by then the store may be reachable.
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
	// Error returns the error of the store.
	Error
)

// Options are the settings of a [Taker]. The zero value is a good one for a store
// that one instance uses.
type Options struct {
	// Patience is how long a call waits for the store, or up to a sixteenth less: calls
	// that begin together end together. A call whose context ends sooner leaves a
	// little of that for the answer. Zero: [DefaultPatience].
	Patience time.Duration
	// Policy says how a charge is answered that the store did not decide. It
	// is called for every charge, from many goroutines. Nil: [Local] for all.
	Policy func(*weir.Charge) Policy
	// Instances is how many instances share the limits: a share is a limit
	// divided by it, at least 1. It is called for every charge that is decided
	// here. Nil: 1.
	Instances func() int
	// Settled is called with the charges whose state in the store a settlement has
	// changed, so that what was remembered of them can be forgotten. Nil: nobody is told.
	Settled func(*weir.Charge)
	// MaxKeys bounds for how many keys the last known state is remembered, and, apart
	// from them, what is to be settled: units of keys, ids, and units to give back.
	// Beyond it limits hold all the same, by whole shares, but nothing is settled. A key
	// takes 40 bytes, or about 300 while it is to be settled. Zero: [DefaultMaxKeys].
	MaxKeys int
	// MaxBytes bounds the memory of what is decided here, see
	// [memstore.Options]. Zero: [DefaultMaxBytes].
	MaxBytes int64
	// Now is the clock of what is decided here. Nil: the machine's, whose steps
	// do not count.
	Now func() time.Time
	// Logger receives a line when everything is settled after an outage. Nil: none.
	Logger *slog.Logger
}

// A Taker asks another one, and answers for it where it reached no decision. It is safe
// for concurrent use. Create it with Wrap; it works in the background only while there
// is something to settle, and Stop waits for that.
//
// A decision that a policy made has the source [weir.SourceFallback],
// [weir.SourceFailOpen] or [weir.SourceFailClosed]. Errors of the class
// [weir.ErrInvalid] are answers, and pass through.
//
// An act is decided by the policies of all its charges: if any is Error, it is an
// error; else if any is Deny, it is refused; else the Local ones decide. A refund
// or a record without an id is done here if all its charges are Local. A take with an
// id that was decided here stays here, with everything that is done to it, until the
// store has recorded it; other ids cannot be settled, released, renewed or refunded while
// the store is unreachable, and nothing can be reset.
//
// A Local share begins with the last known state: the units that were left when the store
// last replied, less those that waiting callers ask for, divided by the instances. So in any interval, an algorithm
// grants at most its bound and, for each of K instances, the smallest of what that
// instance granted by policy and ⌈R/K⌉ + ⌈r·D/K⌉ + 1, where R is what it last knew to be
// left, r the rate of the limit and D the length of the outage. With one instance that
// loses no reply, that is nothing.
//
// Once the store replies, the Taker settles the difference: it charges units that were
// granted here and not there, even if they do not fit, and gives back units that were
// granted there and not here. A charge without an id whose reply is lost counts as not
// made, so that it may be recorded twice; with an id it never is.
type Taker struct {
	next      weir.Taker
	flight    inFlight  // nil: nobody knows what is in flight
	reachable reachable // nil: that is not known
	policy    func(*weir.Charge) Policy
	patience  time.Duration
	usual     *deadline.Group // of calls that end after it
	instances func() int
	changed   func(*weir.Charge)
	logger    *slog.Logger

	known     *known
	local     *memstore.Store
	now       func() int64 // µs
	shares    shares
	ids       *ids
	debts     *debts
	returns   returns
	following following
	deciding  deciding
	counts    counts
	scratch   sync.Pool
	mending   mending
}

// An inFlight is a Taker that knows what it was asked and has not answered.
type inFlight interface {
	// InFlight returns how many units of a key callers wait for.
	InFlight(key string, algorithm weir.Algorithm) int64
}

// Wrap returns a Taker that asks next, which has to return when its context ends.
// It starts nothing.
func Wrap(next weir.Taker, o Options) *Taker {
	maxKeys := cmp.Or(max(o.MaxKeys, 0), DefaultMaxKeys)
	t := &Taker{
		next: next, policy: o.Policy, instances: o.Instances, changed: o.Settled, now: clock(o.Now),
		patience: cmp.Or(max(o.Patience, 0), DefaultPatience),
		logger:   cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		known:    newKnown(maxKeys),
		ids:      newIDs(maxKeys),
		debts:    newDebts(maxKeys),
		returns:  returns{most: maxKeys},
	}
	if t.policy == nil {
		t.policy = func(*weir.Charge) Policy { return Local }
	}
	if t.instances == nil {
		t.instances = func() int { return 1 }
	}
	if t.changed == nil {
		t.changed = func(*weir.Charge) {}
	}
	t.flight, _ = weir.As[inFlight](next)
	t.reachable, _ = weir.As[reachable](next)
	t.local = memstore.New(memstore.Options{
		MaxBytes: cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes),
		Now:      func() time.Time { return time.UnixMicro(t.now()) }, Logger: o.Logger,
	})
	t.scratch.New = func() any { return new(scratch) }
	t.usual = deadline.NewPatience(t.patience)
	t.mending.init()
	return t
}

// Unwrap returns the Taker that t asks.
func (t *Taker) Unwrap() weir.Taker { return t.next }

// clock returns a clock in µs since 1970 that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
}

// Take asks the wrapped Taker and decides by policy what that did not.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	within, cancel := t.bound(ctx)
	defer cancel()
	if t.ids.used.Load() {
		acts = t.keep(within, acts)
	}
	if len(acts) == 0 {
		return
	}
	t.ask(within, acts)
	if again := t.answer(ctx, acts, true); len(again) > 0 {
		t.ask(within, again)
		t.answer(ctx, again, false)
	}
}

// answer decides by policy what the store did not. It returns the acts that were not sent
// because of an outage which is over, if they may be asked for again.
func (t *Taker) answer(ctx context.Context, acts []*weir.Act, mayAsk bool) (again []*weir.Act) {
	for _, a := range acts {
		switch {
		case !failed(a):
			if a.Err == nil {
				t.learn(a)
			}
		case gone(ctx):
			// Nobody reads an answer any more.
			t.counts.left.Add(1)
			t.abandoned(a)
		case !t.decide(a, mayAsk):
			again = append(again, a)
		}
	}
	return again
}

// decide decides an act by policy, and reports whether it did: not if the store can be
// asked again.
func (t *Taker) decide(a *weir.Act, mayAsk bool) bool {
	defer t.deciding.end(t.deciding.begin(a, t.debts))
	var out *outage.Error
	if mayAsk && t.reachable != nil && errors.As(a.Err, &out) && errors.Is(a.Err, weir.ErrNotApplied) && t.reachable.Reachable(a) {
		a.Err = nil
		return false
	}
	var late weir.Pending
	if errors.As(a.Err, &late) && landed(a, late) && !failed(a) {
		t.learn(a)
		return true
	}
	t.counts.reason(a.Err)
	t.instead(a, a.Err)
	return true
}

// landed reports whether the late reply to an act has come by now, and hands its answers
// over.
func landed(a *weir.Act, late weir.Pending) bool {
	const waiting, come, left = 0, 1, 2
	var state atomic.Int32
	var reply *weir.Act
	late.Then(func(r *weir.Act) {
		reply = copyOf(r)
		state.CompareAndSwap(waiting, come)
	})
	if state.CompareAndSwap(waiting, left) {
		return false
	}
	a.Err = reply.Err
	copy(a.Decisions, reply.Decisions)
	return true
}

// ask has the store decide acts, after the debts and amendments of their keys.
func (t *Taker) ask(ctx context.Context, acts []*weir.Act) {
	first := t.ahead(ctx, acts)
	if first == nil {
		t.next.Take(ctx, acts)
		return
	}
	returned := false
	defer func() {
		if !returned {
			t.release(first)
		}
	}()
	t.next.Take(ctx, first.before(acts))
	returned = true
	if t.recorded(first.records) != nil || t.amended(first.amends) != nil {
		t.wake()
	}
}

// gone reports whether the caller has left.
func gone(ctx context.Context) bool {
	if when, said := deadline.Leaves(ctx); said {
		return time.Now().After(when)
	}
	return ctx.Err() != nil
}

// bound gives a call its end: the caller's less a reserve, or that of our patience. A
// caller who says with its request when it leaves is waited for as long as it waits.
func (t *Taker) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if theirs, bounded := ctx.Deadline(); bounded {
		if _, said := deadline.Leaves(ctx); said {
			return ctx, func() {}
		}
		if left := deadline.Within(time.Until(theirs)); left < t.patience {
			return context.WithTimeout(ctx, left)
		}
	}
	if deadline.Fixed(ctx) {
		return t.usual.Context(ctx), func() {}
	}
	return deadline.WithPatience(ctx, t.patience)
}

// failed reports whether the store reached no decision.
func failed(a *weir.Act) bool { return a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) }

// counts are the figures of Stats.
type counts struct {
	local, allowed, denied, errors       atomic.Int64
	deadline, silence, refusal, left     atomic.Int64
	late, settled, refunded, overgranted atomic.Int64
	chargedBack, doubtful                atomic.Int64
}

// reason counts why a call was not decided by the store.
func (c *counts) reason(err error) {
	var out *outage.Error
	switch {
	case errors.As(err, &out) && out.Silent():
		c.silence.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		c.deadline.Add(1)
	default:
		c.refusal.Add(1)
	}
}

// Stats is what a [Taker] has done since it was made.
type Stats struct {
	// Local, Allowed, Denied and Errors are how many acts were decided by each
	// policy.
	Local, Allowed, Denied, Errors int64
	// Deadline, Silence and Refusal are why: because the call's time had passed, because
	// the store was silent, or because it said that it cannot decide or broke the
	// connection.
	Deadline, Silence, Refusal int64
	// Left is how many acts had no decision when their callers had left.
	Left int64
	// Late is how many of these acts the store replied to afterwards, and Settled how
	// many of those needed nothing more, or were amended.
	Late, Settled int64
	// Refunded is how many units were given back that the store had charged and the
	// caller had not been granted.
	Refunded int64
	// Overgranted is how many units were granted here that the store refused.
	Overgranted int64
	// ChargedBack is how many units were recorded in the store that were granted here.
	ChargedBack int64
	// Doubtful is how many units the store may have charged twice or not at all, because
	// a reply was lost or MaxKeys reached.
	Doubtful int64
	// Owed is how many keys, ids and refunds are to be settled.
	Owed int
}

// Stats returns the counts.
func (t *Taker) Stats() Stats {
	c := &t.counts
	return Stats{
		Local: c.local.Load(), Allowed: c.allowed.Load(), Denied: c.denied.Load(), Errors: c.errors.Load(),
		Deadline: c.deadline.Load(), Silence: c.silence.Load(), Refusal: c.refusal.Load(), Left: c.left.Load(),
		Late: c.late.Load(), Settled: c.settled.Load(), Refunded: c.refunded.Load(), Overgranted: c.overgranted.Load(),
		ChargedBack: c.chargedBack.Load(), Doubtful: c.doubtful.Load(), Owed: t.owed(),
	}
}

// owed is how much there is to settle.
func (t *Taker) owed() int { return t.debts.len() + t.ids.toAmend() + t.returns.len() }
