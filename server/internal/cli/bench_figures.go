package cli

import (
	"time"

	"github.com/weirlimit/weir/server/internal/openloop"
)

// benchFigures are what a bench has measured, as JSON.
type benchFigures struct {
	Target string `json:"target"`
	// Domain and Entry are those of a server, Limit that of a store.
	Domain     string  `json:"domain,omitempty"`
	Entry      string  `json:"entry,omitempty"`
	Limit      string  `json:"limit,omitempty"`
	Rate       float64 `json:"rate"` // a second
	DurationMS int64   `json:"duration_ms"`
	Callers    int     `json:"callers"`
	Keys       int     `json:"keys"`

	ElapsedMS int64 `json:"elapsed_ms"`
	Requests  int   `json:"requests"`
	Granted   int   `json:"granted"`
	Refused   int   `json:"refused"`
	Failed    int   `json:"failed"`
	// What follows is absent where there was no request.
	LatencyNS   map[string]int64 `json:"latency_ns,omitempty"`
	HistogramNS []bar            `json:"histogram_ns,omitempty"`
	// CPUNS is what a decision has cost, in this process and in the target's where
	// that tells.
	CPUNS map[string]int64 `json:"cpu_ns,omitempty"`
}

// figures sums a bench up.
func (f *benchFlags) figures(r *openloop.Report, cpu cpuAccount) *benchFigures {
	n := r.Requests()
	told := &benchFigures{
		Target: f.aim.name(), Limit: f.aim.limit,
		Rate: f.load.Rate, DurationMS: f.load.Duration.Milliseconds(), Callers: f.load.Callers, Keys: f.keys,
		ElapsedMS: r.Elapsed.Milliseconds(), Requests: n, Granted: r.Granted, Refused: r.Refused, Failed: r.Failed,
	}
	if f.aim.isServer() {
		told.Domain, told.Entry, told.Limit = f.aim.domain, f.aim.entry, ""
	}
	if n == 0 {
		return told
	}
	told.HistogramNS, told.LatencyNS = barsOf(r), map[string]int64{}
	for name, percent := range map[string]float64{"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "p99.99": 99.99, "max": 100} {
		told.LatencyNS[name] = r.Latency.ValueAtQuantile(percent)
	}
	told.CPUNS = map[string]int64{"own": int64(cpu.own / time.Duration(n))}
	if cpu.told {
		told.CPUNS["target"] = int64(cpu.others / time.Duration(n))
	}
	return told
}
