package cli

import (
	"fmt"
	"io"
	"math/bits"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/loadtest"
	"github.com/weirlimit/weir/server/internal/report"
)

// A benchReport has the figures of a bench, as --json prints them.
type benchReport struct {
	Target string `json:"target"`
	// Domain and Entry describe a server's requests, Limit a store's.
	Domain     string  `json:"domain,omitempty"`
	Entry      string  `json:"entry,omitempty"`
	Limit      string  `json:"limit,omitempty"`
	Rate       float64 `json:"rate,omitempty"` // requests per second
	DurationMS int64   `json:"duration_ms"`
	Callers    int     `json:"callers"`
	Keys       int     `json:"keys"`

	ElapsedMS int64 `json:"elapsed_ms"`
	Requests  int   `json:"requests"`
	Granted   int   `json:"granted"`
	Refused   int   `json:"refused"`
	Failed    int   `json:"failed"`
	// The following fields are absent if there was no request.
	LatencyNS   map[string]int64 `json:"latency_ns,omitempty"`
	HistogramNS []bar            `json:"histogram_ns,omitempty"`
	// CPUNS is the CPU time per decision: "own" in this process, "target" in the target's.
	CPUNS map[string]int64 `json:"cpu_ns,omitempty"`
}

// benchQuantiles are the latencies that a report has.
var benchQuantiles = []struct {
	name    string
	percent float64
}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}, {"max", 100}}

// report returns the report of a load that is not measured yet.
func (a *benchAim) report(d time.Duration, callers, keys int) *benchReport {
	b := &benchReport{Target: a.name(), DurationMS: d.Milliseconds(), Callers: callers, Keys: keys}
	if a.isServer() {
		b.Domain, b.Entry = a.domain, a.entry
	} else {
		b.Limit = a.limit
	}
	return b
}

// fill adds the measurements.
func (b *benchReport) fill(r *loadtest.Report, cpu cpuTimes) {
	n := r.Requests()
	b.ElapsedMS, b.Requests, b.Granted, b.Refused, b.Failed = r.Elapsed.Milliseconds(), n, r.Granted, r.Refused, r.Failed
	if n == 0 {
		return
	}
	b.HistogramNS, b.LatencyNS = bars(r), map[string]int64{}
	for _, q := range benchQuantiles {
		b.LatencyNS[q.name] = r.Latency.ValueAtQuantile(q.percent)
	}
	b.CPUNS = map[string]int64{"own": int64(cpu.own / time.Duration(n))}
	if cpu.known {
		b.CPUNS["target"] = int64(cpu.target / time.Duration(n))
	}
}

// print writes a report, as JSON or as text.
func (f *benchFlags) print(w io.Writer, r *benchReport) error {
	if f.json {
		return marshal(w, r)
	}
	fmt.Fprintf(w, "target    %s\n", f.aim.described())
	fmt.Fprintf(w, "asked     %g/s for %v by %s, %s\n", f.load.Rate, f.load.Duration, report.Counted(f.load.Callers, "caller"), report.Counted(f.keys, "key"))
	r.print(w, &f.aim)
	return nil
}

// print writes the measurements as text.
func (b *benchReport) print(w io.Writer, aim *benchAim) {
	seconds := float64(b.ElapsedMS) / 1000
	fmt.Fprintf(w, "answered  %d in %.1fs, %.0f/s: granted %d, refused %d, failed %d\n",
		b.Requests, seconds, float64(b.Requests)/max(seconds, 0.001), b.Granted, b.Refused, b.Failed)
	if b.Requests == 0 {
		return
	}
	var latencies []string
	for _, q := range benchQuantiles {
		latencies = append(latencies, fmt.Sprint(q.name, " ", brief(b.LatencyNS[q.name])))
	}
	fmt.Fprintf(w, "latency   %s\n", strings.Join(latencies, ", "))
	for _, bar := range b.HistogramNS {
		const width = 50
		share := float64(bar.Count) / float64(b.Requests)
		line := fmt.Sprintf("  < %-8v %6.2f %% %s", brief(bar.Below), share*100, strings.Repeat("█", int(share*width+0.5)))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(w, "cpu       %v a decision in this process", brief(b.CPUNS["own"]))
	if target, known := b.CPUNS["target"]; known {
		where := "in the server"
		if !aim.isServer() {
			where = "in Redis, of all its clients"
		}
		fmt.Fprintf(w, "; %v %s", brief(target), where)
	}
	fmt.Fprintln(w)
}

// benchProgress describes a load in flight on one line.
func benchProgress(r *loadtest.Report) string {
	at := func(percent float64) time.Duration { return brief(r.Latency.ValueAtQuantile(percent)) }
	return fmt.Sprintf("%.1fs  %.0f/s  granted %d  refused %d  failed %d  p50 %v  p99 %v  max %v",
		r.Elapsed.Seconds(), float64(r.Requests())/r.Elapsed.Seconds(), r.Granted, r.Refused, r.Failed, at(50), at(99), at(100))
}

// brief rounds nanoseconds to three digits, the precision of the histogram.
func brief(ns int64) time.Duration {
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// A bar counts the latencies below a power of two, and at or above the one before.
type bar struct {
	Below int64 `json:"below"` // ns
	Count int64 `json:"count"`
}

// bars counts the latencies, shortest first. Bars between others may be empty.
func bars(r *loadtest.Report) []bar {
	all := []bar{}
	for _, from := range r.Latency.Distribution() {
		if from.Count == 0 {
			continue
		}
		below := int64(1) << bits.Len64(uint64(from.To))
		for n := len(all); n > 0 && all[n-1].Below < below/2; n++ {
			all = append(all, bar{Below: 2 * all[n-1].Below})
		}
		if n := len(all); n == 0 || all[n-1].Below < below {
			all = append(all, bar{Below: below})
		}
		all[len(all)-1].Count += from.Count
	}
	return all
}
