package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

const (
	// checkPatience is how long /readyz waits for the store: less than the second that
	// Kubernetes gives a probe.
	checkPatience = 500 * time.Millisecond
	// healthName is the service that Envoy's health checks ask for, as
	// envoyproxy/ratelimit calls it.
	healthName = "ratelimit"
)

var errDraining = errors.New("draining: the process is about to end")

// health knows whether the server is ready.
type health struct {
	options *Options
	engine  *engine
	rules   *ruleFiles
	// rpc is gRPC's health service. Its watchers leave when the server stops.
	rpc      *grpchealth.Server
	watching context.Context
	unwatch  context.CancelFunc
	findings findings
	compared func(context.Context) httpapi.Check // nil without another service
	// issuer returns until when tokens are checked and why their keys could not be read last; nil
	// without tokens.
	issuer func() (until time.Time, err error)

	reached  atomic.Bool // the store has answered once
	draining atomic.Bool
}

func newHealth(o *Options, e *engine, r *ruleFiles) *health {
	h := &health{options: o, engine: e, rules: r, rpc: grpchealth.NewServer()}
	h.findings = findings{ask: e.store.Check, logger: o.Logger}
	h.watching, h.unwatch = context.WithCancel(context.Background())
	h.rpc.SetServingStatus(healthName, healthv1.HealthCheckResponse_NOT_SERVING)
	r.arrived = h.serve
	if e.peers != nil {
		e.peers.Joined = h.serve
	}
	return h
}

// serve makes gRPC's health checks pass once the store has answered, the other instances count
// this one, and there are rules.
func (h *health) serve() {
	if h.reached.Load() && h.engine.joined() && h.rules.missing() == nil {
		h.rpc.SetServingStatus(healthName, healthv1.HealthCheckResponse_SERVING)
	}
}

// checks returns the parts of /readyz. An outage of a store that has answered once does
// not make the server unready: each rule's policy answers, and it would not help if a
// balancer took every instance out at once.
func (h *health) checks(ctx context.Context) []httpapi.Check {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	store := h.storeCheck(ctx)
	checks := []httpapi.Check{{Name: "serving", Err: h.drainingError(), Brief: "draining"}, store}
	if h.reached.Load() {
		if err := h.engine.join(ctx); err != nil {
			checks = append(checks, httpapi.Check{Name: "instances", Err: err, Brief: "the other instances do not count this one yet"})
		}
	}
	if err := h.engine.keysError(); err != nil {
		checks = append(checks, httpapi.Check{Name: "keys", Err: err, Bearable: true})
	}
	if h.engine.store.Client != nil && h.reached.Load() {
		if c, known := h.findings.check(ctx, store.Err); known {
			checks = append(checks, c)
		}
	}
	if h.compared != nil {
		checks = append(checks, h.compared(ctx))
	}
	if h.issuer != nil {
		checks = append(checks, h.keysCheck())
	}
	checks = append(checks, h.rules.xdsChecks()...)
	if h.rules.watched() {
		// The last good rules go on serving.
		checks = append(checks, httpapi.Check{Name: "rules", Err: h.rules.err(), Brief: "the last good rules are in force", Bearable: true})
	}
	return checks
}

// keysCheck reports whether tokens can be checked. Keys that were read once stay in force for a
// while; after that other callers may still be known, and the others are told why they are not.
func (h *health) keysCheck() httpapi.Check {
	until, err := h.issuer()
	c := httpapi.Check{Name: "jwt keys", Err: err, Bearable: !until.IsZero()}
	switch {
	case until.IsZero():
		c.Brief = "the keys of the issuer were not read yet"
	case time.Now().Before(until):
		c.Brief = "the keys of the issuer cannot be read; the last ones are in force until " + until.UTC().Format(time.RFC3339)
	default:
		c.Brief = "the keys of the issuer could not be read for 24 hours: its tokens are refused"
	}
	return c
}

// storeCheck reports whether the store decides.
func (h *health) storeCheck(ctx context.Context) httpapi.Check {
	if !h.reached.Load() {
		return httpapi.Check{Name: "store", Err: h.reach(ctx), Brief: "the store has not answered yet"}
	}
	// The brief is for everybody: it has no address.
	brief := "unreachable"
	if r := h.engine.Remote; r != nil {
		for _, out := range r.Outages() {
			brief = "unreachable since " + out.Since.UTC().Format(time.TimeOnly)
		}
	}
	return httpapi.Check{Name: "store", Err: h.engine.probe(ctx), Brief: brief + "; limits are decided by their on_store_failure", Bearable: true}
}

