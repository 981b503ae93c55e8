package app

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/tracing"
	"github.com/weirlimit/weir/server/internal/traffic"
	"github.com/weirlimit/weir/trace"
)

// TelemetryOptions say what the server tells about itself, beside the metrics that
// it always has at /metrics. The zero value is valid.
type TelemetryOptions struct {
	// EnvoyproxyMetrics adds the metrics of envoyproxy/ratelimit.
	EnvoyproxyMetrics bool
	// NearLimitRatio is the share of a limit, above 0 and at most 1, from which
	// on a grant counts as near the limit. Zero:
	// [traffic.DefaultNearLimitRatio].
	NearLimitRatio float64
	// LogRefusals logs refusals, for each limit at most one in its period.
	LogRefusals bool
	// Tracing makes spans of calls; its caller stops it. Nil: there are none.
	Tracing *tracing.Tracing
}

// decisionPaths are the paths that decide, which spans are made for.
var decisionPaths = []string{"/v1/auth", "/v1/take", "/v1/refund", "/v1/settle", "/v1/release", "/v1/renew", "/json"}

// countedPaths are those that answers are counted for, one by one.
var countedPaths = append([]string{
	"/healthcheck", "/healthz", "/metrics", "/readyz", "/rlconfig", httpapi.DescriptionJSON, httpapi.DescriptionYAML,
}, decisionPaths...)

// measure makes what observes the server.
func (a *App) measure(set *rules.Set) error {
	o := &a.options.Telemetry
	var refusals *slog.Logger
	if o.LogRefusals {
		refusals = a.logger
	}
	var err error
	a.traffic, err = traffic.New(set, traffic.Options{NearLimitRatio: o.NearLimitRatio, Refusals: refusals})
	if err != nil {
		return err
	}
	a.metrics, err = metrics.New(metrics.Options{
		Traffic: a.traffic, Envoyproxy: o.EnvoyproxyMetrics, NearLimitRatio: o.NearLimitRatio, Logger: a.logger,
	})
	if err != nil {
		return err
	}
	if a.reload != nil {
		a.reload.follow = func(set *rules.Set) {
			a.traffic.Follow(set)
			a.metrics.Follow(set)
		}
	}
	return nil
}

// frontEnd is the stack as one front-end asks it.
func (a *App) frontEnd(name string) weir.Taker {
	taker := weir.Taker(a.stack)
	if a.options.Telemetry.Tracing.On() {
		taker = trace.Wrap(taker, trace.Options{Standing: a.standing(name)})
	}
	return observe.Wrap(taker, observe.Options{Observer: a.metrics.FrontEnd(name)})
}

// standing says how much the callers of a front-end are told of a limit.
func (a *App) standing(frontEnd string) func(*weir.Limit) trace.Standing {
	whole := frontEnd == "rls" && a.options.RLS.Shadow
	return func(l *weir.Limit) trace.Standing {
		switch r := a.rules.Load().Watched(l); {
		case r != nil && r.OnTrial:
			return trace.Trial
		case r != nil || whole:
			return trace.Shadow
		}
		return trace.Enforced
	}
}

// decided is who is told of the requests of Envoy's service.
func (a *App) decided() func(*rules.Request, *rules.Plan) {
	if !a.options.Telemetry.EnvoyproxyMetrics {
		return nil
	}
	return a.metrics.Decided
}

// withMetrics adds GET /metrics to what is served over HTTP.
func (a *App) withMetrics(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.Handle("GET /metrics", requireRead(a.metrics.Handler()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(decisionPaths, r.URL.Path) {
			// Most calls are for one; the search would end there.
			next.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// measured counts the calls of a handler, and traces those that decide.
func (a *App) measured(next http.Handler) http.Handler {
	return a.metrics.HTTP(a.options.Telemetry.Tracing.HTTP(next, decisionPaths...), countedPaths...)
}

// interceptors are around each unary gRPC call, the first outermost.
func (a *App) interceptors(service *rls.Service, by *callers.Authenticator) []grpc.UnaryServerInterceptor {
	around := []grpc.UnaryServerInterceptor{a.metrics.Unary}
	if a.options.Telemetry.Tracing.On() {
		around = append(around, a.options.Telemetry.Tracing.Unary)
	}
	around = append(around, a.panics("grpc").Unary)
	if by != nil {
		around = append(around, unaryToken(by))
	}
	return around
}

// watch has the metrics ask all parts how they do.
func (a *App) watch() {
	s := metrics.Sources{
		Config:       a.configState,
		Distinct:     a.stack.Distinct().Stats,
		Overrides:    func() int { return len(a.stack.Override().List()) },
		RequestBytes: a.budget.Held,
		Connections: map[string]func() int{
			"http":  func() int { return int(a.open.http.Load()) },
			"grpc":  func() int { return int(a.open.grpc.Load()) },
			"admin": func() int { return int(a.open.admin.Load()) },
		},
	}
	if a.resp != nil {
		s.Connections["resp"] = a.resp.Clients
	}
	if c := a.stack.Coalesce(); c != nil {
		s.Coalesce = c.Stats
	}
	if c := a.stack.DenyCache(); c != nil {
		s.DenyCache = c.Stats
	}
	if l := a.stack.Lease(); l != nil {
		s.Lease = l.Stats
	}
	if f := a.stack.Fallback(); f != nil {
		s.Fallback = func() metrics.Fallback {
			m := metrics.Fallback{Stats: f.Stats(), Unreachable: len(a.stack.Outages())}
			if c := a.stack.Coalesce(); c != nil {
				m.Outages = c.Stats().Outages
			}
			return m
		}
	}
	switch store := a.store.Taker.(type) {
	case *memstore.Store:
		s.Memory = store.Stats
	case *redisstore.Store:
		s.Redis = func() metrics.Redis {
			return metrics.Redis{PoolStats: poolOf(a.store.client), Foreign: store.Foreign()}
		}
	}
	a.metrics.Watch(s)
}

func poolOf(client redis.UniversalClient) redis.PoolStats { return *client.PoolStats() }

func (a *App) configState() metrics.Config {
	set, told := a.rules.Load(), a.loaded.tell(a.reload)
	c := metrics.Config{
		Revision: told.Revision, Loaded: told.At, Stale: told.Err != nil, Successes: a.loaded.times.Load(),
		Domains: len(set.Domains()), Rules: len(set.Rules()),
	}
	if a.reload != nil {
		c.Failures = a.reload.failures.Load()
	}
	return c
}
