// Package weirhttp limits HTTP on both sides: [Middleware] puts limits in front of
// net/http handlers, and [Transport] makes clients obey the limits of servers.
package weirhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/internal/recorder"
)

// Options are the settings of a [Middleware]. The zero value limits each client by the
// address of its connection, charges one unit for each request, answers refusals with
// 429, and lets requests pass while the store is unreachable. The functions are called
// from many goroutines.
type Options struct {
	// Key returns the key whose budget a request is charged to. Nil: [KeyByIP] with
	// clientip.RemoteAddr. Requests for which it fails share one budget, and
	// OnError is called.
	Key KeyFunc
	// Cost returns the cost of a request, in units, clamped to 0 … [weir.MaxCost].
	// Nil: 1.
	Cost func(*http.Request) int64
	// Charge, if set, returns the actual cost of the request after the response. The
	// difference to Cost is refunded, or charged even if it does not fit. Charge is
	// called when the handler has returned or panicked. With a Cost of 0, a request is
	// admitted if one unit remains, so several requests can be admitted at the same time.
	Charge func(Response) int64
	// Skip, if set, returns true for requests that are not limited.
	Skip func(*http.Request) bool
	// Headers selects the headers that describe the limits. Zero: [HeadersDraft11].
	Headers HeaderStyle
	// OnLimit, if set, answers refused requests, whose headers are already set.
	// Nil: 429 with a problem document, or text if the client accepts no JSON.
	OnLimit func(http.ResponseWriter, *http.Request, weir.Decision)
	// OnError, if set, is called for every request for which the key, the decision,
	// the correction or the renewal of its slot failed; for renewals while the
	// handler runs.
	OnError func(*http.Request, error)
	// FailClosed answers 503 if no decision was reached. Without it, the request passes.
	// Errors of the class [weir.ErrInvalid] are mistakes of the program and are answered
	// with 500 in both cases.
	FailClosed bool
	// Timeout is the longest time for which a request waits for its decision. During an
	// outage a store in Redis answers at once. Zero: 250 ms.
	Timeout time.Duration
	// Logger gets a line when decisions begin to fail and one when they no longer
	// do; OnError is for every single failure. Nil: nothing is logged.
	Logger *slog.Logger
}

// HeaderStyle selects the headers that describe the limits. The zero value is
// [HeadersDraft11].
type HeaderStyle uint8

// The styles. Retry-After is sent with a refusal in all of them.
const (
	// HeadersDraft11 sends RateLimit-Policy and RateLimit as
	// draft-ietf-httpapi-ratelimit-headers-11 defines them, and X-RateLimit-Limit,
	// -Remaining and -Reset (in seconds from now).
	HeadersDraft11 = HeaderStyle(ratelimitheader.Draft11)
	// HeadersXRateLimit sends the X-RateLimit headers only.
	HeadersXRateLimit = HeaderStyle(ratelimitheader.XRateLimit)
	// HeadersNone sends neither, and the body of a refusal does not describe the limits
	// either. It is for logins, where this information would reveal which account is
	// under attack.
	HeadersNone = HeaderStyle(ratelimitheader.None)
)

// A Response describes the response to a request, for [Options.Charge].
type Response struct {
	Request *http.Request
	// Status is the status that was sent: 500 if the handler panicked before it
	// sent any, 101 if it took over the connection.
	Status int
	// Bytes is the size of the body that the handler has written, before any
	// compression outside of the middleware.
	Bytes int64
}

// Middleware returns a function that puts the limiter in front of a handler. It panics
// if the limiter is nil.
//
// Under a concurrency limit, a request holds one slot until its handler returns or
// panics, whatever its cost, and even if the client disconnects or the handler takes over
// the connection. The slot is renewed three times in the limit's Period, so a handler may
// run longer than that. The slots of a host that crashed expire at the end of the Period.
// If a renewal fails the handler continues, and OnError is called.
func Middleware(limiter *weir.Limiter, o Options) func(http.Handler) http.Handler {
	if limiter == nil {
		panic("weirhttp: no limiter")
	}
	return MiddlewareFunc(func(*http.Request) *weir.Limiter { return limiter }, o)
}

