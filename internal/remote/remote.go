// Package remote answers for a store that may be late or lost, and has the store agree with the
// answers afterwards. Package calls sends acts to the store's nodes and judges which of them are
// reachable.
//
// Who decides an act is a state of its node:
//
//	          silence that a probe confirms,
//	          or five failures in a row
//	STORE ───────────────────────────────────► HERE
//	the node decides;                          local shares decide, and IDs that
//	nothing is owed                            were granted here; the ledger owes
//	  ▲                                          │
//	  │ key by key: what is                      │ the first reply, to a probe
//	  │ owed about it is acknowledged            │ or to a late call
//	  │                                          ▼
//	  └─────────────────────────────────────── CLOSING
//	                  the node decides; an act about a key or ID in
//	                  the ledger first pays what is owed about it
//
// Three sentences hold in all phases. Every unit and slot that a caller was granted is charged in the
// store, in a ledger, or in flight, and nothing else is. Nothing is asked about a key
// while units are owed about it, nor about an ID while an amendment or an end is. A take whose
// caller got an error is withdrawn. Each node has a ledger of its own, so that debts to one keep no key of
// another waiting.
//
// A caller waits as long as its context lasts, at most [Options.Patience]. The call goes on
// without it, and [acts.Pending] delivers the late reply. Each charge names a policy for what the
// store does not decide: grant from this instance's local share, grant everything, refuse
// everything, or return the store's error.
package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/yield"
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
	Calls calls.Options
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
// An act with an ID gets the store's answer, or an error: repeat it. A take whose caller got an
// error, or has left, is withdrawn by its number until the store has acknowledged that, and holds
// nothing unless another call for it was answered. Only while its
// node is unreachable are takes with an ID decided by policy. A grant binds: the ID is answered
// here, with everything that is done to it, until that is recorded in the store. Other IDs cannot
// be renewed while the store is unreachable, and nothing can be reset.
//
// An act that ends a charge is delivered: a release, settlement or refund with an ID that the
// store did not decide is kept, one for each ID, and repeated until the store has acknowledged
// it. Its error is an [acts.KeptError]. If the store does not know the ID, it remembers the end for
// a take that another instance has yet to record. A refund without an ID is sent at most once.
//
// A local share begins with the last known state: the units that were left when the store
// last replied, less those that are not recorded, divided by the instances. So in any
// interval, an algorithm grants at most its bound and, for each of K instances, the smallest of
// the units that the instance granted by policy and ⌈R/K⌉ + ⌈r·D/K⌉ + 1 + F, where R is the
// number of units that it last knew to remain, r the rate of the limit, D the length of the
// outage and F what it had in flight at a time and answered without the reply. With one instance
// that is F.
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
	calls     *calls.Lanes
	deadlines *deadline.Group // of calls that end after Patience
	now       func() int64    // µs

	lastKnown   *lastKnown
	localShares localShares
	local       *memengine.Store // decides under the local shares
	scratch     sync.Pool        // of *localPart
	ledgers     *ledgers
	background  *background
	counts      counts
}

// New returns a Remote that asks a store, which has to return when its context ends. It
// starts nothing.
func New(store calls.Store, o Options) *Remote {
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
	r := &Remote{
		Options: o, deadlines: deadline.NewPatience(o.Patience), now: clock(o.Now),
		lastKnown:  newLastKnown(o.MaxKeys),
		ledgers:    newLedgers(o.MaxKeys),
		background: newBackground(),
	}
	o.Calls.OnReply = r.learn
	o.Calls.Logger = cmp.Or(o.Calls.Logger, o.Logger)
	r.calls = calls.New(store, o.Calls)
	r.local = memengine.New(memengine.Options{
		MaxBytes: maxLocalBytes, Now: func() time.Time { return time.UnixMicro(r.now()) }, Logger: o.Logger,
	})
	r.scratch.New = func() any { return new(localPart) }
	return r
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
func (r *Remote) Take(ctx context.Context, acts []*weir.Act) {
	yield.Before(ctx)
	bounded, cancel := r.bound(ctx)
	defer cancel()
	defer unnumber(number(acts))
	for mayAsk := true; len(acts) > 0; mayAsk = false {
		r.ask(bounded, acts)
		acts = r.undecided(ctx, bounded, acts, mayAsk && bounded.Err() == nil)
	}
}

// undecided decides by policy the acts that the store did not, but for those that were not sent
// and may be sent once more.
func (r *Remote) undecided(ctx, bounded context.Context, all []*weir.Act, mayAsk bool) (again []*weir.Act) {
	for _, a := range all {
		if !undecided(a) {
			continue // it was learned when the reply came
		}
		left := callerLeft(ctx)
		if left {
			r.counts.left.Add(1) // an answer would not be read
		}
		if !r.decide(a, left, mayAsk) {
			again = append(again, a)
		}
	}
	return again
}

// number gives each take with an ID a number of its own, by which it can be withdrawn, and returns
// these takes.
func number(all []*weir.Act) (numbered []*weir.Act) {
	for _, a := range all {
		if takesID(a) && a.Attempt == 0 {
			a.Attempt = rand.Uint64() | 1
			numbered = append(numbered, a)
		}
	}
	return numbered
}

// unnumber takes the numbers back: the acts are their caller's, who may send them again.
func unnumber(numbered []*weir.Act) {
	for _, a := range numbered {
		a.Attempt = 0
	}
}

// bound returns the context of a call to the store: it ends a little before the caller's,
// or after our patience. A caller that announced when it leaves is waited for until then.
func (r *Remote) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if theirs, bounded := ctx.Deadline(); bounded {
		if _, announced := deadline.Leaves(ctx); announced {
			return ctx, func() {}
		}
		if left := deadline.Within(time.Until(theirs)); left < r.Patience {
			return context.WithTimeout(ctx, left)
		}
	}
	return r.deadlines.Bound(ctx), func() {}
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
