package cli

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/cputime"
	"github.com/weirlimit/weir/server/internal/openloop"
)

// A cpuAccount is what processes have used of processors.
type cpuAccount struct {
	own, others time.Duration
	told        bool // others is known
}

// spent is the account until now.
func (t *benchTarget) spent(ctx context.Context) cpuAccount {
	account := cpuAccount{own: cputime.Own()}
	if t.others != nil {
		account.others, account.told = t.others(ctx)
	}
	return account
}

// since is what has come to an account.
func (a cpuAccount) since(before cpuAccount) cpuAccount {
	return cpuAccount{a.own - before.own, a.others - before.others, a.told && before.told}
}

// answered says how a load goes, on one line.
func answered(r *openloop.Report) string {
	return fmt.Sprintf("%.1fs  %.0f/s  granted %d  refused %d  failed %d  p50 %v  p99 %v  max %v",
		r.Elapsed.Seconds(), float64(r.Requests())/r.Elapsed.Seconds(), r.Granted, r.Refused, r.Failed,
		quantile(r, 50), quantile(r, 99), quantile(r, 100))
}

// quantile is the latency that so many percent of the requests do not exceed.
func quantile(r *openloop.Report, percent float64) time.Duration {
	return brief(time.Duration(r.Latency.ValueAtQuantile(percent)))
}

// brief rounds to three digits, which is what the histogram tells apart.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// print tells the figures.
func (f *benchFlags) print(w io.Writer, r *openloop.Report, cpu cpuAccount) error {
	if f.json {
		return marshal(w, f.figures(r, cpu))
	}
	fmt.Fprintf(w, "target    %s\n", f.aim.described())
	fmt.Fprintf(w, "asked     %g/s for %v by %s, %s\n", f.load.Rate, f.load.Duration, counted(f.load.Callers, "caller"), counted(f.keys, "key"))
	n := r.Requests()
	fmt.Fprintf(w, "answered  %d in %.1fs, %.0f/s: granted %d, refused %d, failed %d\n",
		n, r.Elapsed.Seconds(), float64(n)/r.Elapsed.Seconds(), r.Granted, r.Refused, r.Failed)
	if n == 0 {
		return nil
	}
	fmt.Fprintf(w, "latency   p50 %v, p90 %v, p99 %v, p99.9 %v, p99.99 %v, max %v\n",
		quantile(r, 50), quantile(r, 90), quantile(r, 99), quantile(r, 99.9), quantile(r, 99.99), quantile(r, 100))
	printBars(w, r)
	fmt.Fprintf(w, "cpu       %v a decision in this process", brief(cpu.own/time.Duration(n)))
	if cpu.told {
		who := "in the server"
		if !f.aim.isServer() {
			who = "in Redis, of all its clients"
		}
		fmt.Fprintf(w, "; %v %s", brief(cpu.others/time.Duration(n)), who)
	}
	fmt.Fprintln(w)
	return nil
}

// printBars draws the latencies, a line each time they double.
func printBars(w io.Writer, r *openloop.Report) {
	const width = 50
	for _, b := range barsOf(r) {
		share := float64(b.Count) / float64(r.Requests())
		line := fmt.Sprintf("  < %-8v %6.2f %% %s", brief(time.Duration(b.Below)), share*100, strings.Repeat("█", int(share*width+0.5)))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// A bar is how many latencies lie below a power of two, and not below the one before.
type bar struct {
	Below int64 `json:"below"` // ns
	Count int64 `json:"count"`
}

// barsOf counts the latencies, from the shortest to the longest.
func barsOf(r *openloop.Report) []bar {
	bars := []bar{}
	for _, from := range r.Latency.Distribution() {
		if from.Count == 0 {
			continue
		}
		below := int64(1) << bits.Len64(uint64(from.To))
		for n := len(bars); n > 0 && bars[n-1].Below < below/2; n++ {
			bars = append(bars, bar{Below: 2 * bars[n-1].Below})
		}
		if n := len(bars); n == 0 || bars[n-1].Below < below {
			bars = append(bars, bar{Below: below})
		}
		bars[len(bars)-1].Count += from.Count
	}
	return bars
}
