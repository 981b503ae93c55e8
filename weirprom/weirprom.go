// Package weirprom exports the answers of limiters, and the counts of stores, to Prometheus.
// Its metrics are those of the server where they count the same.
package weirprom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirmetrics"
)

// Answers counts answers by limiter. It is a [prometheus.Collector], to be registered, and a
// [weirmetrics.Observer], for [weirmetrics.Wrap]. It is safe for concurrent use. Create it with
// NewAnswers.
//
//   - weir_decisions_total counts decisions, with the labels limiter, decision (granted, refused,
//     not_charged) and source. The sources fallback, fail_open and fail_closed decided without
//     the store.
//   - weir_decision_errors_total counts charges without a decision, with the labels limiter and
//     class: invalid, not_applied, ambiguous (the answer was late or lost), misconfigured, backend
//     or other.
//   - weir_granted_units_total counts units granted, with the label limiter. Those of a hold count
//     as they were held.
//   - weir_decision_seconds is a histogram of the time that callers waited, with the label limiter.
type Answers struct {
	decisions, failures, units *prometheus.CounterVec
	took                       *prometheus.HistogramVec
}

// NewAnswers returns Answers without counts.
func NewAnswers() *Answers {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Answers{
		decisions: counter("weir_decisions_total", "Charges that were decided, by limiter, decision and source.", "limiter", "decision", "source"),
		failures:  counter("weir_decision_errors_total", "Charges that ended without a decision, by limiter and class of the error.", "limiter", "class"),
		units:     counter("weir_granted_units_total", "Units that were granted, by limiter.", "limiter"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_decision_seconds", Help: "Time for which callers waited for decisions, by limiter.",
			Buckets: []float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"limiter"}),
	}
}

// Observe counts an answer.
func (a *Answers) Observe(answer weirmetrics.Answer) {
	a.took.WithLabelValues(answer.Limiter).Observe(answer.Took.Seconds())
	if answer.Err != nil {
		a.failures.WithLabelValues(answer.Limiter, classOf(answer.Err)).Inc()
		return
	}
	d := &answer.Decision
	a.decisions.WithLabelValues(answer.Limiter, d.Outcome.String(), d.Source.String()).Inc()
	if d.Granted > 0 {
		a.units.WithLabelValues(answer.Limiter).Add(float64(d.Granted))
	}
}

func classOf(err error) string {
	for _, c := range []struct {
		is   error
		name string
	}{
		{weir.ErrInvalid, "invalid"},
		{weir.ErrNotApplied, "not_applied"},
		{weir.ErrAmbiguous, "ambiguous"},
		{weir.ErrMisconfigured, "misconfigured"},
		{weir.ErrBackend, "backend"},
	} {
		if errors.Is(err, c.is) {
			return c.name
		}
	}
	return "other"
}

// Describe is for Prometheus.
func (a *Answers) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range a.all() {
		c.Describe(ch)
	}
}

// Collect is for Prometheus.
func (a *Answers) Collect(ch chan<- prometheus.Metric) {
	for _, c := range a.all() {
		c.Collect(ch)
	}
}

func (a *Answers) all() []prometheus.Collector {
	return []prometheus.Collector{a.decisions, a.failures, a.units, a.took}
}

