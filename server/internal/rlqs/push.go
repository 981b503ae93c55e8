package rlqs

import (
	"context"
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// push sends leases: to new buckets at once, and to all once in a pace. Nothing is sent before the
// client has read the last message, so that one lease at most is on its way.
func (c *stream) push(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	var acknowledged <-chan struct{}
	var on []*lease // their way
	due := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			due = true
		case <-c.wake:
			due = true
		case <-acknowledged:
			c.acknowledge(on)
			acknowledged, on = nil, nil
		}
		if !due || acknowledged != nil {
			continue
		}
		due = false
		message, leases := c.next(ctx)
		if message == nil {
			continue
		}
		if ctx.Err() != nil {
			c.service.cancel(c, leases)
			return
		}
		if err := c.wire.Send(message); err != nil {
			return // the client may have it
		}
		acknowledged, on = c.wire.Acknowledged(), leases
	}
}

// acknowledge takes note that the client has leases.
func (c *stream) acknowledge(leases []*lease) {
	c.service.mu.Lock()
	defer c.service.mu.Unlock()
	now := time.Now()
	for _, l := range leases {
		l.acknowledged = now
	}
	c.unread = false
}

// cancel refunds leases that were not sent.
func (s *Service) cancel(c *stream, leases []*lease) {
	var due []*rules.Request
	s.mu.Lock()
	for _, l := range leases {
		if l.rest > 0 {
			due = append(due, refund(c.domain, l))
			l.rest = 0
		}
	}
	s.mu.Unlock()
	s.charge(context.Background(), due)
}

// A step is what is done for a bucket at a push.
type step struct {
	bucket *bucket
	// answer is the assignment of a bucket that gets no units; nil for a lease.
	answer *pb.RateLimitQuotaResponse_BucketAction
	lease  *lease      // an answer that replaces the last one, without units; nil for none
	plan   *rules.Plan // of the lease's charge
}

