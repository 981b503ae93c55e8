// Package stack puts the layers around a store, in the one order in which they work: it
// batches the calls of a store in Redis, remembers refusals, notices outages, reconciles
// late replies, and gives single keys other limits. The server is built on it.
package stack

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
)

// Options are the settings of a [Stack]. The zero value is ready for use, with a store in
// memory and in Redis. Functions are called from many goroutines, some of them for every
// charge.
type Options struct {
	// Logger receives a line when the store becomes unreachable, when it is reachable
	// again, when its charges are reconciled, and when a limit reaches its number of keys.
	// Nil: none.
	Logger *slog.Logger
	// Now is the clock of the layers, for tests. Nil: the machine's.
	Now func() time.Time
	// Background is called with each piece of background work and must run it; it can
	// recover from panics of the store. Nil: the work runs by itself.
	Background func(work func())

	// MaxOverrides bounds the overrides that can be in force. Zero: 10 000.
	MaxOverrides int

	// KeyLimit returns the bound on the tracked keys of a limit, for limits whose keys
	// clients can make up. Nil: no bound.
	KeyLimit func(*weir.Limit) KeyLimit

	// Leased reports whether units of a limit may be charged ahead and spent from memory.
	// It is for limits that are too busy even for batches. It is called once for each
	// limit. Limits of concurrency and leaky_bucket, and those that charge refused requests,
	// are never leased. Nil: none is leased.
	Leased func(*weir.Limit) bool
	// LeaseTime is the time after which unspent leased units are returned. Leases follow
	// demand: a lease is half of the units that its key was charged in this time. Zero:
	// one second.
	LeaseTime time.Duration
	// LeasePart bounds the units leased for one key, as a part of the limit's count, above
	// 0 and at most 1. Zero: 0.1.
	LeasePart float64

	// DenyCacheEntries bounds the refusals that are remembered in front of a store in
	// Redis. A refusal takes about 200 bytes and its key. Zero: 65 536. Negative: none,
	// so every act goes to the store.
	DenyCacheEntries int
	// DenyCacheMaxAge is the longest time for which a refusal is remembered. A refund or
	// reset by another process may go unnoticed for that long. Zero: one second.
	DenyCacheMaxAge time.Duration

	// Timeout is the longest time for which a call waits for the store if its context
	// does not end sooner. Zero: 250 ms.
	Timeout time.Duration
	// Silence is the time after which a node of the store counts as unreachable if it
	// replies to no call. Time in which this process cannot receive replies does not
	// count. Zero: 50 ms.
	Silence time.Duration
	// LateTimeout is the time for which a call of the store continues after its callers
	// have left, so that its late reply can be reconciled with their answers. Zero: 10 s.
	LateTimeout time.Duration
	// OnOutage returns the policy for a charge that a store in Redis did not decide. For
	// example, deny logins and grant a local share of everything else. Nil: [Error] for
	// all charges.
	OnOutage func(*weir.Charge) Policy
	// Instances returns the number of instances that share the limits: under [Local],
	// each grants its part. Nil: 1.
	Instances func() int
}

// A Policy decides a charge that the store did not decide.
type Policy uint8

// The policies.
const (
	Local = Policy(remote.Local) // grant this instance's local share of the limit
	Allow = Policy(remote.Allow) // grant everything
	Deny  = Policy(remote.Deny)  // refuse everything but peeks
	Error = Policy(remote.Error) // return the store's error
)

// A KeyLimit bounds the tracked keys of a limit. Further keys share the key Overflow, and
// so one budget.
type KeyLimit struct {
	// MaxKeys is the largest number of tracked keys, at most 10 000 000. Zero: any
	// number.
	MaxKeys int
	// Overflow is the key under which further keys are charged. Limits with the same
	// Overflow share one set of keys. No client may use it.
	Overflow string
}

// A Stack is a store with its layers. It is safe for concurrent use. Create it with New;
// the caller closes the store, after Stop.
type Stack struct{ layers *stack.Stack }

// New returns a store with its layers. It starts nothing.
func New(store weir.Taker, o Options) *Stack {
	inner := stack.Options{
		Logger: o.Logger, Now: o.Now, Background: o.Background, MaxOverrides: o.MaxOverrides,
		Leased: o.Leased, LeaseTime: o.LeaseTime, LeasePart: o.LeasePart,
		DenyCacheEntries: o.DenyCacheEntries, DenyCacheMaxAge: o.DenyCacheMaxAge,
		Remote: remote.Options{
			Patience: o.Timeout, Instances: o.Instances, Policy: o.policy(),
			Calls: remote.CallOptions{Silence: o.Silence, Timeout: o.LateTimeout},
		},
	}
	if o.KeyLimit != nil {
		inner.KeyLimit = func(l *weir.Limit) keylimit.Budget { return keylimit.Budget(o.KeyLimit(l)) }
	}
	return &Stack{stack.New(store, inner)}
}

