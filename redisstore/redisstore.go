// Package redisstore keeps limits in Redis or Valkey, so that all instances of a service
// share them. One script call decides the requests of many callers, each separately and by
// the server's clock. Requests that are known to be refused cost Redis nothing, and an
// outage of Redis is noticed and bridged: docs/library.md says how.
package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
)

// Options are the settings of a [Store]. The zero value is ready for use. Functions are
// called from many goroutines, some of them for every request.
type Options struct {
	// Prefix begins every key. It must not contain braces. Empty: "weir:".
	Prefix string
	// Secret makes the hash slots of keys unpredictable to clients that choose the
	// keys. All instances that share a store need the same one. Empty: keys are hashed
	// with a public key.
	Secret string
	// Logger receives a line when Redis becomes unreachable, when it is reachable again,
	// when its charges are reconciled, when a limit reaches its number of keys, and when
	// keys hold values that the store did not write. Nil: none.
	Logger *slog.Logger

	// Timeout is the longest time for which a call waits for Redis if its context does
	// not end sooner. A server counts as unreachable if it was silent for a fifth of it, at
	// least 50 ms, and then did not answer a probe for 150 ms. Time in which this process
	// cannot receive replies does not count. Zero: 250 ms.
	Timeout time.Duration
	// OnOutage returns the policy for requests of a limit that Redis did not decide. For
	// example, deny logins and grant a local share of everything else. Nil: [Error] for
	// all limits.
	OnOutage func(*weir.Limit) Policy
	// Instances returns the number of instances that share the limits: under [Local],
	// each grants its part. Nil: 1.
	Instances func() int

	// KeyLimit returns the bound on the tracked keys of a limit, for limits whose keys
	// clients can make up. Nil: no bound.
	KeyLimit func(*weir.Limit) weir.KeyLimit
	// MaxOverrides bounds the overrides that can be in force. Zero: 10 000.
	MaxOverrides int

	// Leased reports whether units of a limit may be charged ahead and spent from memory.
	// It is for limits that are too busy even for batches. It is called for every charge,
	// from many goroutines. Limits of concurrency and leaky_bucket, and those that charge
	// refused requests, are never leased. Nil: none is leased.
	Leased func(*weir.Limit) bool
	// LeaseTime is the time after which unspent leased units are returned. Leases follow
	// demand: a lease is half of the units that its key was charged in this time. Zero:
	// one second.
	LeaseTime time.Duration
	// LeasePart bounds the units leased for one key, as a part of the limit's count, above
	// 0 and at most 1. Zero: 0.1.
	LeasePart float64

	// DenyCacheEntries bounds the refusals that are remembered. One takes about 200 bytes
	// and its key. Zero: 65 536. Negative: none, so every request goes to Redis.
	DenyCacheEntries int
	// DenyCacheMaxAge is the longest time for which a refusal is remembered. A refund or
	// reset by another process may go unnoticed for that long. Zero: one second.
	DenyCacheMaxAge time.Duration
}

// A Policy decides a request that Redis did not decide.
type Policy uint8

// The policies.
const (
	Local Policy = iota // grant this instance's local share of the limit
	Allow               // grant everything
	Deny                // refuse everything but peeks
	Error               // return the error
)

// A Store is a [weir.Taker] in Redis. It is safe for concurrent use. Create it with New, and
// stop it before the client is closed.
type Store struct {
	inside *redisengine.Store
	layers *stack.Stack
}

func init() {
	redisengine.Of = func(public any) *redisengine.Store { return public.(*Store).inside }
}

