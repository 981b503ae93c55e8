package app

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
	"github.com/weirlimit/weir/trace"
)

// decisionPaths are the paths that decide, and are traced.
var decisionPaths = []string{"/v1/auth", "/v1/take", "/v1/refund", "/v1/settle", "/v1/release", "/v1/renew", "/v1/reset", "/v1/record", "/json"}

// countedPaths are the paths whose answers are counted one by one.
var countedPaths = append([]string{
	"/healthcheck", "/healthz", "/metrics", "/readyz", "/rlconfig", httpapi.DescriptionJSON, httpapi.DescriptionYAML,
}, decisionPaths...)

// telemetry observes the server: metrics, traffic, traces and logs.
type telemetry struct {
	traffic *traffic.Recorder
	metrics *metrics.Metrics
	options *Options
	seldom  *slog.Logger // for warnings that repeat
	rules   func() *rules.Set
	strays  strays
	// unmatchedSeen has the unmatched requests for the dashboard.
	unmatchedSeen dashboard.Unmatched
	// connections returns the open connections by listener. It is filled before the
	// server starts.
	connections map[string]func() int
}

func newTelemetry(o *Options, r *ruleFiles) (*telemetry, error) {
	var refusals *slog.Logger
	if o.Telemetry.LogRefusals {
		refusals = o.Logger
	}
	t := &telemetry{options: o, seldom: withoutRepeats(o.Logger, time.Now), rules: r.Load, connections: map[string]func() int{}}
	var err error
	t.traffic, err = traffic.New(r.Load(), traffic.Options{NearLimitRatio: o.Telemetry.NearLimitRatio, Refusals: refusals})
	if err != nil {
		return nil, err
	}
	t.metrics = metrics.New(metrics.Options{
		Traffic: t.traffic, Envoyproxy: o.Telemetry.EnvoyproxyMetrics, NearLimitRatio: o.Telemetry.NearLimitRatio, Logger: o.Logger,
	})
	t.metrics.Follow(r.Load())
	r.follow = func(set *rules.Set) {
		t.traffic.Follow(set)
		t.metrics.Follow(set)
	}
	return t, nil
}

// frontEnd returns the engine as one front end asks it.
func (t *telemetry) frontEnd(name string, e *engine) weir.Taker {
	taker := weir.Taker(e)
	// Another service's answers are compared, and Weir's refuse nothing.
	shadow := name == "rls" && (t.options.RLS.Shadow || t.options.RLSCompare != "")
	if t.options.Telemetry.Tracing != nil {
		taker = trace.Wrap(taker, trace.Options{Seen: t.seen(shadow)})
	}
	return observe.Wrap(taker, observe.Options{Observer: t.metrics.FrontEnd(name, !shadow)})
}

// seen returns what callers see of a limit, for spans; shadow is for a front end that
// enforces none.
func (t *telemetry) seen(shadow bool) func(*weir.Limit) (refusals, errors bool) {
	return func(l *weir.Limit) (refusals, errors bool) {
		r := t.rules().Watched(l)
		return r == nil && !shadow, r == nil || !r.OnTrial
	}
}

// decided returns the observer of the requests of Envoy's service, or nil if there is
// none.
func (t *telemetry) decided() func(*rules.Request, *rules.Plan) {
	if !t.options.Telemetry.EnvoyproxyMetrics {
		return nil
	}
	return t.metrics.Decided
}

// http counts the requests of a handler, and traces those that decide.
func (t *telemetry) http(next http.Handler) http.Handler {
	return t.metrics.HTTP(t.options.Telemetry.Tracing.HTTP(next, decisionPaths...), countedPaths...)
}

// panics returns the function that reports the panics of a listener's calls.
func (t *telemetry) panics(listener string) *panics.Reporter {
	return &panics.Reporter{Listener: listener, Logger: t.options.Logger, Count: t.metrics.Panicked(listener)}
}

// rejections returns the function that counts the connections and calls that a listener
// rejects before it has read them. It logs each reason at most once a second.
func (t *telemetry) rejections(listener string) func(admission.Reason) {
	var logged sync.Map // of *logs.Seldom by reason
	return func(reason admission.Reason) {
		t.metrics.Rejected(listener, string(reason))
		seldom, _ := logged.LoadOrStore(reason, new(logs.Seldom))
		if _, due := seldom.(*logs.Seldom).Due(); due {
			t.options.Logger.Warn("connections or calls are rejected before they are read", "listener", listener, "reason", string(reason))
		}
	}
}

// unmatched counts a request that no rule applies to, logs its domain at most once a
// minute, and reports whether to refuse it.
func (t *telemetry) unmatched(req *rules.Request, why rules.Unmatched) (refused bool) {
	refused = t.options.Unmatched == refuse
	t.metrics.Unmatched(req.Domain, why)
	t.unmatchedSeen.Add(req, time.Now())
	if t.strays.due(why, req.Domain, time.Now()) {
		level, message := slog.LevelInfo, "no rule of the domain matches a request"
		if why == rules.UnmatchedDomain {
			level, message = slog.LevelWarn, "a request has an unknown domain"
		}
		domain, keys := dashboard.UnmatchedNames(req)
		t.options.Logger.Log(context.Background(), level, message, "domain", domain, "keys", keys, "refused", refused)
	}
	return refused
}

const (
	// strayPause is how long a domain of unmatched requests is not logged again.
	strayPause = time.Minute
	// maxStrays is the number of domains that are logged in that time.
	maxStrays = 20
)

// strays are the domains of unmatched requests that were logged since an instant.
type strays struct {
	mu     sync.Mutex
	since  time.Time
	logged map[string]bool
}

// due reports whether to log a domain.
func (s *strays) due(why rules.Unmatched, domain string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= strayPause {
		s.since, s.logged = now, map[string]bool{}
	}
	key := string(why) + " " + domain
	if len(s.logged) >= maxStrays || s.logged[key] {
		return false
	}
	s.logged[key] = true
	return true
}

// watch makes the metrics read the state of all parts.
func (t *telemetry) watch(a *App) {
	e := a.engine
	s := metrics.Sources{
		Config:       a.rules.state,
		Overrides:    func() int { return len(e.Override.List()) },
		RequestBytes: a.budget.Held,
		Connections:  t.connections,
	}
	if e.KeyLimit != nil {
		s.KeyLimits = e.KeyLimit.Stats
	}
	if e.DenyCache != nil {
		s.DenyCache = e.DenyCache.Stats
	}
	if e.Lease != nil {
		s.Lease = e.Lease.Stats
	}
	if e.Remote != nil {
		s.Remote = e.Remote.Stats
	}
	if a.quotas != nil {
		s.RLQS = a.quotas.Stats
	}
	switch store := e.store.Taker.(type) {
	case *memengine.Store:
		s.Memory = store.Stats
	case *redisengine.Store:
		s.Redis = func() metrics.Redis {
			return metrics.Redis{PoolStats: *e.store.Client.PoolStats(), Foreign: store.Foreign()}
		}
	}
	if a.rules.xds != nil {
		s.XDS = a.rules.xds.Status
	}
	t.metrics.Watch(s)
}
