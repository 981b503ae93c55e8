// Package remote is the room for a store that may be late or lost. It sends the acts of many
// callers to the store in few calls, judges which of its nodes are reachable, answers for the
// store where it reached no decision, and makes the store agree afterwards.
//
// Acts that wait for the store are sent in one call, a batch. Each is decided separately,
// in the order of arrival. If a caller finds its lane idle, its acts are sent at once.
// Callers that arrive while a call is in flight wait for it to return. No timer gathers
// them, so batches grow only with the load. A batch is sent when the callers of the
// previous one have run again, so that it includes their next acts.
//
// A caller waits as long as its context lasts, at most [Options.Patience]. The call goes on
// without it: its acts are copies, and [acts.Pending] delivers the late reply.
//
// Each charge names a policy for what the store does not decide: grant from this instance's
// local share, grant everything, refuse everything, or return the store's error. Answers that
// callers got without the store are recorded there afterwards: the difference to the store's
// own answer if its reply comes late, or all of the answer if the store was never called.
package remote

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/outage"
)

// Defaults of the fields of [Options] that are zero.
const (
	DefaultPatience = 250 * time.Millisecond
	DefaultMaxKeys  = 1 << 17
)

// maxLocalBytes bounds the memory of local decisions.
const maxLocalBytes = 64 << 20

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

// Options configure a [Remote]. The zero value is good for a store that one instance uses.
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
	// Calls are the settings of the calls of the store.
	Calls CallOptions
	// MaxKeys bounds the keys whose last known state is remembered and, separately, the
	// keys, IDs and refunds that are outstanding. Beyond it, limits still hold by whole
	// local shares, but nothing is reconciled. A key takes 48 bytes, about 300 while
	// charges of it are outstanding. Zero: [DefaultMaxKeys].
	MaxKeys int
	// Logger receives a line when everything is reconciled after an outage. Nil: none.
	Logger *slog.Logger
	// Now is the clock of local decisions. Nil: the monotonic clock.
	Now func() time.Time
}

// A Remote asks a store and answers for it where it reached no decision. It is safe
// for concurrent use. Create it with New; it works in the background only while charges
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
// renewed while the store is unreachable, and nothing can be reset.
//
// An act that ends a charge is delivered: a release, settlement or refund with an ID that the
// store did not decide is kept, one for each ID, and repeated until the store has acknowledged
// it. Its error is an [acts.KeptError]. A refund without an ID is sent at most once.
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
// Once the store replies, the Remote reconciles the difference: it charges units that were
// granted here and not there, even if they do not fit, and refunds units that were granted
// there and not here. A charge is never made twice: without an ID, a charge whose reply is
// lost counts as made.
type Remote struct {
	Options
	calls     *Calls
	deadlines *deadline.Group // of calls that end after Patience
	now       func() int64    // µs

	lastKnown   *lastKnown
	localShares localShares
	local       *memstore.Store // decides under the local shares
	scratch     sync.Pool       // of *localPart
	outstanding *outstanding
	refunds     refunds
	ids         *ids
	deliveries  deliveries
	deciding    deciding
	boarding    boarding
	grants      grants
	awaited     awaited
	reconciler  *reconciler
	counts      counts
}

// New returns a Remote that asks a store, which has to return when its context ends. It
// starts nothing.
func New(store Store, o Options) *Remote {
	o.Patience = cmp.Or(max(o.Patience, 0), DefaultPatience)
	o.MaxKeys = cmp.Or(max(o.MaxKeys, 0), DefaultMaxKeys)
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
	l := &Remote{
		Options: o, deadlines: deadline.NewPatience(o.Patience), now: clock(o.Now),
		lastKnown:   newLastKnown(o.MaxKeys),
		ids:         newIDs(o.MaxKeys),
		outstanding: newOutstanding(o.MaxKeys),
		refunds:     refunds{most: o.MaxKeys},
		deliveries:  deliveries{most: o.MaxKeys, all: map[idName]*delivery{}},
		reconciler:  newReconciler(),
		grants:      grants{seed: maphash.MakeSeed()},
	}
	o.Calls.Logger = cmp.Or(o.Calls.Logger, o.Logger)
	l.calls = NewCalls(store, o.Calls)
	l.calls.onReply = l.learn
	l.local = memstore.New(memstore.Options{
		MaxBytes: maxLocalBytes, Now: func() time.Time { return time.UnixMicro(l.now()) }, Logger: o.Logger,
	})
	l.scratch.New = func() any { return new(localPart) }
	return l
}

// clock returns a clock in µs since 1970 that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
}

// Take asks the store and decides by policy the acts that it did not decide.
func (l *Remote) Take(ctx context.Context, acts []*weir.Act) {
	deadline.Yield(ctx)
	bounded, cancel := l.bound(ctx)
	defer cancel()
	if l.ids.len() > 0 {
		acts = l.answerKnownIDs(acts)
	}
	if l.deliveries.len() > 0 {
		acts = l.behindDeliveries(bounded, acts)
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
func (l *Remote) ask(ctx context.Context, acts []*weir.Act) (sent int64) {
	acts = l.calls.Unreachable(acts)
	if len(acts) == 0 {
		return 0
	}
	keys := l.outstanding.shardsOf(acts)
	first, boards := l.board(ctx, acts, keys)
	sent = l.grants.number.Load()
	switch {
	case !boards:
		fail(acts, weir.ErrNotApplied, ctx.Err())
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

// send asks the store for acts whose call is boarding.
func (l *Remote) send(ctx context.Context, acts []*weir.Act, keys shards) {
	l.calls.TakeKnown(ctx, acts, &l.boarding, uint64(keys))
}

// answer decides by policy the acts that the store did not. It returns the acts that were
// not sent because of an outage that has ended, if they may be sent now.
func (l *Remote) answer(ctx context.Context, all []*weir.Act, sent int64, mayAsk bool) (again []*weir.Act) {
	for _, a := range all {
		switch {
		case !undecided(a): // it was learned when the reply came
		case callerLeft(ctx):
			// An answer would not be read.
			l.counts.left.Add(1)
			if endsTake(a) {
				l.end(a, a.Err)
			} else if ourTake(a) {
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
func (l *Remote) decide(a *weir.Act, sent int64, mayAsk bool) bool {
	keys := l.outstanding.shardsOfAct(a)
	l.deciding.begin(keys)
	defer l.deciding.end(keys)
	var out *outage.Error
	if mayAsk && errors.As(a.Err, &out) && errors.Is(a.Err, weir.ErrNotApplied) && l.calls.Reachable(a) {
		a.Err = nil
		return false
	}
	var late acts.Pending
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
func arrived(a *weir.Act, late acts.Pending) bool {
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
func (l *Remote) bound(ctx context.Context) (context.Context, context.CancelFunc) {
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

// callerLeft reports whether the caller has stopped waiting. One whose context has just timed
// out still takes an answer, unless it announced when it leaves.
func callerLeft(ctx context.Context) bool {
	if when, announced := deadline.Leaves(ctx); announced {
		return time.Now().After(when)
	}
	return errors.Is(ctx.Err(), context.Canceled)
}

// undecided reports whether the store reached no decision.
func undecided(a *weir.Act) bool { return a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) }
