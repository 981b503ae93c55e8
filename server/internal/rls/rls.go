// Package rls answers Envoy's rate limit service, as envoyproxy/ratelimit does
// where a rule names no algorithm. [Service.Decide] turns a request into an
// answer and knows no transport; [Service.Register] and [Service.JSON] put gRPC
// and HTTP in front of it.
package rls

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rules"
)

// DefaultTimeout is how long a call may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = time.Second

// HeaderNames are the names of the response headers that tell the limit.
type HeaderNames struct{ Limit, Remaining, Reset string }

// DefaultHeaders are the names that envoyproxy/ratelimit gives them.
var DefaultHeaders = HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}

// A Mode is what may be switched on for all rules.
type Mode struct {
	// Shadow lets every request pass; the statuses stay as they are.
	Shadow bool
	// Quota treats every rule as one in quota mode.
	Quota bool
	// Headers, if not nil, tells the strictest limit in response headers.
	Headers *HeaderNames
	// Metadata tells the request, and the metadata of the rules that let it
	// pass, as dynamic metadata.
	Metadata bool
}

// Options are what [New] needs. Rules and Taker are required.
type Options struct {
	Mode
	// Rules returns the rules in force. It is called once for each call, from
	// many goroutines, and must never return nil.
	Rules func() *rules.Set
	// Taker decides.
	Taker weir.Taker
	// Timeout is how long a call may wait for its decision, or up to a sixteenth
	// less: calls that begin together end together. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Decided, if not nil, is told of every request that was decided, before it
	// is answered.
	Decided func(*rules.Request, *rules.Plan)
	// Bounds are how large a request may be.
	Bounds rules.Bounds
	// Budget bounds what requests over HTTP hold while they are decoded. Nil: nothing
	// does.
	Budget *admission.Budget
	// Rejected, if not nil, is told of requests over HTTP that found no room in the
	// budget.
	Rejected func(admission.Reason)
	// Now is the clock for what no store was asked about: when the window of a
	// limit that refuses everything ends. Nil: time.Now.
	Now func() time.Time
	// Panics reports requests over HTTP that panic. Nil: they are logged.
	Panics *panics.Reporter
	// Logger is told, at most once a second, that the store fails. Nil: nothing is
	// logged.
	Logger *slog.Logger
}

// A Service answers requests. It is safe for concurrent use and starts nothing.
type Service struct {
	options    Options
	ends       *deadline.Group
	clock      deadline.Clock
	overrides  overrides
	lastLogged atomic.Int64 // unix seconds
}

// New returns a service. The error is a [*weir.InvalidError].
func New(o Options) (*Service, error) {
	switch {
	case o.Rules == nil:
		return nil, invalid("Rules", "nil", "a function that returns the rules")
	case o.Taker == nil:
		return nil, invalid("Taker", "nil", "a store")
	case o.Timeout < 0:
		return nil, invalid("Timeout", o.Timeout.String(), "a positive duration")
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Panics == nil {
		o.Panics = &panics.Reporter{Listener: "http", Logger: o.Logger}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{options: o, ends: deadline.NewGroup(o.Timeout)}, nil
}

// Decide answers a request. An error means that no decision was reached.
func (s *Service) Decide(ctx context.Context, req *Request) (*Answer, error) {
	if err := s.options.Bounds.CheckDescriptors(len(req.Descriptors)); err != nil {
		return nil, err
	}
	c := newCall(len(req.Descriptors))
	defer c.free()
	if err := s.read(req, &c.asked); err != nil {
		return nil, err
	}
	if err := callers.MayAsk(ctx, &c.asked); err != nil {
		return nil, err
	}
	plan, err := s.options.Rules().Plan(&c.asked)
	if err != nil {
		return nil, err
	}
	if err := prepare(&c.asked, plan); err != nil {
		return nil, err
	}
	if err := s.take(ctx, plan, c); err != nil {
		return nil, err
	}
	if s.options.Decided != nil {
		s.options.Decided(&c.asked, plan)
	}
	answer := s.judge(req, plan, c)
	// Not where the store panics: nobody knows what it still works on.
	plan.Free()
	return answer, nil
}

// report logs a failure of the store, unless one was logged this second, and
// returns it.
func (s *Service) report(ctx context.Context, err error) error {
	now := time.Now().Unix()
	if last := s.lastLogged.Load(); !isInvalid(err) && last != now && s.lastLogged.CompareAndSwap(last, now) {
		s.options.Logger.WarnContext(ctx, "the store reached no decision", "protocol", "rls", "error", err)
	}
	return err
}