// next returns the next message, and the leases in it, which are charged; nil if there is nothing
// to say.
func (c *stream) next(ctx context.Context) ([]byte, []*lease) {
	s := c.service
	var steps []step
	var all []*weir.Act
	s.mu.Lock()
	now, set := time.Now(), s.options.Rules()
	response := &pb.RateLimitQuotaResponse{}
	s.sweep(now)
	for key, entries := range c.refused {
		response.BucketAction = append(response.BucketAction, abandon(entries))
		delete(c.refused, key)
	}
	for _, b := range c.buckets {
		step, some := s.decide(b, set, now)
		if !some {
			continue
		}
		steps = append(steps, step)
	}
	s.mu.Unlock()
	for i := range steps {
		if st := &steps[i]; st.answer == nil {
			plan, err := set.Plan(&rules.Request{
				Domain: c.domain, Descriptors: [][]rules.Entry{st.bucket.asked}, Cost: 1, UpTo: st.bucket.want, Hold: hold,
			})
			if err != nil {
				s.undecidedLine(c, err)
				continue
			}
			st.plan = plan
			all = append(all, plan.Acts...)
		}
	}
	s.take(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = time.Now()
	var leases []*lease
	for _, st := range steps {
		b := st.bucket
		b.want = 0
		if st.answer != nil {
			response.BucketAction = append(response.BucketAction, st.answer)
			if st.lease != nil {
				leases = append(leases, st.lease)
			}
			continue
		}
		l := s.leased(st, now)
		if l == nil {
			continue
		}
		leases = append(leases, l)
		response.BucketAction = append(response.BucketAction, assign(b.entries, l, s.stats.Leases)...)
	}
	if len(response.BucketAction) == 0 {
		return nil, nil
	}
	message, err := proto.Marshal(response)
	if err != nil {
		// An id is no valid text; it came from a valid message.
		return nil, nil
	}
	c.sent, c.unread = now, true
	return message, leases
}

func (s *Service) undecidedLine(c *stream, err error) {
	if _, due := s.undecided.Due(); due {
		s.options.Logger.Warn("a lease could not be charged; its Envoy gets none", "client", c.client, "domain", c.domain, "error", err)
	}
}

// decide returns what is to be done for a bucket, if anything. A lease that is to be charged is
// reserved in the bucket's want.
func (s *Service) decide(b *bucket, set *rules.Set, now time.Time) (step, bool) {
	if !set.Loaded() {
		return step{}, false // Envoy's no_assignment_behavior answers
	}
	changed := b.set != set
	if changed {
		s.follow(b, set)
	}
	switch {
	case b.rule == nil || b.rule.Unlimited:
		if !changed && now.Sub(b.answered) < allowTTL/2 {
			return step{}, false
		}
		b.answered = now
		return step{bucket: b, answer: blanket(b.entries, b.refuse)}, true
	case now.Sub(b.reported) > forgotten && !b.stream.unread:
		b.stream.drop(b, now)
		return step{}, false
	case now.Sub(b.requested) > abandoned && b.live(now):
		b.stream.drop(b, now)
		return step{bucket: b, answer: abandon(b.entries)}, true
	case !b.live(now):
		return step{}, false
	}
	g := b.budget
	want, left, last := g.portion(b, now), b.left(now), b.lease()
	if last != nil && last.young(now) && last.units > 0 && left >= enough*want {
		return step{}, false
	}
	units := min(max(1, int64(math.Ceil(want))), g.most()-g.outstanding(now), weir.MaxCost)
	if units < 1 {
		if last.stays(now) {
			return step{}, false
		}
		l := &lease{ttl: leaseTTL, sent: now}
		b.leases = append(b.leases, l)
		return step{bucket: b, answer: deny(b.entries), lease: l}, true
	}
	b.want = units
	if last == nil && g.burst < 3*float64(len(g.holders)) {
		if _, due := s.scarce.Due(); due {
			s.options.Logger.Warn("a limit is small for as many Envoys: each has a unit or two at a time", "domain", b.stream.domain, "rule", b.rule.Path, "envoys", len(g.holders))
		}
	}
	return step{bucket: b}, true
}

// follow finds a bucket's rule.
func (s *Service) follow(b *bucket, set *rules.Set) {
	b.set, b.refuse = set, false
	domain := b.stream.domain
	if b.asked, b.rule = set.Quota(domain, b.entries); b.rule == nil {
		why := rules.UnmatchedRule
		if !set.Has(domain) {
			why = rules.UnmatchedDomain
		}
		b.refuse = s.options.Unmatched != nil && s.options.Unmatched(&rules.Request{Domain: domain, Descriptors: [][]rules.Entry{b.entries}}, why)
		return
	}
	if g := b.budget; g.set != set && !b.rule.Unlimited {
		g.rate = math.Inf(1)
		for _, l := range b.rule.Limits {
			g.limit(l.Limit)
		}
		if g.free = min(g.free, g.burst); g.set == nil {
			g.free = g.burst
		}
		g.set = set
	}
}

// limit takes the numbers of one limit of a rule: the strictest counts.
func (g *budget) limit(l *weir.Limit) {
	if math.IsInf(g.rate, 1) {
		g.burst = float64(l.Capacity())
	}
	g.rate = min(g.rate, float64(l.Count)/l.Period.Seconds())
	g.burst = min(g.burst, float64(l.Capacity()))
}

// leased returns the lease that a plan has charged; nil if the last one stays.
func (s *Service) leased(st step, now time.Time) *lease {
	b := st.bucket
	if st.plan == nil {
		return nil
	}
	st.plan.Taken()
	if err := st.plan.Err(); err != nil {
		s.undecidedLine(b.stream, err)
		return nil // the last one ends in time
	}
	l := &lease{id: st.plan.ID, ttl: leaseTTL, asked: b.asked, sent: now}
	if b.idle(now) {
		l.ttl = idleTTL
	}
	g := b.budget
	g.rate, g.free = math.Inf(1), math.Inf(1)
	for i := range st.plan.Applied {
		a := &st.plan.Applied[i]
		d := a.Decision()
		g.limit(a.Limit)
		g.free = min(g.free, float64(d.Remaining))
		switch {
		case !a.Act.Allowed():
		case d.Source == acts.SourceFailOpen:
			l.units = a.Act.Charges[a.Charge].UpTo // everything is granted, and nothing charged
		default:
			l.units = d.Granted
		}
	}
	last := b.lease()
	if l.units == 0 && last.stays(now) && g.burst > 0 {
		return nil // a key that is blocked has nothing to spend
	}
	l.rest = l.units
	if s.options.refundAtOnce && last != nil && last.rest > 0 {
		req, rest := refund(b.stream.domain, last), last.rest
		last.rest -= rest
		go s.charge(context.Background(), []*rules.Request{req})
	}
	b.leases = append(b.leases, l)
	s.stats.Leases++
	s.stats.Charged += l.units
	return l
}

// wireID returns an id as Envoy has it.
func wireID(entries []rules.Entry) *pb.BucketId {
	id := &pb.BucketId{Bucket: make(map[string]string, len(entries))}
	for _, e := range entries {
		id.Bucket[e.Key] = e.Value
	}
	return id
}

// action returns an assignment for a time, which Envoy reads in whole seconds.
func action(entries []rules.Entry, ttl time.Duration, strategy *typev3.RateLimitStrategy) *pb.RateLimitQuotaResponse_BucketAction {
	return &pb.RateLimitQuotaResponse_BucketAction{BucketId: wireID(entries), BucketAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy},
	}}
}

