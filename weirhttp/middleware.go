// Package weirhttp puts limits in front of net/http handlers, and lets clients
// keep to the limits of others: [Middleware] refuses, [Transport] waits.
package weirhttp

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gate"
)

// DefaultTimeout is how long a request may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = gate.DefaultTimeout

// Options are the settings of a [Middleware]. The zero value limits each client
// address as the connection has it, charges one unit a request, answers refusals
// with 429 and lets requests pass while the store is unreachable. Its functions are
// called from many goroutines.
type Options struct {
	// Key says whose budget a request is charged to. Nil: [KeyByIP] with
	// clientip.RemoteAddr. Requests for which it fails share one budget, and
	// OnError is told.
	Key KeyFunc
	// Prefix stands before every key. Limiters of one store need one each, unless
	// they are to share budgets.
	Prefix string
	// Cost is what a request costs, in units. Nil: 1. What is below 0 counts as
	// 0, what is above [weir.MaxCost] as that.
	Cost func(*http.Request) int64
	// Charge, if set, says after the response what the request has cost: the
	// difference to Cost is given back or charged, even if it does not fit. It
	// is called once the handler has returned, or panicked. Where Cost was 0 the
	// request was let in because one unit was left, which any number of requests
	// can be at the same time.
	Charge func(Response) int64
	// Skip, if set, reports that a request is not limited.
	Skip func(*http.Request) bool
	// Headers is how the limits are told. Zero: [HeadersDraft11].
	Headers HeaderStyle
	// OnLimit, if set, answers refused requests, whose headers are already set.
	// Nil: 429 with a problem document, or text for who reads none.
	OnLimit func(http.ResponseWriter, *http.Request, weir.Decision)
	// OnError, if set, hears of every request for which no key, no decision, no
	// correction or no renewal of its place was reached; of renewals while the
	// handler runs.
	OnError func(*http.Request, error)
	// FailClosed answers 503 where no decision was reached. Otherwise the
	// request passes. Errors of the class [weir.ErrInvalid] are not the store's:
	// they are answered with 500 either way.
	FailClosed bool
	// Timeout is how long a request may wait for its decision. A store in Redis with
	// the layers of package stack around it answers earlier, and at once while it
	// knows that Redis does not answer. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Logger receives a line when decisions begin to fail and one when they are
	// reached again, and none for each request: that is for OnError. Nil: none.
	Logger *slog.Logger
}

// Middleware returns what puts the limiter in front of a handler. It panics if
// the limiter is nil.
//
// Under a concurrency limit a request, whatever it costs, holds one place until
// its handler returns or panics, also where the client has gone or the handler
// has taken the connection over. The place is renewed three times in the limit's
// Period, so that handlers may take longer than that, while those of a host that
// died end with it. Without renewal the handler goes on all the same, and OnError
// is told.
func Middleware(limiter *weir.Limiter, o Options) func(http.Handler) http.Handler {
	if limiter == nil {
		panic("weirhttp: no limiter")
	}
	return MiddlewareFunc(func(*http.Request) *weir.Limiter { return limiter }, o)
}

// MiddlewareFunc is Middleware with a limiter chosen for each request, such as
// by the plan of its tenant. A request for which choose returns nil is not
// limited.
func MiddlewareFunc(choose func(*http.Request) *weir.Limiter, o Options) func(http.Handler) http.Handler {
	if choose == nil {
		panic("weirhttp: no function that chooses a limiter")
	}
	d := &door{Options: o, choose: choose, gate: gate.Gate{Prefix: o.Prefix, Timeout: o.Timeout, Logger: o.Logger}}
	d.complete()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, next) })
	}
}

// door is the state of a middleware.
type door struct {
	Options
	choose func(*http.Request) *weir.Limiter
	gate   gate.Gate
}

func (d *door) complete() {
	if d.Key == nil {
		d.Key = defaultKey
	}
	if d.Cost == nil {
		d.Cost = func(*http.Request) int64 { return 1 }
	}
	if d.OnLimit == nil {
		d.OnLimit = d.refuse
	}
	if d.OnError == nil {
		d.OnError = func(*http.Request, error) {}
	}
}

func (d *door) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	limiter := d.choose(r)
	if limiter == nil || d.Skip != nil && d.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	visit := d.enter(r, limiter)
	act := visit.Act
	if act.Err != nil {
		d.fail(w, r, act.Err, next)
		return
	}
	d.tell(w.Header(), act)
	switch {
	case !act.Allowed():
		d.OnLimit(w, r, act.Decisions[weir.Strictest(act.Charges, act.Decisions)])
	case d.Charge != nil:
		d.serveAndCharge(w, r, next, visit)
	case visit.Holds():
		defer func() { d.left(r, visit.Leave(r.Context())) }()
		next.ServeHTTP(w, r)
	default:
		next.ServeHTTP(w, r)
	}
}

func (d *door) enter(r *http.Request, limiter *weir.Limiter) *gate.Visit {
	key, err := d.Key(r)
	if err != nil {
		d.OnError(r, err)
		key = gate.Unknown
	}
	return d.gate.Enter(r.Context(), gate.Request{
		Limiter: limiter, Key: key, Cost: d.Cost(r), Later: d.Charge != nil,
		Failed: func(err error) { d.OnError(r, err) },
	})
}

// serveAndCharge corrects the charge by what has become of the request, also
// where the handler panics.
func (d *door) serveAndCharge(w http.ResponseWriter, r *http.Request, next http.Handler, visit *gate.Visit) {
	rec := &recorder{ResponseWriter: w}
	returned := false
	defer func() {
		cost := d.Charge(Response{Request: r, Status: rec.finalStatus(returned), Bytes: rec.bytes})
		d.left(r, visit.LeaveAt(r.Context(), cost))
	}()
	next.ServeHTTP(rec, r)
	returned = true
}

// left tells why a request could not leave as it should.
func (d *door) left(r *http.Request, err error) {
	if err != nil {
		d.OnError(r, err)
	}
}