// Redis returns a collector of the counts of a store in Redis: its batches, outages, what was
// answered during outages and by which policy, late replies, leases and refusals from memory.
// A program with several stores registers each with labels of its own, see
// [prometheus.WrapRegistererWith].
func Redis(store *redisstore.Store) prometheus.Collector {
	return collector[redisstore.Stats]{store.Stats, []figure[redisstore.Stats]{
		counter("weir_coalesce_batches_total", "Calls to the store, each with a batch of acts.", func(s *redisstore.Stats) float64 { return float64(s.Batches) }),
		counter("weir_coalesce_acts_total", "Acts in these batches.", func(s *redisstore.Stats) float64 { return float64(s.BatchedActs) }),
		counter("weir_deny_cache_hits_total", "Acts that were refused without a call to the store.", func(s *redisstore.Stats) float64 { return float64(s.DenyCacheHits) }),
		counter("weir_lease_spent_total", "Acts that were paid with leased units.", func(s *redisstore.Stats) float64 { return float64(s.LeaseSpent) }),
		counter("weir_lease_returned_units_total", "Leased units that were returned unspent.", func(s *redisstore.Stats) float64 { return float64(s.LeaseReturned) }),
		counter("weir_store_outages_total", "Outages of a node of the store.", func(s *redisstore.Stats) float64 { return float64(s.Outages) }),
		gauge("weir_store_unreachable", "Nodes of the store that are unreachable now.", func(s *redisstore.Stats) float64 { return float64(s.Unreachable) }),
		counter("weir_fallback_local_total", "Acts decided from this instance's local share.", func(s *redisstore.Stats) float64 { return float64(s.Local) }),
		counter("weir_fallback_allowed_total", "Acts granted by the policy Allow.", func(s *redisstore.Stats) float64 { return float64(s.Allowed) }),
		counter("weir_fallback_denied_total", "Acts refused by the policy Deny.", func(s *redisstore.Stats) float64 { return float64(s.Denied) }),
		counter("weir_fallback_errors_total", "Acts answered with the store's error.", func(s *redisstore.Stats) float64 { return float64(s.Errors) }),
		counter("weir_fallback_late_replies_total", "Acts that the store replied to after they were answered.", func(s *redisstore.Stats) float64 { return float64(s.Late) }),
		counter("weir_overgranted_units_total", "Units granted by a local share that the store refused.", func(s *redisstore.Stats) float64 { return float64(s.Overgranted) }),
		counter("weir_fallback_doubtful_units_total", "Units granted from local shares that the store may not have charged, because its reply was lost.", func(s *redisstore.Stats) float64 { return float64(s.Doubtful) }),
		gauge("weir_fallback_outstanding", "Keys, IDs, refunds and withdrawals that the store has not recorded yet.", func(s *redisstore.Stats) float64 { return float64(s.Outstanding) }),
		counter("weir_keys_overflowed_total", "Charges of keys beyond a key limit, which share one budget.", func(s *redisstore.Stats) float64 { return float64(s.Overflowed) }),
	}}
}

// Memory returns a collector of the counts of a store in memory: its keys and IDs, their bytes,
// and the charges that shared a budget for want of room.
func Memory(store *memstore.Store) prometheus.Collector {
	return collector[memstore.Stats]{store.Stats, []figure[memstore.Stats]{
		gauge("weir_memory_keys", "Keys with a budget of their own.", func(s *memstore.Stats) float64 { return float64(s.Keys) }),
		gauge("weir_memory_bytes", "Memory of these keys, as the store estimates it.", func(s *memstore.Stats) float64 { return float64(s.Bytes) }),
		gauge("weir_memory_ids", "IDs that are remembered.", func(s *memstore.Stats) float64 { return float64(s.IDs) }),
		gauge("weir_memory_id_bytes", "Memory of these IDs.", func(s *memstore.Stats) float64 { return float64(s.IDBytes) }),
		counter("weir_memory_overflowed_total", "Charges of new keys that shared one budget because the memory or a key limit was full.", func(s *memstore.Stats) float64 { return float64(s.Overflowed) }),
	}}
}

// A figure is one metric of the counts S.
type figure[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*S) float64
}

func counter[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

func gauge[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

// A collector reads the counts once for each page of metrics.
type collector[S any] struct {
	read    func() S
	figures []figure[S]
}

// Describe implements [prometheus.Collector].
func (c collector[S]) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		ch <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector[S]) Collect(ch chan<- prometheus.Metric) {
	stats := c.read()
	for _, f := range c.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&stats))
	}
}