func (o *Options) policy() func(*weir.Charge) remote.Policy {
	if o.OnOutage == nil {
		return func(*weir.Charge) remote.Policy { return remote.Error }
	}
	return func(c *weir.Charge) remote.Policy { return remote.Policy(o.OnOutage(c)) }
}

// Take decides the acts.
func (s *Stack) Take(ctx context.Context, acts []*weir.Act) { s.layers.Take(ctx, acts) }

// Start begins to return leased units that are not spent, in the background. A stack
// without leases need not be started.
func (s *Stack) Start() { s.layers.Start() }

// Stop returns all leased units, waits for calls in flight, and records in the store the
// units that were granted without it, and releases and settlements that it has not
// acknowledged, until ctx ends. The error says what the store lacks. Stop may be called again.
func (s *Stack) Stop(ctx context.Context) error { return s.layers.Stop(ctx) }

// Outages returns an error for each node of the store that is unreachable now, with its
// beginning and cause.
func (s *Stack) Outages() []error { return s.layers.Outages() }

// ChangeOverride is how a [weir.Limiter] puts an override in force, or ends it if o is nil. The
// key is that in the store: the name of the limiter, "#" and the limit's name or position if
// there are several, ":", and the limiter's key.
func (s *Stack) ChangeOverride(key string, o *weir.Override) (had bool, err error) {
	return s.layers.Override.ChangeOverride(key, o)
}

// Overrides returns the overrides in force, by key. The Name of each is a charge's key: the
// name of a [weir.Limiter], "#" and the limit's name or position if there are several, ":",
// and the key.
func (s *Stack) Overrides() []weir.Override {
	var all []weir.Override
	for _, o := range s.layers.Override.List() {
		all = append(all, weir.Override{Name: o.Key, Limit: o.Limit, Until: o.Until})
	}
	return all
}

// Stats are counts since the Stack was created, for metrics. All are 0 for layers that the
// stack does not have.
type Stats struct {
	// Batches counts the calls of the store, BatchedActs the acts in them.
	Batches, BatchedActs int64
	// Outages counts the outages of nodes of the store.
	Outages int64
	// DenyCacheHits counts the acts refused from memory.
	DenyCacheHits uint64
	// LeaseSpent counts the acts paid with leased units, Leases the leases that the store
	// has granted, LeaseReturned the units returned unspent.
	LeaseSpent, Leases, LeaseReturned uint64
	// Local, Allowed, Denied and Errors count the acts decided by each policy.
	Local, Allowed, Denied, Errors int64
	// Overgranted counts the units granted locally that the store refused.
	Overgranted int64
	// Doubtful counts the units granted from local shares that the store may not have charged.
	Doubtful int64
	// Outstanding is the number of keys, IDs and refunds that the store has not recorded yet.
	Outstanding int
	// KeyLimits has an element for each key limit in use.
	KeyLimits []KeyLimitStats
}

// KeyLimitStats describe one key limit.
type KeyLimitStats struct {
	KeyLimit
	// Keys is the number of keys that are tracked now.
	Keys int
	// Overflowed counts the charges that were made under Overflow.
	Overflowed uint64
}

// Stats returns the counts. It visits all remembered keys: do not call it for every request.
func (s *Stack) Stats() Stats {
	var st Stats
	l := s.layers
	if l.Remote != nil {
		r := l.Remote.Stats()
		st.Batches, st.BatchedActs, st.Outages = r.Calls.Batches, r.Calls.Acts, r.Calls.Outages
		st.Local, st.Allowed, st.Denied, st.Errors = r.Local, r.Allowed, r.Denied, r.Errors
		st.Overgranted, st.Doubtful, st.Outstanding = r.Overgranted, r.Doubtful, r.Outstanding
	}
	if l.DenyCache != nil {
		st.DenyCacheHits = l.DenyCache.Stats().Hits
	}
	if l.Lease != nil {
		s := l.Lease.Stats()
		st.LeaseSpent, st.Leases, st.LeaseReturned = s.Spent, s.Leases, s.Returned
	}
	if l.KeyLimit != nil {
		for _, k := range l.KeyLimit.Stats() {
			st.KeyLimits = append(st.KeyLimits, KeyLimitStats{KeyLimit(k.Budget), k.Keys, k.Overflowed})
		}
	}
	return st
}