// reach asks the store for a sign of life until it has given one.
func (h *health) reach(ctx context.Context) error {
	if h.reached.Load() {
		return nil
	}
	if err := h.engine.store.Ping(ctx); err != nil {
		return err
	}
	if !h.reached.Swap(true) {
		h.serve()
		h.options.Logger.Info("the store is reachable", "store", h.engine.store.Describe())
	}
	return nil
}

// greet asks the store for a sign of life at the start, and logs if there is none.
func (h *health) greet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	if err := h.reach(ctx); err != nil {
		h.options.Logger.Warn("the store does not answer; not ready until it does", "store", h.engine.store.Describe(), "error", err)
	} else {
		h.findings.check(ctx, nil)
	}
}

// healthy returns the reason why the server cannot answer for its rules, or nil.
func (h *health) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	if err := cmp.Or(h.drainingError(), h.rules.missing()); err != nil {
		return err
	}
	if err := h.reach(ctx); err != nil {
		return err
	}
	return h.engine.join(ctx)
}

// drain makes the server not ready.
func (h *health) drain() {
	h.draining.Store(true)
	h.rpc.Shutdown()
}

func (h *health) drainingError() error {
	if h.draining.Load() {
		return errDraining
	}
	return nil
}

// healthService is gRPC's health service; a check first asks a store that has not
// answered yet.
type healthService struct {
	*grpchealth.Server
	health *health
}

// Check answers for a service by name.
func (s *healthService) Check(ctx context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if req.GetService() == healthName {
		// The remaining status names the problem.
		_ = s.health.healthy(ctx)
	}
	return s.Server.Check(ctx, req)
}

// Watch reports the health of a service until either side leaves.
func (s *healthService) Watch(req *healthv1.HealthCheckRequest, stream grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.health.watching, cancel)()
	return s.Server.Watch(req, &watcher{stream, ctx})
}

// A watcher is a stream that the server can end too.
type watcher struct {
	grpc.ServerStreamingServer[healthv1.HealthCheckResponse]
	ctx context.Context
}

// Context ends with the stream or with the server.
func (w *watcher) Context() context.Context { return w.ctx }

// findingsPause is the most that findings may be out of date.
const findingsPause = 10 * time.Second

// findings are the problems with the settings of the store's servers. The readiness check
// looks for them.
type findings struct {
	ask    func(context.Context) ([]redisengine.Finding, error)
	logger *slog.Logger

	mu     sync.Mutex // guards the fields below; never held while waiting
	asked  time.Time
	known  []redisengine.Finding
	worked bool // decisions were possible once
	asking bool
}

// check returns the findings as a part of readiness. A finding that makes decisions
// impossible keeps the server from being ready as long as none has been possible; later
// the policies of the rules answer, as during an outage. With the error trouble the
// store does not decide, and only findings that are known are worth telling.
func (f *findings) check(ctx context.Context, trouble error) (c httpapi.Check, known bool) {
	var out *outage.Error
	if !errors.As(trouble, &out) || !out.Silent() {
		f.refresh(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if trouble != nil && len(f.known) == 0 {
		return c, false
	}
	c = httpapi.Check{Name: "store settings", Bearable: true}
	var all []string
	for _, found := range f.known {
		all = append(all, found.String())
		c.Bearable = c.Bearable && (f.worked || !found.Fatal)
	}
	if len(all) > 0 {
		c.Err = errors.New(strings.Join(all, "; "))
	}
	return c, true
}

// refresh asks the store unless it was asked a moment ago, and logs new findings.
func (f *findings) refresh(ctx context.Context) {
	f.mu.Lock()
	wait := f.asking || time.Since(f.asked) < findingsPause
	f.asking = f.asking || !wait
	before := f.known
	f.mu.Unlock()
	if wait {
		return
	}
	found, err := f.ask(ctx)
	f.mu.Lock()
	f.asking = false
	if err == nil {
		f.known, f.asked = found, time.Now()
		f.worked = f.worked || !slices.ContainsFunc(found, func(one redisengine.Finding) bool { return one.Fatal })
	}
	f.mu.Unlock()
	for _, one := range found {
		if !slices.Contains(before, one) {
			level := slog.LevelWarn
			if one.Fatal {
				level = slog.LevelError
			}
			f.logger.Log(ctx, level, "the store is not as it should be", "node", one.Node, "setting", one.Setting, "found", one.Detail, "fatal", one.Fatal)
		}
	}
}
