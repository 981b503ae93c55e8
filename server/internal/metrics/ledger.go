package metrics

import "github.com/prometheus/client_golang/prometheus"

// Ledger counts what the ledger of requests to language models does.
type Ledger struct{ lost, delivered, failed, dropped prometheus.Counter }

// Ledger returns the metrics of a ledger, where so many settlements wait, and exports them. Call it
// once.
func (m *Metrics) Ledger(waiting func() int) *Ledger {
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	l := &Ledger{
		lost:      one("weir_models_ledger_lost_total", "Settlements that the ledger lacks, because more than 100000 waited to be written."),
		delivered: one("weir_alerts_delivered_total", "Alerts that the webhook accepted."),
		failed:    one("weir_alerts_failed_total", "Attempts to deliver an alert that the webhook did not accept."),
		dropped:   one("weir_alerts_dropped_total", "Alerts that the webhook did not accept for 24 hours."),
	}
	m.registry.MustRegister(l.lost, l.delivered, l.failed, l.dropped, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "weir_models_ledger_waiting", Help: "Settlements that wait to be written to the ledger."},
		func() float64 { return float64(waiting()) },
	))
	return l
}

// Lost counts a settlement that the ledger lacks.
func (l *Ledger) Lost() { l.lost.Inc() }

// Delivered counts an alert that was accepted.
func (l *Ledger) Delivered() { l.delivered.Inc() }

// Failed counts an attempt that was not accepted.
func (l *Ledger) Failed() { l.failed.Inc() }

// Dropped counts an alert that was given up.
func (l *Ledger) Dropped() { l.dropped.Inc() }

// Journal counts what the journal of a ledger does.
type Journal struct{ failed, lost prometheus.Counter }

// Journal returns the metrics of a journal and exports them. Call it once.
func (m *Metrics) Journal() *Journal {
	j := &Journal{
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_models_journal_failed_total", Help: "Attempts to write to the journal that failed, such as on a full disk. The lines wait."}),
		lost:   prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_models_journal_lost_total", Help: "Lines that the journal lacks, because more than 32 MiB waited to be written."}),
	}
	m.registry.MustRegister(j.failed, j.lost)
	return j
}

// Failed counts an attempt that failed.
func (j *Journal) Failed() { j.failed.Inc() }

// Lost counts a line that is never written.
func (j *Journal) Lost() { j.lost.Inc() }
