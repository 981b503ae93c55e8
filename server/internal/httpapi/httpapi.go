// Package httpapi answers over HTTP: GET /v1/auth for the sub-requests of
// proxies, POST /v1/take for programs, with /v1/refund, /v1/settle, /v1/release and
// /v1/renew for what they took, /healthz and /readyz for whoever watches the
// process. It turns a call into a [rules.Request], has the plan of it taken,
// and turns the decisions into a status, headers and a body. What it does not
// know, it does not decide.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// DefaultTimeout is how long a call may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = time.Second

// Options are what [New] needs. Rules and Taker are required.
type Options struct {
	// Rules returns the rules in force. It is called once for each call, from
	// many goroutines, and must never return nil.
	Rules func() *rules.Set
	// Taker decides.
	Taker weir.Taker
	// Timeout is how long a call may wait for its decision, or up to a sixteenth
	// less: calls that begin together end together. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Headers is how the limits are told in headers. Zero: [HeadersDraft11].
	Headers HeaderStyle
	// ClientIP finds the address that from=KEY=client_ip stands for. Zero:
	// [clientip.RemoteAddr].
	ClientIP clientip.Strategy
	// Ready returns what /readyz reports: the server is ready if no check has
	// an error. Nil: always ready.
	Ready func(ctx context.Context) []Check
	// Trusted reports whether a caller may read the details of /readyz. Nil: nobody
	// may.
	Trusted func(r *http.Request) bool
	// Bounds are how large a request may be.
	Bounds rules.Bounds
	// Budget bounds what bodies hold while they are read and decoded. Nil: nothing
	// does.
	Budget *admission.Budget
	// Rejected, if not nil, is told of requests that found no room in the budget.
	Rejected func(admission.Reason)
	// Logger is told, at most once a second, that the store fails. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// api is the state that the handlers share.
type api struct {
	Options
	ends       *deadline.Group
	lastLogged atomic.Int64 // unix seconds
}

// New returns the handler of the whole interface. It starts nothing and is safe
// for concurrent use. The error is a [*weir.InvalidError].
func New(o Options) (http.Handler, error) {
	switch {
	case o.Rules == nil:
		return nil, invalid("Rules", "nil", "a function that returns the rules")
	case o.Taker == nil:
		return nil, invalid("Taker", "nil", "a store")
	case o.Timeout < 0:
		return nil, invalid("Timeout", o.Timeout.String(), "a positive duration")
	case int(o.Headers) >= len(headerStyles):
		return nil, invalid("Headers", o.Headers.String(), "one of "+HeaderStyleNames())
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	a := &api{Options: o, ends: deadline.NewGroup(o.Timeout)}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/auth", a.auth)
	for _, kind := range []weir.Kind{weir.KindTake, weir.KindRefund, weir.KindSettle, weir.KindRelease, weir.KindRenew} {
		mux.HandleFunc("POST /v1/"+kind.String(), a.act(kind))
	}
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	describe(mux)
	return quick(map[string]http.HandlerFunc{"/v1/auth": a.auth}, found(mux)), nil
}

// decide has the request decided, if its caller may ask for that, and judges the answer, the plan of which is the
// caller's to free. An error means that no decision was reached.
func (a *api) decide(r *http.Request, req *rules.Request, v *verdict) error {
	if err := callers.MayAsk(r.Context(), req); err != nil {
		return err
	}
	req.Bounds = a.Bounds
	plan, err := a.Rules().Plan(req)
	if err != nil {
		if mistake := new(weir.InvalidError); errors.As(err, &mistake) {
			return spelled(mistake, req)
		}
		return err
	}
	if len(plan.Acts) > 0 {
		// A caller who hangs up must not leave a charge half known; the wait is
		// bounded anyway.
		plan.Take(a.ends.Context(r.Context()), a.Taker)
	}
	if err := plan.Err(); err != nil {
		return err
	}
	v.judge(req, plan)
	return nil
}

// report logs a failure of the store, unless one was logged this second.
func (a *api) report(r *http.Request, err error) {
	now := time.Now().Unix()
	if last := a.lastLogged.Load(); last != now && a.lastLogged.CompareAndSwap(last, now) {
		a.Logger.WarnContext(r.Context(), "the store reached no decision", "path", r.URL.Path, "error", err)
	}
}
