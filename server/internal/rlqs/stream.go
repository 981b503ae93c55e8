package rlqs

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A Wire is a stream of messages, such as [frames.Stream].
type Wire interface {
	// Recv returns the next message, which is valid until the next call.
	Recv() ([]byte, error)
	// Send sends a message.
	Send(message []byte) error
	// Acknowledged returns a channel that is closed when the client has read what was sent.
	Acknowledged() <-chan struct{}
	// Part ends the wait of Recv.
	Part()
	// Take charges the stream for memory, until it ends.
	Take(bytes int64) error
}

// A stream is that of one Envoy. The service's mu guards its fields but the first ones.
type stream struct {
	service *Service
	wire    Wire
	client  string
	wake    chan struct{} // new buckets wait for an answer

	domain  string
	buckets map[string]*bucket
	refused map[string][]rules.Entry // ids beyond the most buckets, which are to be abandoned
	taken   int64                    // memory that was taken
	used    int64                    // of it
	sent    time.Time                // when the last message was sent
	unread  bool                     // the client has not acknowledged it
}

// live reports whether the client reads what it is sent.
func (c *stream) live(now time.Time) bool { return !c.unread || now.Sub(c.sent) < 2*pace }

// Serve serves a stream until it ends. The context is that of the call, and client its address. The
// error is a status, or that of the wire.
func (s *Service) Serve(ctx context.Context, wire Wire, client string) error {
	c := &stream{service: s, wire: wire, client: client, wake: make(chan struct{}, 1), buckets: map[string]*bucket{}, refused: map[string][]rules.Entry{}}
	if !s.enter(c) {
		return status.Error(codes.Unavailable, "the server stops")
	}
	ctx, cancel := context.WithCancel(ctx)
	var pushing sync.WaitGroup
	pushing.Go(func() { c.push(ctx) })
	err := c.receive(ctx)
	cancel()
	pushing.Wait()
	s.leave(c)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *Service) enter(c *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.streams[c] = struct{}{}
	return true
}

// leave writes off what the Envoy may have spent: nothing will say so.
func (s *Service) leave(c *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, c)
	now := time.Now()
	for _, b := range c.buckets {
		c.drop(b, now)
	}
	s.sweep(now)
}

// sweep forgets the budgets that no Envoy reports any more, and of which none can spend a unit.
func (s *Service) sweep(now time.Time) {
	for id, g := range s.orphans {
		switch {
		case len(g.holders) > 0:
			delete(s.orphans, id)
		case g.outstanding(now) == 0:
			delete(s.orphans, id)
			delete(s.budgets, id)
		}
	}
}

// drop forgets a bucket whose Envoy reports it no more.
func (c *stream) drop(b *bucket, now time.Time) {
	s := c.service
	for i, l := range b.leases {
		s.stats.WrittenOff += l.rest
		if l.rest == 0 || !b.replaced(i).IsZero() || l.ended(now) {
			continue
		}
		until := l.acknowledged.Add(l.ttl)
		if l.acknowledged.IsZero() {
			until = now.Add(lost)
		}
		b.budget.spent = append(b.budget.spent, ended{l.rest, until})
	}
	if delete(b.budget.holders, b); len(b.budget.holders) == 0 {
		s.orphans[b.budget.id] = b.budget
	}
	delete(c.buckets, textOf(b.entries))
	c.used -= b.size
}

// receive processes reports until the client has left, or the service stops.
func (c *stream) receive(ctx context.Context) error {
	for {
		message, err := c.wire.Recv()
		if err != nil {
			return err
		}
		domain, err := decode(message, func(*usage) error { return nil })
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if err := c.name(ctx, domain); err != nil {
			return err
		}
		if err := c.reports(ctx, message); err != nil {
			return err
		}
	}
}

// name takes the domain of the first message, and checks that the caller may take units of it.
func (c *stream) name(ctx context.Context, domain string) error {
	switch {
	case c.domain == "" && domain == "":
		return status.Error(codes.InvalidArgument, "domain is missing: the first message of a stream needs it")
	case c.domain == "":
		if err := callers.MayAsk(ctx, &rules.Request{Domain: domain, Cost: 1}); err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
		c.service.mu.Lock()
		defer c.service.mu.Unlock()
		c.domain = domain
	case domain != "" && domain != c.domain:
		return status.Error(codes.InvalidArgument, "domain is "+strconv.Quote(domain)+": want that of the first message, "+strconv.Quote(c.domain))
	case !callers.FromContext(ctx).Still(callers.Take, c.domain):
		return status.Error(codes.PermissionDenied, "the caller may no longer take units in "+strconv.Quote(c.domain))
	}
	return nil
}

