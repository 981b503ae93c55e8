// Package rlqs serves Envoy's rate limit quota service: each Envoy spends leases, units of a limit
// that were charged before they were sent, and calls for no request.
//
// A lease is a token bucket that does not refill. Every second the service divides what a limit
// grants in that time among the Envoys that have reported the same bucket, and replaces leases that
// will not do. Units of a replaced lease are refunded when nobody can spend them any more: Envoy has
// the next lease, and has reported after that.
//
// However often Envoys, their connections, the service or the store fail, an interval grants at
// most the algorithm's bound and the units that Envoys could spend when it began.
package rlqs

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/logs"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// DefaultBuckets is the most buckets of a stream.
	DefaultBuckets = 1000
	// DefaultTimeout is how long a lease's charge may take.
	DefaultTimeout = time.Second

	// pace is how often leases are replaced. Envoy reports every 5 s.
	pace = time.Second
	// leaseTTL is how long Envoy may spend a lease. A lease is never sent again, because an Envoy
	// for which it has ended would spend all of it once more.
	leaseTTL = 6 * time.Second
	// idleTTL is the same of a bucket without requests. A lease is replaced after half of its time,
	// even if it would do.
	idleTTL = time.Minute
	// silence is when an Envoy whose reports fail to come gets no more leases.
	silence = 7 * time.Second
	// forgotten is when a bucket whose reports fail to come is dropped, if Envoy has its last lease.
	forgotten = 20 * time.Second
	// settled is how long after the acknowledgement of a lease a report must come that shows what
	// was spent of earlier ones. A report that was under way, and the requests that Envoy's workers
	// were deciding, take less.
	settled = time.Second
	// idle is when a bucket without requests is left with one unit, and abandoned is when Envoy is
	// told to forget it.
	idle, abandoned = time.Minute, 10 * time.Minute
	// lost is how long the lease counts that an Envoy may have read after its stream had ended.
	lost = time.Minute
	// allowTTL is how long Envoy allows the requests that no rule limits.
	allowTTL = time.Hour
	// hold is how long the store knows the charge of a lease.
	hold = 10 * time.Minute
	// margin is what a lease has beyond the demand, and enough is the part of it for which the last
	// lease will do.
	margin, enough = 1.2, 0.8
	// maxIDBytes is the largest bucket id.
	maxIDBytes = 4 << 10
	// maxRefused is how many buckets an Envoy is told to abandon at a time.
	maxRefused = 20_000
	// batch is how many leases are charged in one call.
	batch = 128
)

// Options are the settings of a [Service]. Rules and Taker are required.
type Options struct {
	// Rules returns the rules in force, and never nil.
	Rules func() *rules.Set
	// Taker charges and refunds leases.
	Taker weir.Taker
	// Buckets is the most buckets of a stream; Envoy is told to abandon further ones. Zero:
	// DefaultBuckets.
	Buckets int
	// Timeout is how long the charge of a lease may take. Zero: DefaultTimeout.
	Timeout time.Duration
	// Unmatched, if not nil, is called for each bucket for which there is no rule, and again when the
	// rules change. It reports whether to refuse the bucket's requests. Nil: they are allowed.
	Unmatched func(*rules.Request, rules.Unmatched) (refuse bool)
	// Logger gets a line for what Envoys do that is not served. Nil: none.
	Logger *slog.Logger

	// refundAtOnce refunds a lease when it is replaced. A test shows that this breaks the bound.
	refundAtOnce bool
}

// A Service leases units to Envoys. It is safe for concurrent use, and starts nothing: each stream
// has its goroutines, which end with it.
type Service struct {
	options   Options
	crowded   logs.Seldom // of lines about too many buckets
	scarce    logs.Seldom // of lines about limits that are too small for their Envoys
	undecided logs.Seldom // of lines about leases that could not be charged

	mu       sync.Mutex // guards the fields below, and the streams' buckets; never held while waiting
	stopping bool
	streams  map[*stream]struct{}
	budgets  map[string]*budget
	orphans  map[string]*budget // budgets without holders
	stats    Stats
}

// New returns a service.
func New(o Options) *Service {
	o.Buckets, o.Timeout = cmp.Or(o.Buckets, DefaultBuckets), cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Service{options: o, streams: map[*stream]struct{}{}, budgets: map[string]*budget{}, orphans: map[string]*budget{}}
}

// Stats are the service's counters since its start, and its state. Units are those of all limits.
type Stats struct {
	Streams, Buckets int
	// Leased is the number of units that Envoys may spend now.
	Leased int64
	// Leases is the number of leases that were sent, and Charged that of their units.
	Leases, Charged int64
	// Granted and Refused count requests, as Envoys have reported them.
	Granted, Refused int64
	// Unleased counts requests that Envoys granted without a lease, which were charged afterwards.
	Unleased int64
	// Refunded counts units of leases that were refunded, and WrittenOff units that may or may not
	// have been spent, because their Envoy has not reported it.
	Refunded, WrittenOff int64
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, stats := time.Now(), s.stats
	stats.Streams = len(s.streams)
	for c := range s.streams {
		stats.Buckets += len(c.buckets)
	}
	for _, b := range s.budgets {
		stats.Leased += b.outstanding(now) - b.reserved()
	}
	return stats
}

// A Lease is what one Envoy may spend for one bucket.
type Lease struct {
	// Client is the Envoy's address.
	Client, Domain string
	// ID is the bucket's id, by key.
	ID []rules.Entry
	// Rule is the path of the rule; empty if there is none.
	Rule string
	// Units is the size of the lease, and Spendable what Envoy may still spend of it and of the one
	// before, at worst: what it has not reported as spent.
	Units, Spendable int64
	// Demand is the number of requests a second of the last report; less than 0 before the second.
	Demand float64
	// Age is the age of the lease, and Reported that of the last report.
	Age, Reported time.Duration
	// Acknowledged says whether Envoy is known to have the lease.
	Acknowledged bool
}

// Leases returns the leases of all Envoys, by domain and id, and then by client.
func (s *Service) Leases() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	all := []Lease{}
	for c := range s.streams {
		for _, b := range c.buckets {
			l := Lease{Client: c.client, Domain: c.domain, ID: b.entries, Demand: b.demand, Reported: now.Sub(b.reported), Spendable: b.outstanding(now)}
			if !b.known {
				l.Demand = -1
			}
			if b.rule != nil {
				l.Rule = b.rule.Path
			}
			if cur := b.lease(); cur != nil {
				l.Units, l.Age, l.Acknowledged = cur.units, now.Sub(cur.sent), !cur.acknowledged.IsZero()
			}
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), slices.CompareFunc(a.ID, b.ID, func(a, b rules.Entry) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
		}), cmp.Compare(a.Client, b.Client))
	})
	return all
}

// Stop ends all streams: their handlers return soon after. Leases in force stay so until they end
// at Envoy. Further streams fail.
func (s *Service) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.streams {
		c.wire.Part() // its handler has not returned: it leaves first
	}
}

// take has acts decided. Their callers' streams may end in the meantime: a charge must not stay
// half known for that reason.
func (s *Service) take(ctx context.Context, acts []*weir.Act) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
	defer cancel()
	for part := range slices.Chunk(acts, batch) {
		s.options.Taker.Take(ctx, part)
	}
}