// MiddlewareFunc is like [Middleware], but chooses a limiter for each request, for
// example by the plan of its tenant. If choose returns nil, the request is not limited.
func MiddlewareFunc(choose func(*http.Request) *weir.Limiter, o Options) func(http.Handler) http.Handler {
	if choose == nil {
		panic("weirhttp: no function that chooses a limiter")
	}
	if o.Key == nil {
		o.Key = KeyByIP(clientip.RemoteAddr())
	}
	if o.Cost == nil {
		o.Cost = func(*http.Request) int64 { return 1 }
	}
	if o.OnError == nil {
		o.OnError = func(*http.Request, error) {}
	}
	m := &middleware{Options: o, choose: choose, gate: gate.Gate{Timeout: o.Timeout, Logger: o.Logger}}
	if o.OnLimit == nil {
		m.OnLimit = m.refuse
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type middleware struct {
	Options
	choose func(*http.Request) *weir.Limiter
	gate   gate.Gate
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	limiter := m.choose(r)
	if limiter == nil || m.Skip != nil && m.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	visit := m.enter(r, limiter)
	act := visit.Act
	if act.Err != nil {
		m.fail(w, r, act.Err, next)
		return
	}
	answer := ratelimitheader.AnswerOf(act)
	answer.Write(w.Header(), ratelimitheader.Style(m.Headers))
	switch {
	case !act.Allowed():
		w.Header().Set("Cache-Control", "no-store")
		m.OnLimit(w, r, answer.Decision)
	case m.Charge != nil:
		m.serveAndCharge(w, r, next, visit)
	case visit.HoldsSlots():
		defer func() { m.report(r, visit.Leave(r.Context())) }()
		next.ServeHTTP(w, r)
	default:
		next.ServeHTTP(w, r)
	}
}

func (m *middleware) enter(r *http.Request, limiter *weir.Limiter) *gate.Visit {
	key, err := m.Key(r)
	if err != nil {
		m.OnError(r, err)
		key = gate.Unknown
	}
	return m.gate.Enter(r.Context(), gate.Request{
		Limiter: limiter, Key: key, Cost: m.Cost(r), ChargedLater: m.Charge != nil,
		Failed: func(err error) { m.OnError(r, err) },
	})
}

// serveAndCharge corrects the charge after the response, even if the handler panics.
func (m *middleware) serveAndCharge(w http.ResponseWriter, r *http.Request, next http.Handler, visit *gate.Visit) {
	rec := recorder.New(w)
	returned := false
	defer func() {
		status := rec.Status()
		if !returned && !rec.Begun() {
			status = http.StatusInternalServerError
		}
		cost := m.Charge(Response{Request: r, Status: status, Bytes: rec.Bytes()})
		m.report(r, visit.LeaveAt(r.Context(), cost))
	}()
	next.ServeHTTP(rec, r)
	returned = true
}

func (m *middleware) report(r *http.Request, err error) {
	if err != nil {
		m.OnError(r, err)
	}
}

// refuse answers a refused request, whose headers are set.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, decision weir.Decision) {
	p := &problem.Document{
		Type:   problem.QuotaExceeded,
		Title:  "Quota exceeded",
		Status: http.StatusTooManyRequests,
		Detail: "too many requests",
	}
	if decision.RetryAfter == weir.Never {
		p.Detail = "the request costs more than the limit can ever grant"
	} else if m.Headers != HeadersNone {
		p.Detail = fmt.Sprintf("there is room again in %d s", max(1, ratelimitheader.Seconds(decision.RetryAfter)))
	}
	p.Write(w, r)
}

// fail answers a request for which no decision was reached, or lets it pass.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	m.OnError(r, err)
	p := &problem.Document{Status: http.StatusServiceUnavailable, Detail: "the limiter reached no decision"}
	switch {
	case errors.Is(err, weir.ErrInvalid):
		p.Status = http.StatusInternalServerError
	case m.FailClosed:
		w.Header().Set("Retry-After", "1")
	default:
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	p.Write(w, r)
}
