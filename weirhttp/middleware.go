// Package weirhttp puts limits in front of net/http handlers, and lets clients
// keep to the limits of others: [Middleware] refuses, [Transport] waits.
package weirhttp

import (
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
// with 429 and lets requests pass while the store is away. Its functions are
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
	// OnError, if set, hears of every request for which no key, no decision or
	// no correction was reached.
	OnError func(*http.Request, error)
	// FailClosed answers 503 where no decision was reached. Otherwise the
	// request passes. Errors of the class [weir.ErrInvalid] are not the store's:
	// they are answered with 500 either way.
	FailClosed bool
	// Timeout is how long a request may wait for its decision. Zero:
	// [DefaultTimeout].
	Timeout time.Duration
}

// Middleware returns what puts the limiter in front of a handler. It panics if
// the limiter is nil. Concurrency limits are not for it.
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
	d := &door{Options: o, choose: choose, gate: gate.Gate{Prefix: o.Prefix, Timeout: o.Timeout}}
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
	act := d.take(r, limiter)
	if act.Err != nil {
		d.fail(w, r, act.Err, next)
		return
	}
	d.tell(w.Header(), act)
	if !act.Allowed() {
		d.OnLimit(w, r, act.Decisions[weir.Strictest(act.Charges, act.Decisions)])
		return
	}
	if d.Charge == nil {
		next.ServeHTTP(w, r)
		return
	}
	d.serveAndCharge(w, r, next, charged{limiter, act})
}

func (d *door) take(r *http.Request, limiter *weir.Limiter) *weir.Act {
	key, err := d.Key(r)
	if err != nil {
		d.OnError(r, err)
		key = gate.Unknown
	}
	cost := d.Cost(r)
	if cost <= 0 && d.Charge != nil {
		return d.gate.Look(r.Context(), limiter, key)
	}
	return d.gate.Take(r.Context(), limiter, key, cost)
}

// charged is what a request was charged before its handler ran.
type charged struct {
	limiter *weir.Limiter
	act     *weir.Act
}

// serveAndCharge corrects the charge by what has become of the request, also
// where the handler panics.
func (d *door) serveAndCharge(w http.ResponseWriter, r *http.Request, next http.Handler, c charged) {
	rec := &recorder{ResponseWriter: w}
	returned := false
	defer func() {
		cost := d.Charge(Response{Request: r, Status: rec.finalStatus(returned), Bytes: rec.bytes})
		if err := d.gate.Correct(r.Context(), c.limiter, c.act, cost); err != nil {
			d.OnError(r, err)
		}
	}()
	next.ServeHTTP(rec, r)
	returned = true
}
