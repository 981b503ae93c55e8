package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/layer/keylimit"
)

// ofKeys tells how many keys the limits have that may not have any number. The names
// of budgets are those of rules, never what clients send.
type ofKeys struct{ read func() []keylimit.Stats }

var (
	keysDesc       = prometheus.NewDesc("weir_keys", "Keys tracked, by the limit that has a key limit.", []string{"limit"}, nil)
	maxKeysDesc    = prometheus.NewDesc("weir_max_keys", "How many keys are tracked at most, by the limit.", []string{"limit"}, nil)
	overflowedDesc = prometheus.NewDesc("weir_keys_overflowed_total", "Charges of further keys, which share one budget, by the limit.", []string{"limit"}, nil)
)

// Describe names the metrics.
func (k *ofKeys) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{keysDesc, maxKeysDesc, overflowedDesc} {
		to <- d
	}
}

// Collect reads them.
func (k *ofKeys) Collect(to chan<- prometheus.Metric) {
	for _, s := range k.read() {
		limit := text(s.Overflow)
		to <- prometheus.MustNewConstMetric(keysDesc, prometheus.GaugeValue, float64(s.Keys), limit)
		to <- prometheus.MustNewConstMetric(maxKeysDesc, prometheus.GaugeValue, float64(s.MaxKeys), limit)
		to <- prometheus.MustNewConstMetric(overflowedDesc, prometheus.CounterValue, float64(s.Overflowed), limit)
	}
}
