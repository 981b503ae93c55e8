// Package dashboard shows people, in a browser, what a server does: what became of
// requests now and in the last hours, the keys that come most, refusals as they
// happen, the rules in force and the health of the store. What it changes, it
// changes through the administrators' interface, behind the same listener.
package dashboard

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/store"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// Options are what [New] needs. Rules, Loaded, Traffic, Overrides and Checks are
// required.
type Options struct {
	// Rules returns the rules in force. It must never return nil.
	Rules func() *rules.Set
	// Loaded tells where they come from.
	Loaded func() admin.Loaded
	// Traffic is what became of requests.
	Traffic *traffic.Recorder
	// Overrides returns the changes of single keys in force.
	Overrides func() []override.Override
	// ThrottleKey returns what CL.THROTTLE charges for a key. Nil: there is no
	// such command.
	ThrottleKey func(key string) string
	// Checks is what /readyz says.
	Checks func(context.Context) []httpapi.Check
	// Store tells more about the store and what stands before it; it may wait for
	// the store as long as the context lets it. Nil: there is nothing to tell.
	Store func(context.Context) Store
	// Callers has the tokens with which people log in. A login ends when its token is
	// nobody's any more. Nil: there is no login.
	Callers *callers.Authenticator
	// Secure says that browsers reach the server by TLS only: then the cookie of
	// a session is never sent otherwise.
	Secure bool
	// Now is the clock of sessions. Nil: the machine's.
	Now func() time.Time
	// Logger gets a line for each login. Nil: nothing is logged.
	Logger *slog.Logger
}

// A Store is how the store does.
type Store struct {
	Facts []Fact
	// Nodes are its servers, as far as they are known.
	Nodes []store.Node
	// Err says why it reaches no decision; nil while it does.
	Err error
}

// A Fact is something worth knowing about a part of the server.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Bad says that something is wrong.
	Bad bool `json:"bad,omitempty"`
}

// Dashboard is the pages and what they need. It is safe for concurrent use; create
// it with New.
type Dashboard struct {
	Options
	assets   map[string]*asset // by the names that they are served under
	pages    *template.Template
	sessions sessions
	streams  atomic.Int64
}

// New returns a dashboard. It starts nothing. The error is a [*weir.InvalidError].
func New(o Options) (*Dashboard, error) {
	for field, missing := range map[string]bool{
		"Rules": o.Rules == nil, "Loaded": o.Loaded == nil, "Traffic": o.Traffic == nil,
		"Overrides": o.Overrides == nil, "Checks": o.Checks == nil,
	} {
		if missing {
			return nil, &weir.InvalidError{Field: field, Value: "nil", Want: "what the dashboard is to show"}
		}
	}
	if o.Store == nil {
		o.Store = func(context.Context) Store { return Store{} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dashboard{Options: o, assets: loadAssets()}
	d.pages = d.parsePages()
	return d, nil
}

// Mounts are the handlers by their patterns, for [admin.Options.Mounts].
func (d *Dashboard) Mounts() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /{$}":              http.HandlerFunc(d.page),
		"GET /dashboard/rules":  http.HandlerFunc(d.rulesPart),
		"GET /dashboard/events": http.HandlerFunc(d.events),
	}
}

// Free are the handlers that tell nothing about the server, by their patterns, for
// [admin.Options.Free].
func (d *Dashboard) Free() map[string]http.Handler {
	return map[string]http.Handler{
		"GET " + assetPath + "{name}": http.HandlerFunc(d.asset),
		"POST " + loginPath:           http.HandlerFunc(d.login),
		"POST " + logoutPath:          http.HandlerFunc(d.logout),
	}
}
