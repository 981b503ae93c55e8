package app

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rlqs"
)

// newAdmin returns the listener of administrators, with the dashboard; nil if it is off.
// The public interface answers its health checks.
func (a *App) newAdmin(api http.Handler) (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.Admin.Address == Off {
		return nil, nil
	}
	by, err := a.authenticator("admin", nil, nil)
	if err != nil {
		return nil, err
	}
	options := admin.Options{
		Rules:       a.rules.Load,
		Loaded:      a.rules.loaded,
		Taker:       a.engine,
		Overrides:   a.engine.Override,
		ThrottleKey: resp.Key,
		Mounts: map[string]http.Handler{
			"GET /healthz": api,
			"GET /readyz":  httpapi.Readiness(httpapi.Options{Ready: a.health.checks, Timeout: o.Timeout}),
			"GET /metrics": t.metrics.Handler(),
		},
		Free:     map[string]http.Handler{},
		Callers:  by,
		Loopback: onLoopback(o.Admin.Address),
		Hosts:    o.Hosts,
		Timeout:  o.Timeout,
		Logger:   o.Logger,
	}
	if a.engine.peers != nil {
		options.Announcer = a.engine.peers
	}
	var leases func() []rlqs.Lease
	if a.quotas != nil {
		leases = a.quotas.Leases
	}
	pages := dashboard.New(dashboard.Options{
		Leases: leases, Dollars: a.dollars,
		Overrides: func() []override.Override {
			return append(options.Overrides.List(), options.Overrides.Raises()...)
		},
		Rules: options.Rules, Loaded: options.Loaded, Traffic: t.traffic, ThrottleKey: resp.Key, Unmatched: &t.unmatchedSeen,
		Checks: a.health.checks, Store: a.describe, Callers: by, Secure: o.Admin.TLS != (TLS{}), Logger: o.Logger,
	})
	maps.Copy(options.Mounts, pages.Mounts())
	maps.Copy(options.Free, pages.Free())
	options.Login = pages
	handler := admin.New(options)
	s := newHTTPServer(o.Logger, 0)
	s.Handler = t.panics("admin").HTTP(handler)
	// A profile that is being made ends when the server stops.
	base, cut := context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return base }
	s.RegisterOnShutdown(cut)
	return s.listener(o, "admin", o.Admin.Address, o.Admin.TLS, o.Limits.AdminMaxConnections, t)
}

// describe returns the store, its layers and the source of the rules for the dashboard.
func (a *App) describe(ctx context.Context) dashboard.Store {
	d := a.engine.describe(ctx)
	d.Facts = append(d.Facts, a.rules.facts()...)
	return d
}

// describe returns the store and its layers for the dashboard.
func (e *engine) describe(ctx context.Context) dashboard.Store {
	fact := func(name string, value any) dashboard.Fact {
		return dashboard.Fact{Name: name, Value: fmt.Sprint(value)}
	}
	d := dashboard.Store{Facts: []dashboard.Fact{fact("Store", strings.ReplaceAll(e.store.Describe(), ",", ", "))}}
	switch s := e.store.Taker.(type) {
	case *memengine.Store:
		stats := s.Stats()
		d.Facts = append(d.Facts,
			fact("Shared by", "this process alone"),
			fact("Keys", stats.Keys),
			fact("Memory of keys", fmt.Sprintf("%.1f MiB", float64(stats.Bytes)/(1<<20))),
			dashboard.Fact{Name: "Charges that shared a budget", Value: fmt.Sprint(stats.Overflowed), Bad: stats.Overflowed > 0},
		)
	case *redisengine.Store:
		d.Nodes = e.store.Nodes(ctx)
		d.Instances = e.instances()
		pool := e.store.Client.PoolStats()
		answers := dashboard.Fact{Name: "Answers", Value: "no", Bad: true}
		begun := time.Now()
		if d.Err = e.probe(ctx); d.Err == nil {
			answers = fact("Answers", "in "+time.Since(begun).Round(10*time.Microsecond).String())
		}
		d.Facts = append(d.Facts, answers,
			fact("Instances", e.instancesText()),
			fact("Connections", fmt.Sprintf("%d, %d idle", pool.TotalConns, pool.IdleConns)),
			dashboard.Fact{Name: "Waits for a connection that timed out", Value: fmt.Sprint(pool.Timeouts), Bad: pool.Timeouts > 0},
			dashboard.Fact{Name: "Foreign values under our keys", Value: fmt.Sprint(s.Foreign()), Bad: s.Foreign() > 0},
		)
	}
	if e.Remote != nil {
		if s := e.Remote.Stats().Calls; s.Batches > 0 {
			d.Facts = append(d.Facts, fact("Acts per call", fmt.Sprintf("%.2f, at most %d", float64(s.Acts)/float64(s.Batches), s.Largest)))
		}
	}
	if e.DenyCache != nil {
		d.Facts = append(d.Facts, fact("Refusals remembered", e.DenyCache.Stats().Entries))
	}
	if e.Lease != nil {
		if s := e.Lease.Stats(); s.Keys > 0 {
			d.Facts = append(d.Facts, fact("Leased keys", fmt.Sprintf("%d, %d units leased", s.Keys, s.Left)))
		}
	}
	return d
}

// instancesText returns the number of instances that share the store, and the source of
// that number.
func (e *engine) instancesText() string {
	n := e.instances()
	switch {
	case e.options.Fallback.Instances > 0:
		return fmt.Sprintf("%d, as --instances says", n)
	case n == 1:
		return "this one alone"
	}
	return fmt.Sprintf("%d share this store", n)
}
