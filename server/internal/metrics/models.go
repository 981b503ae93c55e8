package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/server/internal/config"
)

// Models counts the requests to language models.
type Models struct {
	requests, tokens, dollars, units, missing, under, unrecorded *prometheus.CounterVec

	unsettled prometheus.Counter
	first     prometheus.Histogram
	streams   prometheus.Gauge
	waiting   prometheus.Gauge
	replaced  *prometheus.CounterVec
}

// Models returns the metrics of a proxy for language models, and exports them. Call it once.
func (m *Metrics) Models() *Models {
	o := &Models{
		requests:   counters("weir_models_requests_total", "Requests to language models that were answered, by the form, openai or anthropic, and the status.", "form", "code"),
		tokens:     counters("weir_models_tokens_total", "Tokens of language models that were settled, by the row of the price table and the kind: input, cached or output.", "model", "kind"),
		dollars:    counters("weir_models_dollars_total", "Dollars that settled requests to language models cost, by the row of the price table.", "model"),
		units:      counters("weir_models_settled_units_total", "Units that settled requests to language models were charged, by the rule, the row of the price table, and what the limit counts; usd are millionths of a dollar.", "rule", "model", "count"),
		missing:    counters("weir_models_usage_missing_total", "Answers of language models without usage that counts, by the reason: absent, invalid, cut, client_left or encoded.", "reason"),
		under:      counters("weir_models_underestimated_units_total", "Units that requests to language models used beyond their hold.", "rule"),
		unrecorded: counters("weir_models_forgiven_units_total", "Units that were used and not recorded, because a limit records at most one full drain beyond its count.", "rule"),
		unsettled:  prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_models_settle_failures_total", Help: "Requests to language models whose hold stays charged, because they could not be settled."}),
		first:      prometheus.NewHistogram(timed("weir_models_first_byte_seconds", "Time until the head of the answer of a language model.")),
		waiting:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_models_waiting", Help: "Requests to language models that wait for room, with --wait."}),
		streams:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_models_streams", Help: "Streams of language models that are open."}),
	}
	o.replaced = counters("weir_models_replaced_total", "Requests to language models that were held for a cheaper model in place of their own, by the rule, the row of the price table of the model that was asked for, and the model instead.", "rule", "model", "instead")
	m.registry.MustRegister(o.replaced, o.requests, o.tokens, o.dollars, o.units, o.missing, o.under, o.unrecorded, o.unsettled, o.first, o.streams, o.waiting)
	return o
}

// PricesAge exports how old the prices of language models are. Call it once.
func (m *Metrics) PricesAge(age func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_prices_age_seconds", Help: "Age of the prices of language models by as_of in their price file; 0 without one.",
	}, func() float64 { return age().Seconds() }))
}

// Answered counts an answer.
func (o *Models) Answered(form string, status int) {
	o.requests.WithLabelValues(form, strconv.Itoa(status)).Inc()
}

// FirstByte observes the time until the head of an answer.
func (o *Models) FirstByte(d time.Duration) { o.first.Observe(d.Seconds()) }

// Stream counts streams that begin, 1, and end, -1.
func (o *Models) Stream(_, _ string, change int) { o.streams.Add(float64(change)) }

// Waiting counts requests that begin, 1, and end, -1, to wait for room.
func (o *Models) Waiting(change int) { o.waiting.Add(float64(change)) }

// Replaced counts a request that was held for a cheaper model.
func (o *Models) Replaced(rule, row, instead string) {
	o.replaced.WithLabelValues(rule, row, instead).Inc()
}

// Settled counts the tokens and the dollars of a request, whose price has a row.
func (o *Models) Settled(_, _, row string, used map[string]int64) {
	for _, kind := range [...]string{config.MeterInput, config.MeterCached, config.MeterOutput} {
		o.tokens.WithLabelValues(row, kind).Add(float64(used[kind]))
	}
	if usd, priced := used[config.MeterUSD]; priced {
		o.dollars.WithLabelValues(row).Add(float64(usd) / config.MicroUSD)
	}
}

// Charged counts the units that a rule was charged.
func (o *Models) Charged(rule, row, count string, units int64) {
	o.units.WithLabelValues(rule, row, count).Add(float64(units))
}

// UsageMissing counts an answer without usage that counts.
func (o *Models) UsageMissing(reason string) { o.missing.WithLabelValues(reason).Inc() }

// Underestimated counts units beyond a hold.
func (o *Models) Underestimated(rule string, units int64) {
	o.under.WithLabelValues(rule).Add(float64(units))
}

// Unrecorded counts units that were not recorded.
func (o *Models) Unrecorded(rule string, units int64) {
	o.unrecorded.WithLabelValues(rule).Add(float64(units))
}

// SettleFailed counts a request that could not be settled.
func (o *Models) SettleFailed() { o.unsettled.Inc() }
