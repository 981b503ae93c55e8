// Package admin serves the people who run a server, on a listener of its own: the rules
// in force, the state of a key, changes of single keys for a time, and the profiles of
// the process. Nothing here is for clients.
package admin

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/browsers"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// DefaultTimeout is how long a call may wait for the store unless [Options.Timeout]
	// says otherwise.
	DefaultTimeout = time.Second
	// DefaultFor is the duration of an override that states none.
	DefaultFor = time.Hour
	// MaxFor is the longest duration of an override.
	MaxFor = 30 * 24 * time.Hour
	// MaxRaise is the longest duration of a raise.
	MaxRaise = 366 * 24 * time.Hour
	// ThrottleDomain is the domain of the keys of CL.THROTTLE, unless the rules have a
	// domain of that name.
	ThrottleDomain = "cl.throttle"
)

// Options are what [New] needs. Rules, Taker and Overrides are required.
type Options struct {
	// Rules returns the rules in force. It must never return nil.
	Rules func() *rules.Set
	// Loaded returns where the rules come from. Nil: unknown.
	Loaded func() Loaded
	// Taker decides, under the overrides.
	Taker weir.Taker
	// Overrides are those of this process.
	Overrides *override.Layer
	// Announcer publishes overrides to other instances. Nil: there are none.
	Announcer override.Announcer
	// ThrottleKey returns the key that CL.THROTTLE charges for a key of a client. Nil:
	// there is no such command.
	ThrottleKey func(key string) string
	// Mounts are further handlers by pattern, such as /readyz and /metrics, for callers
	// that may read every domain.
	Mounts map[string]http.Handler
	// Free are handlers by pattern for every caller.
	Free map[string]http.Handler
	// Callers authenticates callers. Nil: nobody needs a token.
	Callers *callers.Authenticator
	// Login admits browsers, which cannot send the token with each call. Nil: there is no
	// login.
	Login Login
	// Loopback says that only this machine reaches the listener. Calls must then name it
	// as this machine, which a web page cannot make a browser do.
	Loopback bool
	// Hosts are further names by which callers may name the listener. Nil: only localhost
	// and loopback addresses.
	Hosts []string
	// Timeout is how long a call may wait for the store. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Now is the clock. Nil: the machine's.
	Now func() time.Time
	// Logger gets a line for each change, with "audit", and for each failure of the
	// store. Nil: nothing is logged.
	Logger *slog.Logger
}

// A Login admits people who have logged in with a token. It is safe for concurrent use.
type Login interface {
	// Admits returns the identity of the sender, and whether the request belongs to a
	// session.
	Admits(r *http.Request) (*callers.Identity, bool)
	// Ask answers a request without a session if it is part of the login; otherwise it
	// does nothing and returns false.
	Ask(w http.ResponseWriter, r *http.Request) bool
}

// Loaded describes where the rules in force come from.
type Loaded struct {
	// Path is the file or folder; empty for the demonstration rules.
	Path string
	// Revision is a digest of the files when they were loaded; empty without files.
	Revision string
	// Version is the name that a management server gives the rules; empty for files.
	Version string
	// At is when the rules came into force.
	At time.Time
	// Err is the error of files that have changed since and are not in force; nil if
	// there is none.
	Err error
}

// api is the state that the handlers share.
type api struct{ Options }

// New returns the handler of the whole interface. It starts nothing and is safe for
// concurrent use.
func New(o Options) http.Handler {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &api{o}
	return a.guard(a.routes())
}

// program returns the name of the program, but not its arguments, which may contain the
// password of a store URL.
func program(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0])
}

const (
	// profiles is the path of the profiles.
	profiles = "/debug/pprof/"
	// maxProfile is the longest profile in seconds: recording costs the process.
	maxProfile = 60
)

// brief refuses a profile that takes longer than maxProfile.
func brief(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds := r.FormValue("seconds")
		if n, err := strconv.ParseFloat(seconds, 64); seconds != "" && (err != nil || !(n >= 0 && n <= maxProfile)) {
			fail(w, r, problem.Invalid("seconds", seconds, "0 … "+strconv.Itoa(maxProfile)))
			return
		}
		next(w, r)
	}
}

