// Package fallback answers for a store that reaches no decision. Each charge names a
// policy: grant from this instance's local share, grant everything, refuse everything, or
// return the store's error.
//
// A call waits as long as its context lasts, at most [Options.Patience]. Answers that
// callers got without the store are recorded there afterwards: the difference to the
// store's own answer if its reply comes late, or all of the answer if the store was never
// called.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/memstore"
)

// Defaults of the fields of [Options] that are zero.
const (
	DefaultPatience = 250 * time.Millisecond
	DefaultMaxKeys  = 1 << 17
	DefaultMaxBytes = 64 << 20
)

// RetryAfter is the wait in refusals that cannot know when there will be room: by then the
// store may be reachable.
const RetryAfter = time.Second

// Policy says how a charge is answered that the store did not decide.
type Policy uint8

// The policies, named as in rules files.
const (
	Local Policy = iota // grant this instance's local share of the limit
	Allow               // grant everything
	Deny                // refuse everything but peeks
	Error               // return the store's error
)

// Options configure a [Layer]. The zero value is good for a store that one instance uses.
type Options struct {
	// Policy returns the policy of a charge. It is called for every charge, from many
	// goroutines. Nil: [Local] for all.
	Policy func(*weir.Charge) Policy
	// Patience is how long a call waits for the store, or up to a sixteenth less: calls
	// that begin together end together. A call whose context ends sooner keeps a little
	// of that time for the answer. Zero: [DefaultPatience].
	Patience time.Duration
	// Instances returns how many instances share the limits: a local share is a limit
	// divided by it, at least 1. It is called for every charge decided locally. Nil: 1.
	Instances func() int
	// Reconciled is called with each charge whose state in the store was changed to agree
	// with earlier answers, so that caches can forget it. Nil: not called.
	Reconciled func(*weir.Charge)
	// MaxKeys bounds the keys whose last known state is remembered and, separately, the
	// keys, IDs and refunds that are outstanding. Beyond it, limits still hold by whole
	// local shares, but nothing is reconciled. A key takes 48 bytes, about 300 while
	// charges of it are outstanding. Zero: [DefaultMaxKeys].
	MaxKeys int
	// MaxBytes bounds the memory of local decisions, see [memstore.Options]. Zero:
	// [DefaultMaxBytes].
	MaxBytes int64
	// Logger receives a line when everything is reconciled after an outage. Nil: none.
	Logger *slog.Logger
	// Now is the clock of local decisions. Nil: the monotonic clock.
	Now func() time.Time
}

// A Layer asks the next Taker and answers for it where it reached no decision. It is safe
// for concurrent use. Create it with Wrap; it works in the background only while charges
// are outstanding, and Stop waits for that.
//
// A decision by policy has the source [acts.SourceFallback], [acts.SourceFailOpen] or
// [acts.SourceFailClosed]. Errors of the class [weir.ErrInvalid] are answers and pass
// through.
//
// The policies of all charges decide an act: if any is Error, it is an error; else if any
// is Deny, it is refused; else the Local ones decide. A refund or a record without an ID is
// decided locally if all its charges are Local.
//
// An act with an ID gets the store's answer, or an error: repeat it. Only while its node is
// unreachable are takes with an ID decided by policy. A grant binds: the ID is answered here,
// with everything that is done to it, until the store has amended it. Other IDs cannot be
// settled, released, renewed or refunded while the store is unreachable, and nothing can be
// reset.
//
// A local share begins with the last known state: the units that were left when the store
// last replied, less those that waiting callers ask for, divided by the instances. So in
// any interval, an algorithm grants at most its bound and, for each of K instances, the
// smallest of the units that the instance granted by policy and ⌈R/K⌉ + ⌈r·D/K⌉ + 1,
// where R is the number of units that it last knew to remain, r the rate of the limit and
// D the length of the outage. With one instance that loses no reply, that is nothing.
//
// The guarantees of [weir.Shares] hold on each instance, see [weir.Shares.Divide], within
// the rest of its local share.
//
// Once the store replies, the Layer reconciles the difference: it charges units that were
// granted here and not there, even if they do not fit, and refunds units that were granted
// there and not here. A charge is never made twice: without an ID, a charge whose reply is
// lost counts as made.
type Layer struct {
	Options
	next      weir.Taker
	remote    remote          // nil: calls in flight are not known
	known     known           // next, if it says when a call is known to remote; nil: it does not
	deadlines *deadline.Group // of calls that end after Patience
	now       func() int64    // µs

	lastKnown   *lastKnown
	localShares localShares
	local       *memstore.Store // decides under the local shares
	scratch     sync.Pool       // of *localPart
	outstanding *outstanding
	refunds     refunds
	ids         *ids
	deciding    deciding
	boarding    boarding
	grants      grants
	awaited     awaited
	reconciler  *reconciler
	counts      counts
}