func all(rule typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// blanket returns the answer for a bucket that no limit counts.
func blanket(entries []rules.Entry, refuse bool) *pb.RateLimitQuotaResponse_BucketAction {
	if refuse {
		return action(entries, allowTTL, all(typev3.RateLimitStrategy_DENY_ALL))
	}
	return action(entries, allowTTL, all(typev3.RateLimitStrategy_ALLOW_ALL))
}

func deny(entries []rules.Entry) *pb.RateLimitQuotaResponse_BucketAction {
	return action(entries, leaseTTL, all(typev3.RateLimitStrategy_DENY_ALL))
}

func abandon(entries []rules.Entry) *pb.RateLimitQuotaResponse_BucketAction {
	return &pb.RateLimitQuotaResponse_BucketAction{BucketId: wireID(entries), BucketAction: &pb.RateLimitQuotaResponse_BucketAction_AbandonAction_{
		AbandonAction: &pb.RateLimitQuotaResponse_BucketAction_AbandonAction{},
	}}
}

const (
	// year is the fill interval of a lease, in seconds: its bucket does not refill in its time.
	year = 365 * 24 * 60 * 60
	// serials is how many leases differ by the nanoseconds of their fill interval.
	serials = 999_999_999
)

// assign returns the actions that hand out exactly the units of a lease. Envoy 1.40 gives a token
// bucket that replaces another one the same part of its tokens as the other one has left; earlier
// versions fill it. After a refusal of everything, which no request sees because both are in one
// message, all of them fill it. Envoy takes no note of a bucket that is like the last one, so each
// has a number in a place that does not change its rate.
func assign(entries []rules.Entry, l *lease, serial int64) []*pb.RateLimitQuotaResponse_BucketAction {
	if l.units == 0 {
		return []*pb.RateLimitQuotaResponse_BucketAction{deny(entries)}
	}
	return []*pb.RateLimitQuotaResponse_BucketAction{deny(entries), action(entries, l.ttl, &typev3.RateLimitStrategy{
		Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
			MaxTokens: uint32(l.units), TokensPerFill: wrapperspb.UInt32(1),
			FillInterval: &durationpb.Duration{Seconds: year, Nanos: int32(1 + serial%serials)},
		}},
	})}
}