func (a *api) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/rules", reading(a.rules))
	mux.HandleFunc("GET /v1/key", a.get)
	mux.HandleFunc("GET /v1/overrides", reading(a.list))
	for name, do := range actions {
		mux.HandleFunc("POST /v1/key/"+name, a.change(name, do))
	}
	mux.HandleFunc("GET "+profiles, reading(brief(pprof.Index)))
	mux.HandleFunc("GET /debug/pprof/cmdline", reading(program))
	mux.HandleFunc("GET /debug/pprof/profile", reading(brief(pprof.Profile)))
	mux.HandleFunc("GET /debug/pprof/symbol", reading(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", reading(brief(pprof.Trace)))
	for pattern, handler := range a.Mounts {
		if pattern != "GET /healthz" {
			handler = reading(handler.ServeHTTP)
		}
		mux.Handle(pattern, handler)
	}
	for pattern, handler := range a.Free {
		mux.Handle(pattern, handler)
	}
	return mux
}

// fail answers a call that was not carried out.
func fail(w http.ResponseWriter, r *http.Request, err error) { problemOf(err).Write(w, r) }

// problemOf returns the problem that describes an error to an administrator, who may
// see the store's own words.
func problemOf(err error) *problem.Document {
	if mistake := new(weir.InvalidError); errors.As(err, &mistake) {
		switch mistake.Field {
		case "overrides":
			return full(mistake.Want)
		case "guarantee":
			return guaranteed(mistake.Value + " is above it: want " + mistake.Want)
		}
	}
	if p := problem.Of(err); p != nil {
		return p
	}
	return &problem.Document{
		Status: http.StatusServiceUnavailable, Code: "store",
		Detail: "the store reached no decision: " + err.Error(),
	}
}

func full(want string) *problem.Document {
	return &problem.Document{
		Status: http.StatusConflict, Code: "full", Field: "overrides",
		Detail: "the number of overrides is at its maximum, " + want + ": clear some, or wait until they end",
	}
}

// guard admits callers and protects against other web pages. /healthz needs no token.
func (a *api) guard(next http.Handler) http.Handler {
	next, strangers := browsers.Protect(next), browsers.Protect(http.HandlerFunc(a.stranger))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case a.Loopback && !browsers.Local(r.Host, a.Hosts):
			fail(w, r, browsers.Misdirected(r.Host))
		case browsers.Embedded(r) || browsers.Foreign(r) && strings.HasPrefix(r.URL.Path, profiles):
			fail(w, r, browsers.CrossSite())
		case a.Callers == nil || r.URL.Path == "/healthz":
			next.ServeHTTP(w, r)
		default:
			who, known := a.admits(r)
			if !known {
				strangers.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r.WithContext(callers.NewContext(r.Context(), who)))
		}
	})
}

// stranger answers a caller that is not admitted: with the login if the request is part
// of it, else with 401.
func (a *api) stranger(w http.ResponseWriter, r *http.Request) {
	if a.Login != nil && a.Login.Ask(w, r) {
		return
	}
	callers.FromRequest(r).HangUp(w)
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
	fail(w, r, &problem.Document{
		Status: http.StatusUnauthorized, Field: "authorization",
		Detail: `want a token, as "Authorization: Bearer …"`,
	})
}

// admits returns the identity of a caller, and whether its credentials or its session are
// valid.
func (a *api) admits(r *http.Request) (*callers.Identity, bool) {
	shown := callers.FromRequest(r)
	if !shown.Shown && a.Login != nil {
		if who, known := a.Login.Admits(r); known {
			return who, true
		}
	}
	return a.Callers.Authenticate(shown)
}

// reading admits callers that may read every domain.
func reading(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := callers.FromContext(r.Context()).May(callers.AdminRead, callers.AllDomains); err != nil {
			fail(w, r, err)
			return
		}
		next(w, r)
	}
}

// caller describes the caller for the audit log.
func (a *api) caller(r *http.Request) string {
	who := callers.FromContext(r.Context())
	switch {
	case who.Name() != "":
		return "caller " + who.Name()
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return "certificate " + r.TLS.VerifiedChains[0][0].Subject.String()
	case a.Callers != nil && !callers.FromRequest(r).Shown:
		return "login"
	case a.Callers != nil:
		return "token"
	}
	return "anybody on this machine"
}

// bounded returns a context that ends after Timeout, but not with the client's
// connection.
func (a *api) bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), a.Timeout)
}