// A remote Taker knows its calls in flight and which nodes are unreachable.
type remote interface {
	// Left returns how many of the units that are left of a key remain if the store grants
	// the callers that wait for it. It calls left after it has looked at them.
	Left(key string, algorithm weir.Algorithm, left func() int64) int64
	// OnReply has f called with acts that the store has decided before Left leaves them out.
	OnReply(f func([]*weir.Act))
	// Reachable reports whether the store would be asked for an act.
	Reachable(act *weir.Act) bool
	// Unreachable answers the acts that the store would not be asked for, and returns the
	// others.
	Unreachable(acts []*weir.Act) (others []*weir.Act)
}

// known is the remote Taker itself, if no layer is in between.
type known interface {
	// TakeKnown sends all acts to the store. It notifies r once, when Left knows of them
	// or they will certainly not be sent.
	TakeKnown(ctx context.Context, acts []*weir.Act, r interface{ Registered(number uint64) }, number uint64)
}

// Wrap returns a Layer that asks next, which has to return when its context ends. It
// starts nothing.
func Wrap(next weir.Taker, o Options) *Layer {
	o.Patience = cmp.Or(max(o.Patience, 0), DefaultPatience)
	o.MaxKeys = cmp.Or(max(o.MaxKeys, 0), DefaultMaxKeys)
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Policy == nil {
		o.Policy = func(*weir.Charge) Policy { return Local }
	}
	if o.Instances == nil {
		o.Instances = func() int { return 1 }
	}
	if o.Reconciled == nil {
		o.Reconciled = func(*weir.Charge) {}
	}
	l := &Layer{
		Options: o, next: next, deadlines: deadline.NewPatience(o.Patience), now: clock(o.Now),
		lastKnown:   newLastKnown(o.MaxKeys),
		ids:         newIDs(o.MaxKeys),
		outstanding: newOutstanding(o.MaxKeys),
		refunds:     refunds{most: o.MaxKeys},
		reconciler:  newReconciler(),
		grants:      grants{seed: maphash.MakeSeed()},
	}
	if l.remote, _ = weir.As[remote](next); l.remote != nil {
		l.remote.OnReply(l.learn)
		l.known, _ = next.(known)
	}
	l.local = memstore.New(memstore.Options{
		MaxBytes: o.MaxBytes, Now: func() time.Time { return time.UnixMicro(l.now()) }, Logger: o.Logger,
	})
	l.scratch.New = func() any { return new(localPart) }
	return l
}

// Unwrap returns the next Taker.
func (l *Layer) Unwrap() weir.Taker { return l.next }

// clock returns a clock in µs since 1970 that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
}

// Take asks the next Taker and decides by policy the acts that it did not decide.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	deadline.Yield(ctx)
	bounded, cancel := l.bound(ctx)
	defer cancel()
	if l.ids.len() > 0 {
		acts = l.answerKnownIDs(acts)
	}
	if len(acts) == 0 {
		return
	}
	sent := l.ask(bounded, acts)
	if again := l.answer(ctx, acts, sent, true); len(again) > 0 {
		sent = l.ask(bounded, again)
		l.answer(ctx, again, sent, false)
	}
}

