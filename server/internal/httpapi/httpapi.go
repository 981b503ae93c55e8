// Package httpapi answers over HTTP: GET /v1/auth for the sub-requests of proxies, POST
// /v1/take for programs, /v1/refund, /v1/settle, /v1/release and /v1/renew for what they
// took, /v1/reset and /v1/record for limits in the call, and /healthz and /readyz for probes. It turns a call into a [rules.Request],
// takes its plan, and turns the decisions into a status, headers and a body. All limits
// and policies come from the rules.
package httpapi

import (
	"cmp"
	"context"
	_ "embed" // the description of the interface
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
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
	// Headers selects the headers that describe the limits. With
	// [ratelimitheader.None] the bodies of refusals of /v1/auth name no limit either.
	Headers ratelimitheader.Style
	// ClientIP finds the address that from=KEY=client_ip stands for. Zero:
	// [clientip.RemoteAddr].
	ClientIP clientip.Strategy
	// Ready returns what /readyz reports: the server is ready if no check has
	// an error. Nil: always ready.
	Ready func(ctx context.Context) []Check
	// Trusted reports whether a caller may read the details of /readyz. Nil: nobody
	// may.
	Trusted func(r *http.Request) bool
	// Bounds limit the size of a request.
	Bounds rules.Bounds
	// Budget bounds the memory of bodies that are being read and decoded. Nil: no
	// bound.
	Budget *admission.Budget
	// RefuseOversized refuses takes whose body is too large to be read, as if they were
	// over a limit. Otherwise they get status 413.
	RefuseOversized bool
	// Rejected, if not nil, is called for each request that found no room in the
	// budget or is too large.
	Rejected func(admission.Reason)
	// Unmatched, if not nil, is called for each request that no rule applies to, and
	// reports whether to refuse it. Nil: it is allowed.
	Unmatched func(*rules.Request, rules.Unmatched) (refuse bool)
	// Logger gets a line each time that the store fails. Nil: nothing is logged.
	Logger *slog.Logger
}

// api is the state that the handlers share.
type api struct {
	Options
	ends *deadline.Group
}

// New returns the handler of the whole interface. It starts nothing and is safe
// for concurrent use.
func New(o Options) http.Handler {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	a := &api{Options: o, ends: deadline.NewGroup(o.Timeout)}
	paths := routes{
		"/v1/auth":      {http.MethodGet, a.auth},
		"/healthz":      {http.MethodGet, healthz},
		"/readyz":       {http.MethodGet, a.readyz},
		DescriptionJSON: {http.MethodGet, describe("application/json", Description)},
		DescriptionYAML: {http.MethodGet, describe("application/yaml", func() []byte { return description })},
	}
	for _, kind := range []weir.Kind{
		acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew, acts.KindReset, acts.KindRecord,
	} {
		paths["/v1/"+kind.String()] = route{http.MethodPost, func(w http.ResponseWriter, r *http.Request) { a.act(w, r, kind) }}
	}
	return paths
}

// routes are the handlers by path.
type routes map[string]route

// A route answers one method of a path; GET includes HEAD.
type route struct {
	method string
	serve  http.HandlerFunc
}

// ServeHTTP answers unknown paths with 404 and other methods with 405. It never answers
// them with 2xx, not even OPTIONS: to a proxy that would be a grant.
func (rs routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, known := rs[r.URL.Path]
	if known && (r.Method == found.method || r.Method == http.MethodHead && found.method == http.MethodGet) {
		found.serve(w, r)
		return
	}
	w.Header()["Cache-Control"] = noStore
	if !known {
		(&problem.Document{Status: http.StatusNotFound, Field: "path", Detail: "unknown path: " + DescriptionJSON + " lists all paths"}).Write(w, r)
		return
	}
	allow := found.method
	if allow == http.MethodGet {
		allow = "GET, HEAD"
	}
	w.Header().Set("Allow", allow)
	(&problem.Document{
		Status: http.StatusMethodNotAllowed, Field: "method",
		Detail: fmt.Sprintf("method is %s: want %s", problem.Shorten(r.Method), allow),
	}).Write(w, r)
}

// noStore is the value of Cache-Control in every answer.
var noStore = []string{"no-store"}

// decide decides a request if its caller is permitted to make it. The error says why
// there is no decision. Without one, the caller must free the verdict's plan.
func (a *api) decide(r *http.Request, req *rules.Request, v *verdict) error {
	if err := callers.MayAsk(r.Context(), req); err != nil {
		return err
	}
	req.Bounds = a.Bounds
	plan, err := a.Rules().Plan(req)
	if err != nil {
		return rename(err, req)
	}
	if plan.Unmatched != "" && a.Unmatched != nil && a.Unmatched(req, plan.Unmatched) && req.Kind == acts.KindTake {
		plan.Acts, plan.Applied, plan.Shared = nil, nil, nil // nothing is charged
		v.read(req, plan)
		v.allowed, v.granted = false, 0
		return nil
	}
	// The decision does not depend on the client's connection: a charge whose client hangs up
	// must not stay half known.
	if err := plan.Take(a.ends.Context(r.Context()), a.Taker); err != nil {
		return err
	}
	v.read(req, plan)
	return nil
}

// rename gives an error of the rules the field names of this interface.
func rename(err error, req *rules.Request) error {
	if mistake := new(weir.InvalidError); errors.As(err, &mistake) {
		switch mistake.Field {
		case "up_to":
			return problem.Invalid("mode", `"up_to"`, mistake.Want)
		case "max_wait":
			return problem.Invalid("max_wait_ms", strconv.FormatInt(req.MaxWait.Milliseconds(), 10), mistake.Want)
		}
	}
	return err
}

// fail answers a call that got no decision.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.Of(err)
	if p == nil {
		a.Logger.WarnContext(r.Context(), "the store reached no decision", "path", r.URL.Path, "error", err)
		p = &problem.Document{Status: http.StatusServiceUnavailable, Detail: "the store reached no decision"}
		if acts.Kept(err) {
			p.Detail += ": it will get this, repeat it for the numbers"
		}
		w.Header().Set("Retry-After", "1")
	}
	w.Header()["Cache-Control"] = noStore
	p.Write(w, r)
}

// Paths of the OpenAPI document of everything that the server answers over HTTP.
const (
	DescriptionJSON = "/openapi.json"
	DescriptionYAML = "/openapi.yaml"
)

//go:embed openapi.yaml
var description []byte

// Description returns the OpenAPI document as JSON. The caller must not change the bytes.
var Description = sync.OnceValue(func() []byte {
	var document any
	err := yaml.Unmarshal(description, &document)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi.yaml: %v", err))
	}
	return append(text, '\n')
})

func describe(contentType string, text func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(text())
	}
}
