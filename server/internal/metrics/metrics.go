// Package metrics exports a server's metrics to Prometheus: its decisions, how long they
// took, and the state of the parts behind them. Labels come from the rules and from the
// program itself, never from clients, so the configuration bounds the number of series.
// docs/metrics.md lists them.
package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// Options are what [New] needs. Traffic is required.
type Options struct {
	// Traffic counts the decisions.
	Traffic *traffic.Recorder
	// Envoyproxy adds the metrics of envoyproxy/ratelimit, under its names.
	Envoyproxy bool
	// NearLimitRatio is the share of a limit from which on envoyproxy/ratelimit's
	// metrics call hits near it. Zero: [traffic.DefaultNearLimitRatio].
	NearLimitRatio float64
	// Logger receives the errors of gathering. Nil: nothing is logged.
	Logger *slog.Logger
}

// Metrics are the metrics of one server. They are safe for concurrent use and start
// nothing. Create them with [New].
type Metrics struct {
	registry  *prometheus.Registry
	traffic   *traffic.Recorder
	logger    *slog.Logger
	decisions *prometheus.HistogramVec
	errors    *prometheus.CounterVec
	stored    prometheus.Histogram
	carried   prometheus.Histogram
	failed    *prometheus.CounterVec
	requests  *prometheus.CounterVec
	calls     *prometheus.CounterVec
	failures  *prometheus.CounterVec
	callers   *prometheus.CounterVec
	names     names // of callers
	rejected  *prometheus.CounterVec
	retired   *prometheus.CounterVec
	panics    *prometheus.CounterVec
	unmatched *prometheus.CounterVec
	compared  *prometheus.CounterVec
	domains   []string    // those that unmatched may have; only Follow reads and writes it
	envoy     *envoyproxy // nil unless wanted
}

// New returns metrics with a registry of their own.
func New(o Options) *Metrics {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), traffic: o.Traffic, logger: o.Logger,
		decisions: prometheus.NewHistogramVec(timed("weir_decision_seconds", "Time for which callers of a front end waited for decisions, by the call."), []string{"frontend"}),
		errors:    counters("weir_decision_errors_total", "Acts that ended without a decision, by the class of error.", "frontend", "class"),
		stored:    prometheus.NewHistogram(timed("weir_store_seconds", "Duration of calls to the store.")),
		carried: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_store_acts", Help: "Number of acts in a call to the store.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		failed:    counters("weir_store_errors_total", "Acts for which the store reached no decision, by the class of error.", "class"),
		requests:  counters("weir_http_requests_total", "HTTP requests that were answered.", "path", "code"),
		calls:     counters("weir_grpc_calls_total", "Unary gRPC calls that were answered.", "method", "code"),
		callers:   counters("weir_caller_requests_total", "Requests by the caller's name in the file of callers, or by the team of a caller with labels, the listener, and whether the caller was admitted, forbidden or unauthenticated.", "caller", "listener", "outcome"),
		rejected:  counters("weir_rejected_total", "Connections and calls that a listener rejected before it decoded them, by reason: too many connections, too much request memory, too many watches, a message or header that is too large, a message that arrived too slowly, an answer that was not read, or a client that broke HTTP/2's rules or sent a flood of frames that are no calls.", "listener", "reason"),
		retired:   counters("weir_grpc_connections_retired_total", "gRPC connections whose clients were asked to reconnect, because they were idle or old.", "reason"),
		compared:  counters("weir_compared_total", "Calls of Envoy that were answered with another service's answer, by how Weir's differs.", "result"),
		unmatched: counters("weir_unmatched_total", "Requests that no rule applied to: no rules file has the domain, or no rule of the domain matches the descriptors. Only domains of the rules are labels.", "domain", "domain_known"),
		panics:    counters("weir_panics_total", "Calls of a listener, and background work, that panicked.", "listener"),
		failures:  counters("weir_auth_failures_total", "Wrong tokens and passwords that callers sent, by the listener.", "listener"),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
		ofTraffic(o.Traffic), m.decisions, m.errors, m.stored, m.carried, m.failed, m.requests, m.calls, m.failures, m.callers, m.rejected, m.retired, m.panics, m.unmatched, m.compared,
	)
	if o.Envoyproxy {
		m.envoy = newEnvoyproxy(o.NearLimitRatio)
		m.registry.MustRegister(&collector{statDescs[:], m.envoy.collect}, m.envoy.errors, m.envoy.requests, m.envoy.times)
	}
	return m
}

