// Package rls answers Envoy's rate limit service. For rules without an algorithm it
// answers exactly like envoyproxy/ratelimit. [Service.Answer] turns an encoded request into
// an encoded answer, independent of the transport; [Service.JSON] does so for HTTP.
package rls

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// DefaultTimeout is how long a call may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = time.Second

// HeaderNames are the names of the response headers that describe the limit.
type HeaderNames struct{ Limit, Remaining, Reset string }

// DefaultHeaders are the names that envoyproxy/ratelimit uses.
var DefaultHeaders = HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}

// A Mode has the settings that apply to all rules.
type Mode struct {
	// Shadow lets every request pass; the statuses are not changed.
	Shadow bool
	// Quota treats every rule as one in quota mode.
	Quota bool
	// Headers, if not nil, adds response headers that describe the strictest limit.
	Headers *HeaderNames
	// Metadata adds dynamic metadata: the request, and the metadata of the rules that
	// let it pass.
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
	// Gather, if not nil, reports whether an act most likely waits for the store, so that
	// [Service.Begin] leaves it to be taken with those of other calls.
	Gather func(*weir.Act) bool
	// Timeout is how long a call may wait for its decision, or up to a sixteenth
	// less: calls that begin together end together. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Decided, if not nil, is called for every request that was decided, before it
	// is answered.
	Decided func(*rules.Request, *rules.Plan)
	// Bounds limit the size of a request.
	Bounds rules.Bounds
	// RefuseOversized answers OVER_LIMIT to requests that are too large to be read, as a
	// client's bytes may make them. Otherwise they get an error.
	RefuseOversized bool
	// Budget bounds the memory of requests over HTTP that are being decoded. Nil: no
	// bound.
	Budget *admission.Budget
	// Rejected, if not nil, is called for requests over HTTP that found no room in the
	// budget or are too large.
	Rejected func(admission.Reason)
	// Now is the clock for decisions that were made without a store: it tells when the
	// window of a limit that refuses everything ends. Nil: time.Now.
	Now func() time.Time
	// Unmatched, if not nil, is called for each request that no rule applies to, and
	// reports whether to refuse it. Nil: it is allowed.
	Unmatched func(*rules.Request, rules.Unmatched) (refuse bool)
	// Logger gets a line each time that the store fails. Nil: nothing is logged.
	Logger *slog.Logger
}

// A Service answers requests. It is safe for concurrent use and starts nothing.
type Service struct {
	options   Options
	ends      *deadline.Group
	clock     deadline.Clock
	overrides overrides
	memo      memo
}

// New returns a service.
func New(o Options) *Service {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{options: o, ends: deadline.NewGroup(o.Timeout), memo: newMemo()}
}

// plan reads a request into [rules.Request] and makes the acts that decide it, fitted to
// Envoy's semantics.
func (s *Service) plan(ctx context.Context, set *rules.Set, req *Request) (*call, error) {
	c := newCall(len(req.Descriptors))
	if err := s.fill(ctx, set, req, c); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (s *Service) fill(ctx context.Context, set *rules.Set, req *Request, c *call) error {
	c.asked = &c.own
	invalid := s.read(set, req, c.asked)
	if err := callers.MayAsk(ctx, c.asked); err != nil {
		return err // first: others may get an answer to what is invalid here
	}
	if invalid != nil {
		return invalid
	}
	plan, err := set.Plan(c.asked)
	if err != nil {
		return err
	}
	c.plan = plan
	for i := range c.quota {
		c.quota[i] = s.options.quotaOf(nil)
	}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; !a.Rule.OnTrial {
			c.quota[a.Descriptor] = s.options.quotaOf(a.Rule)
		}
	}
	return prepare(c.asked, plan)
}

// report logs a failure of the store and returns it.
func (s *Service) report(ctx context.Context, err error) error {
	if !isInvalid(err) {
		s.options.Logger.WarnContext(ctx, "the store reached no decision", "protocol", "rls", "error", err)
	}
	return err
}

// A call is the memory of one decision, reused by later ones. Its slices have an element
// for each descriptor.
type call struct {
	asked   *rules.Request // own, or that of a remembered message, which all its calls read
	own     rules.Request
	plan    *rules.Plan
	rulings []ruling
	quota   []quota
	over    []bool        // the descriptor is known to be over its limits
	rules   []*rules.Rule // nil for a descriptor without a rule
	answer  Answer
	limits  []CurrentLimit // of the answer's statuses, used or not
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(descriptors int) *call {
	c := calls.Get().(*call)
	c.own.Descriptors = slices.Grow(c.own.Descriptors, descriptors)[:descriptors]
	c.own.Each = slices.Grow(c.own.Each, descriptors)[:descriptors]
	c.rulings = slices.Grow(c.rulings, descriptors)[:descriptors]
	c.quota = slices.Grow(c.quota, descriptors)[:descriptors]
	c.over = slices.Grow(c.over, descriptors)[:descriptors]
	c.rules = slices.Grow(c.rules, descriptors)[:descriptors]
	c.answer.Statuses = slices.Grow(c.answer.Statuses, descriptors)[:descriptors]
	c.limits = slices.Grow(c.limits, descriptors)[:descriptors]
	return c
}

// free lets later calls reuse the memory.
func (c *call) free() {
	clear(c.own.Descriptors)
	clear(c.own.Each)
	clear(c.rulings)
	clear(c.over)
	clear(c.rules)
	clear(c.answer.Statuses)
	clear(c.limits)
	*c = call{
		own:     rules.Request{Descriptors: c.own.Descriptors[:0], Each: c.own.Each[:0]},
		rulings: c.rulings[:0], quota: c.quota[:0], over: c.over[:0], rules: c.rules[:0],
		answer: Answer{Statuses: c.answer.Statuses[:0]}, limits: c.limits[:0],
	}
	calls.Put(c)
}