// ask has the store decide acts, after the outstanding charges and amendments of their keys.
// It returns the number of the last local grant when they were sent.
func (l *Layer) ask(ctx context.Context, acts []*weir.Act) (sent int64) {
	if l.remote != nil {
		acts = l.remote.Unreachable(acts)
	}
	if len(acts) == 0 {
		return 0
	}
	keys := l.outstanding.shardsOf(acts)
	first, boards := l.board(ctx, acts, keys)
	sent = l.grants.number.Load()
	switch {
	case !boards:
		for _, a := range acts {
			a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, ctx.Err())
		}
		return sent
	case first == nil:
		l.send(ctx, acts, keys)
		return sent
	}
	returned := false
	defer func() {
		if !returned {
			for _, a := range first.and(nil) {
				a.Err = errPanicked
			}
		}
		// Run both, even if the first one fails: their claims end with it.
		if err := errors.Join(l.recorded(first.records), l.amended(first.amendments)); err != nil {
			l.wake()
		}
	}()
	l.send(ctx, first.and(acts), keys)
	returned = true
	return sent
}

// send asks the next Taker for acts whose call is boarding.
func (l *Layer) send(ctx context.Context, acts []*weir.Act, keys shards) {
	if l.known == nil {
		l.boarding.end(keys)
		l.next.Take(ctx, acts)
		return
	}
	l.known.TakeKnown(ctx, acts, &l.boarding, uint64(keys))
}

// answer decides by policy the acts that the store did not. It returns the acts that were
// not sent because of an outage that has ended, if they may be sent now.
func (l *Layer) answer(ctx context.Context, all []*weir.Act, sent int64, mayAsk bool) (again []*weir.Act) {
	for _, a := range all {
		switch {
		case !undecided(a):
			if l.remote == nil { // else it was learned when the reply came
				l.learn([]*weir.Act{a})
			}
		case callerLeft(ctx):
			// An answer would not be read.
			l.counts.left.Add(1)
			if ourTake(a) {
				l.reconcileWith(a, a.Err)
			}
		case !l.decide(a, sent, mayAsk):
			again = append(again, a)
		}
	}
	return again
}

// decide decides an act by policy, unless its reply has just arrived and nothing was
// granted locally since it was sent: the store's reply does not know of units that were
// granted locally. It returns false if the store can be called again.
func (l *Layer) decide(a *weir.Act, sent int64, mayAsk bool) bool {
	keys := l.outstanding.shardsOfAct(a)
	l.deciding.begin(keys)
	defer l.deciding.end(keys)
	var out *outage.Error
	if mayAsk && l.remote != nil && errors.As(a.Err, &out) && errors.Is(a.Err, weir.ErrNotApplied) && l.remote.Reachable(a) {
		a.Err = nil
		return false
	}
	var late weir.Pending
	if errors.As(a.Err, &late) && !l.grants.since(a, sent) && arrived(a, late) && !undecided(a) {
		l.learn([]*weir.Act{a})
		return true
	}
	l.counts.reason(a.Err)
	l.decideByPolicy(a, a.Err)
	l.grants.note(a)
	return true
}

// arrived reports whether the late reply to an act has come by now, and copies it to the act.
func arrived(a *weir.Act, late weir.Pending) bool {
	var came atomic.Pointer[weir.Act]
	late.Then(func(reply *weir.Act) { came.Store(copyOf(reply)) })
	reply := came.Load()
	if reply == nil {
		return false
	}
	a.Err = reply.Err
	copy(a.Decisions, reply.Decisions)
	return true
}

// bound returns the context of a call to the store: it ends a little before the caller's,
// or after our patience. A caller that announced when it leaves is waited for until then.
func (l *Layer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if theirs, bounded := ctx.Deadline(); bounded {
		if _, announced := deadline.Leaves(ctx); announced {
			return ctx, func() {}
		}
		if left := deadline.Within(time.Until(theirs)); left < l.Patience {
			return context.WithTimeout(ctx, left)
		}
	}
	return l.deadlines.Bound(ctx), func() {}
}

// callerLeft reports whether the caller has stopped waiting.
func callerLeft(ctx context.Context) bool {
	if when, announced := deadline.Leaves(ctx); announced {
		return time.Now().After(when)
	}
	return ctx.Err() != nil
}

// undecided reports whether the store reached no decision.
func undecided(a *weir.Act) bool { return a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) }