// timed returns the options of a histogram for times from microseconds to seconds, with
// classic and native buckets.
func timed(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets:                         []float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5},
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Handler answers GET /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true,
	})
}

// FrontEnd observes the decisions of one front-end, for [traffic.Recorder] too; enforced says
// whether it refuses anything.
func (m *Metrics) FrontEnd(name string, enforced bool) observe.Observer {
	record := m.traffic.Observe
	if !enforced {
		record = m.traffic.ObserveUnenforced
	}
	return &frontEnd{record, m.decisions.WithLabelValues(name), classesOf(m.errors.MustCurryWith(prometheus.Labels{"frontend": name}))}
}

type frontEnd struct {
	record  func(*observe.Call)
	seconds prometheus.Observer
	errors  classes
}

// Observe counts a call.
func (f *frontEnd) Observe(c *observe.Call) {
	f.record(c)
	f.seconds.Observe(c.Took.Seconds())
	f.errors.count(c.Acts)
}

// Rejected counts a connection or a call that a listener rejected for a reason.
func (m *Metrics) Rejected(listener, reason string) {
	m.rejected.WithLabelValues(listener, reason).Inc()
}

// Retired counts a gRPC connection that ends for a reason without fault of its client.
func (m *Metrics) Retired(reason string) { m.retired.WithLabelValues(reason).Inc() }

// Unmatched counts a request that no rule applied to.
func (m *Metrics) Unmatched(domain string, why rules.Unmatched) {
	if why == rules.UnmatchedDomain {
		m.unmatched.WithLabelValues("", "false").Inc()
		return
	}
	m.unmatched.WithLabelValues(domain, "true").Inc()
}

// Compared counts a call that another service answered, by how Weir's answer differs.
func (m *Metrics) Compared(result string) { m.compared.WithLabelValues(result).Inc() }

// Panicked returns a function that counts the panics of a listener's calls.
func (m *Metrics) Panicked(listener string) func() { return m.panics.WithLabelValues(listener).Inc }

// Store observes the calls of the store.
func (m *Metrics) Store() observe.Observer { return &stored{m.stored, m.carried, classesOf(m.failed)} }

type stored struct {
	seconds, acts prometheus.Observer
	errors        classes
}

// Observe counts a call.
func (s *stored) Observe(c *observe.Call) {
	s.seconds.Observe(c.Took.Seconds())
	s.acts.Observe(float64(len(c.Acts)))
	s.errors.count(c.Acts)
}

// classes count errors by their class.
type classes []prometheus.Counter

var classNames = []struct {
	err  error
	name string
}{
	{weir.ErrInvalid, "invalid"},
	{weir.ErrNotApplied, "not_applied"},
	{weir.ErrAmbiguous, "ambiguous"},
	{weir.ErrMisconfigured, "misconfigured"},
	{weir.ErrBackend, "backend"},
	{nil, "other"},
}

func classesOf(counters *prometheus.CounterVec) classes {
	c := make(classes, len(classNames))
	for i, class := range classNames {
		c[i] = counters.WithLabelValues(class.name)
	}
	return c
}

func (c classes) count(acts []*weir.Act) {
	for _, a := range acts {
		if a.Err != nil {
			c[classOf(a.Err)].Inc()
		}
	}
}

func classOf(err error) int {
	for i, class := range classNames {
		if class.err == nil || errors.Is(err, class.err) {
			return i
		}
	}
	return len(classNames) - 1
}