// New returns a store on a client that the caller configures, shares and closes. It starts
// nothing. With any settings of the client, no charge is sent twice, and no call outlasts its
// context. A client of one server that has ContextTimeoutEnabled gets a hook, by which replies
// that arrive after their calls have ended are still read. The error is a [*weir.InvalidError].
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	inside, err := redisengine.New(client, redisengine.Options{
		Prefix: o.Prefix, Secret: o.Secret, Timeout: o.Timeout, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Store{inside, stack.New(inside, stack.Options{
		Logger: o.Logger, MaxOverrides: o.MaxOverrides, KeyLimit: stack.OfLimits(o.KeyLimit),
		Leased: o.Leased, LeaseTime: o.LeaseTime, LeasePart: o.LeasePart,
		DenyCacheEntries: o.DenyCacheEntries, DenyCacheMaxAge: o.DenyCacheMaxAge,
		Remote: remote.Options{
			Patience: o.Timeout, Instances: o.Instances, Policy: o.policy(),
			Calls: calls.Options{Silence: max(calls.DefaultSilence, o.Timeout/5)},
		},
	})}, nil
}

// check checks what the store in Redis does not know.
func (o *Options) check() error {
	switch {
	case !(o.LeasePart >= 0 && o.LeasePart <= 1):
		return invalid("lease_part", o.LeasePart, "more than 0 and at most 1, or 0 for 0.1")
	case o.LeaseTime < 0:
		return invalid("lease_time", o.LeaseTime, "a positive duration, or 0 for 1s")
	case o.DenyCacheMaxAge < 0:
		return invalid("deny_cache_max_age", o.DenyCacheMaxAge, "a positive duration, or 0 for 1s")
	case o.MaxOverrides < 0:
		return invalid("max_overrides", o.MaxOverrides, "a positive number, or 0 for 10000")
	}
	return nil
}

func invalid(field string, value any, want string) error {
	return &weir.InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
}

func (o *Options) policy() func(*weir.Charge) remote.Policy {
	if o.OnOutage == nil {
		return func(*weir.Charge) remote.Policy { return remote.Error }
	}
	return func(c *weir.Charge) remote.Policy { return remote.Policy(o.OnOutage(c.Limit)) }
}

// Start begins to return leased units that are not spent, in the background. A store
// without leases need not be started.
func (s *Store) Start() { s.layers.Start() }

// Stop returns all leased units, waits for calls in flight, and records in Redis the units
// that were granted without it, and releases and settlements that it has not acknowledged,
// until ctx ends. The error says what Redis lacks. Stop may be called again.
func (s *Store) Stop(ctx context.Context) error { return s.layers.Stop(ctx) }

// Take decides the acts.
func (s *Store) Take(ctx context.Context, acts []*weir.Act) { s.layers.Take(ctx, acts) }

// Patience returns the longest time for which Take waits, [Options.Timeout], see [weir.Taker].
func (s *Store) Patience() time.Duration { return s.layers.Patience() }

// Outages returns an error for each server that is unreachable now, with its beginning and
// cause.
func (s *Store) Outages() []error { return s.layers.Outages() }

// ChangeOverride is how a [weir.Limiter] puts an override in force, or ends it if o is nil. The
// key is that in the store: the name of the limiter, "#" and the limit's name or position if
// there are several, ":", and the limiter's key.
func (s *Store) ChangeOverride(key string, o *weir.Override) (had bool, err error) {
	return s.layers.Override.ChangeOverride(key, o)
}

// Overrides returns the overrides in force, by key. The Name of each is a key as for
// ChangeOverride.
func (s *Store) Overrides() []weir.Override { return s.layers.Override.All() }

// A Finding is a problem with a server's settings.
type Finding struct {
	// Node is the server's address, as the client knows it.
	Node string
	// Setting is topology, role, version, maxmemory-policy, cluster-require-full-coverage or
	// permissions.
	Setting string
	// Detail says what was found and what was expected.
	Detail string
	// Fatal is set if the store cannot decide until the problem is solved.
	Fatal bool
}

// String returns the finding as messages show it.
func (f Finding) String() string { return redisengine.Finding(f).String() }

// Check inspects every server that the store uses: it must accept writes, have a
// supported version, evict no keys, and let the store's scripts run; a cluster must answer for
// the slots that have a master while others have none. For this, Check
// charges and resets keys of its own under the store's prefix, others with each call, so
// that stores may be checked at the same time. In addition to the scripts, it needs
// permission for INFO; without it, there is a finding about that. An error means that a
// server did not answer; the findings are then those of the servers before it.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	found, err := s.inside.Check(ctx)
	all := make([]Finding, len(found))
	for i, f := range found {
		all[i] = Finding(f)
	}
	return all, err
}

// HashTag returns the part of a key that determines its hash slot in a Redis Cluster: the
// text between its first brace and the next closing one, or else the whole key. It
// reports whether other keys can be put into the same slot, which is impossible if that
// part is empty or contains a closing brace.
func HashTag(key string) (string, bool) { return redisengine.HashTag(key) }

// Stats are counts since the store was created, for metrics.
type Stats struct {
	// Batches counts the script calls, BatchedActs the requests in them.
	Batches, BatchedActs int64
	// Outages counts the outages of servers; Unreachable is the number of servers that are
	// unreachable now.
	Outages, Unreachable int64
	// DenyCacheHits counts the requests refused from memory.
	DenyCacheHits uint64
	// LeaseSpent counts the requests paid with leased units, LeaseReturned the units returned
	// unspent.
	LeaseSpent, LeaseReturned uint64
	// Local, Allowed, Denied and Errors count the requests decided by each policy.
	Local, Allowed, Denied, Errors int64
	// Late counts the requests that were decided by a policy although Redis replied later.
	Late int64
	// Overgranted counts the units granted locally that Redis refused afterwards.
	Overgranted int64
	// Doubtful counts the units granted from local shares that Redis may not have charged.
	Doubtful int64
	// Outstanding is the number of keys, IDs and refunds that Redis has not recorded yet.
	Outstanding int
	// Overflowed counts the charges of keys beyond a [weir.KeyLimit].
	Overflowed uint64
	// Foreign counts the values under the store's keys that it did not write. Each was
	// treated as a fresh key.
	Foreign int64
}

// Stats returns the counts. It visits all remembered keys: do not call it for every request.
func (s *Store) Stats() Stats {
	r, d := s.layers.Remote.Stats(), uint64(0)
	if s.layers.DenyCache != nil {
		d = s.layers.DenyCache.Stats().Hits
	}
	st := Stats{
		Batches: r.Calls.Batches, BatchedActs: r.Calls.Acts, Outages: r.Calls.Outages, Unreachable: r.Calls.Unreachable, DenyCacheHits: d,
		Local: r.Local, Allowed: r.Allowed, Denied: r.Denied, Errors: r.Errors, Late: r.Late,
		Overgranted: r.Overgranted, Doubtful: r.Doubtful, Outstanding: r.Outstanding,
		Overflowed: s.layers.Overflowed(), Foreign: s.inside.Foreign(),
	}
	if s.layers.Lease != nil {
		l := s.layers.Lease.Stats()
		st.LeaseSpent, st.LeaseReturned = l.Spent, l.Returned
	}
	return st
}
