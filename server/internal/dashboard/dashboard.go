// Package dashboard serves a web page for the people who run a server: traffic now and in
// the last hours, the top keys, live refusals, the rules in force and the health of the
// store. It makes changes through the admin API, and needs the same token.
package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/rlqs"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/store"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// Options are what [New] needs. Rules, Loaded, Traffic, Overrides, Checks and Store are
// required.
type Options struct {
	// Rules returns the rules in force. It must never return nil.
	Rules func() *rules.Set
	// Loaded returns where the rules come from.
	Loaded func() admin.Loaded
	// Traffic has the results of requests.
	Traffic *traffic.Recorder
	// Overrides returns the overrides and the raises of single keys.
	Overrides func() []override.Override
	// Unmatched has the requests that no rule applied to. Nil: none.
	Unmatched *Unmatched
	// ThrottleKey returns the key that CL.THROTTLE charges for a key of a client. Nil:
	// there is no such command.
	ThrottleKey func(key string) string
	// Leases returns what Envoys have leased. Nil: there is no quota service.
	Leases func() []rlqs.Lease
	// Dollars returns the budgets of the callers of language models. Nil: there is no proxy for
	// them.
	Dollars func(context.Context) []Budget
	// Checks returns the checks of /readyz.
	Checks func(context.Context) []httpapi.Check
	// Store returns details of the store; it may wait for the store until the context
	// ends.
	Store func(context.Context) Store
	// Callers validates the tokens with which people log in. A session ends when its
	// token is no longer valid. Nil: there is no login.
	Callers *callers.Authenticator
	// Secure says that browsers reach the server by TLS only, so that session cookies are
	// never sent without.
	Secure bool
	// Logger gets a line for each login. Nil: nothing is logged.
	Logger *slog.Logger
}

// A Store is the state of the store.
type Store struct {
	Facts []Fact
	// Nodes are its known servers.
	Nodes []store.Node
	// Instances is the number of instances that share it; 0 if none can.
	Instances int
	// Err is the error of an outage; nil while the store decides.
	Err error
}

// A Fact is a detail of a part of the server.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Bad says that something is wrong.
	Bad bool `json:"bad,omitempty"`
}

// Dashboard serves the pages. It is safe for concurrent use; create it with New.
type Dashboard struct {
	Options
	assets   map[string]*asset // by the names under which they are served
	pages    *template.Template
	sessions sessions
	streams  atomic.Int64
	refused  logs.Seldom // logins
}

// New returns a dashboard. It starts nothing.
func New(o Options) *Dashboard {
	o.Unmatched = cmp.Or(o.Unmatched, new(Unmatched))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &Dashboard{Options: o, assets: loadAssets()}
	d.pages = d.parsePages()
	return d
}

// Mounts are the handlers by pattern, for [admin.Options.Mounts].
func (d *Dashboard) Mounts() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /{$}":              http.HandlerFunc(d.page),
		"GET /dashboard/rules":  http.HandlerFunc(d.rulesPart),
		"GET /dashboard/events": http.HandlerFunc(d.events),
	}
}

// Free are the handlers that reveal nothing about the server, by pattern, for
// [admin.Options.Free].
func (d *Dashboard) Free() map[string]http.Handler {
	return map[string]http.Handler{
		"GET " + assetPath + "{name}": http.HandlerFunc(d.asset),
		"POST " + loginPath:           http.HandlerFunc(d.login),
		"POST " + logoutPath:          http.HandlerFunc(d.logout),
	}
}