// reports takes note of what was spent, and refunds and charges accordingly.
func (c *stream) reports(ctx context.Context, message []byte) error {
	s := c.service
	due, wake, err := c.note(message)
	if wake {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	s.charge(ctx, due)
	return err
}

// note takes note of reports. It returns what is to be refunded and charged, and whether there are
// new buckets.
func (c *stream) note(message []byte) (due []*rules.Request, wake bool, err error) {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	unleased := map[*bucket]int64{}
	_, err = decode(message, func(u *usage) error {
		key := textOf(u.id)
		s.stats.Granted += u.allowed
		s.stats.Refused += u.denied
		b := c.buckets[key]
		if b == nil {
			var err error
			if b, err = c.open(key, u.id); err != nil {
				return err
			}
			if wake = true; b == nil {
				return nil
			}
		}
		if n := b.report(now, u.allowed, u.denied); n > 0 && b.rule != nil && !b.rule.Unlimited {
			unleased[b] += n
		}
		for _, l := range b.settle(now) {
			due = append(due, refund(c.domain, l))
		}
		return nil
	})
	for b, n := range unleased {
		s.stats.Unleased += n
		due = append(due, &rules.Request{Kind: acts.KindRecord, Domain: c.domain, Descriptors: [][]rules.Entry{b.asked}, Cost: min(n, weir.MaxCost)})
	}
	return due, wake, err
}

// refund returns the request that refunds the rest of a lease.
func refund(domain string, l *lease) *rules.Request {
	return &rules.Request{Kind: acts.KindRefund, Domain: domain, Descriptors: [][]rules.Entry{l.asked}, Cost: l.rest, ID: l.id}
}

// charge makes refunds, and records what was spent without a lease. What fails stays charged, or
// uncharged if it was not leased.
func (s *Service) charge(ctx context.Context, due []*rules.Request) {
	if len(due) == 0 {
		return
	}
	set := s.options.Rules()
	var all []*weir.Act
	plans := make([]*rules.Plan, len(due))
	for i, req := range due {
		if plan, err := set.Plan(req); err == nil {
			plans[i] = plan
			all = append(all, plan.Acts...)
		}
	}
	s.take(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, req := range due {
		if req.Kind != acts.KindRefund {
			continue
		}
		refunded := int64(0)
		if p := plans[i]; p != nil && p.Err() == nil {
			for _, a := range p.Acts {
				for j := range a.Decisions {
					refunded = max(refunded, a.Decisions[j].Granted)
				}
			}
		}
		s.stats.Refunded += refunded
		s.stats.WrittenOff += req.Cost - refunded
	}
}

// open begins to serve a bucket. It returns nil if the stream has as many as it may.
func (c *stream) open(key string, entries []rules.Entry) (*bucket, error) {
	s, size := c.service, int64(2*len(key)+1024)
	valid := utf8.ValidString(key)
	if len(c.buckets) >= s.options.Buckets || len(key) > maxIDBytes || !valid {
		if len(c.refused) < maxRefused && valid { // Envoy reads no other texts
			c.refused[key] = entries
		}
		if _, due := s.crowded.Due(); due {
			s.options.Logger.Warn("an Envoy reports too many buckets, or ids that are too large or no UTF-8; they get no leases",
				"client", c.client, "domain", c.domain, "buckets", len(c.buckets), "most", s.options.Buckets)
		}
		return nil, nil
	}
	if more := c.used + size - c.taken; more > 0 {
		if err := c.wire.Take(more); err != nil {
			return nil, err
		}
		c.taken += more
	}
	c.used += size
	id := c.domain + "\x00" + key
	g := s.budgets[id]
	if g == nil {
		g = &budget{id: id, holders: map[*bucket]struct{}{}}
		s.budgets[id] = g
	}
	b := &bucket{stream: c, budget: g, entries: entries, size: size}
	g.holders[b], c.buckets[key] = struct{}{}, b
	return b, nil
}

// textOf returns a text that is the same for the same id, and different for others.
func textOf(entries []rules.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		for _, text := range []string{e.Key, e.Value} {
			b.WriteString(strconv.Itoa(len(text)) + ":" + text)
		}
	}
	return b.String()
}
