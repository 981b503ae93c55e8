package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
)

// results is everything that a run has measured.
type results struct {
	Machine   environment         `json:"machine"`
	Redis     []measure.Row       `json:"redis"`
	Memory    []measure.Row       `json:"memory"`
	Exactness []measure.Exactness `json:"exactness"`
	Sizes     []measure.Size      `json:"sizes"`
	States    []measure.StateSize `json:"states"`
	Growth    []measure.Growth    `json:"growth"`
	Servers   []measure.Row       `json:"servers,omitempty"`
}

// environment is where a run took place, and with which versions.
type environment struct {
	Date     string            `json:"date"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Go       string            `json:"go"`
	Redis    string            `json:"redis"`
	Versions map[string]string `json:"versions"`
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

func machine(redis *measure.Redis) environment {
	e := environment{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: "unknown", Cores: runtime.NumCPU(),
		Go: runtime.Version(), Redis: redis.Version, Versions: map[string]string{},
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := modelName.FindSubmatch(info); m != nil {
			e.CPU = string(m[1])
		}
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return e
	}
	for _, c := range append(contest.RedisPeers, contest.MemoryPeers...) {
		for _, dep := range build.Deps {
			if dep.Path == c.Module {
				e.Versions[c.Module] = dep.Version
			}
		}
	}
	return e
}

// A column of a table is a figure of a row.
type column struct {
	title  string
	format string
	figure func(*measure.Cell) float64
}

var columns = []column{
	{"decisions/s", "%.0f", perSecond},
	{"p50 µs", "%.1f", func(c *measure.Cell) float64 { return c.P50us }},
	{"p99 µs", "%.1f", p99},
	{"client CPU µs", "%.2f", clientCPU},
	{"server CPU µs", "%.1f", serverCPU},
	{"Redis CPU µs", "%.2f", redisCPU},
	{"commands", "%.3f", func(c *measure.Cell) float64 { return c.Commands }},
	{"scripts", "%.3f", func(c *measure.Cell) float64 { return c.Scripts }},
	{"allocations", "%.1f", func(c *measure.Cell) float64 { return c.Allocs }},
}

func perSecond(c *measure.Cell) float64 { return c.PerSecond }
func p99(c *measure.Cell) float64       { return c.P99us }
func clientCPU(c *measure.Cell) float64 { return c.ClientCPUus }
func serverCPU(c *measure.Cell) float64 { return c.ServerCPUus }
func redisCPU(c *measure.Cell) float64  { return c.RedisCPUus }

// write prints all of it for a terminal.
func (r *results) write(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush() //nolint:errcheck // a terminal that is gone
	scenario := ""
	for _, row := range append(append([]measure.Row{}, r.Redis...), append(r.Memory, r.Servers...)...) {
		if title := fmt.Sprintf("%s, %d callers", row.Scenario, row.Callers); title != scenario {
			scenario = title
			fmt.Fprintf(t, "\n%s\t", title)
			for _, c := range columns {
				fmt.Fprintf(t, "%s\t", c.title)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "%s\t", row.Contestant)
		for _, c := range columns {
			median, _, _ := row.Median(c.figure)
			fmt.Fprintf(t, c.format+"\t", median)
		}
		if errors := row.Errors(); errors > 0 {
			fmt.Fprintf(t, "%d errors\t", errors)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "\nexactness\tnodes\tlimit\tasked\tgranted\terrors\t")
	for _, e := range r.Exactness {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", e.Contestant, e.Nodes, e.Limit, e.Asked, e.Granted, e.Errors)
	}
	fmt.Fprintln(t, "\nbytes a key\twhere\tkeys\tbytes\t")
	for _, s := range r.Sizes {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\t\n", s.Contestant, s.Where, s.Keys, s.Bytes)
	}
	for _, s := range r.States {
		fmt.Fprintf(t, "%s\tredis, name of 30\t%d\t%.1f\t\n", s.Name, s.Keys, s.Bytes)
	}
	fmt.Fprintln(t, "\ngrowth in memory\tkeys\tns\t")
	for _, g := range r.Growth {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t\n", g.Subject, g.Keys, g.Nanos)
	}
}

// find returns a row, or nil.
func find(rows []measure.Row, scenario, contestant string, callers int) *measure.Row {
	for i := range rows {
		if rows[i].Scenario == scenario && rows[i].Contestant == contestant && rows[i].Callers == callers {
			return &rows[i]
		}
	}
	return nil
}

// thousands writes a number with a thin group separator.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	var groups []string
	for len(s) > 3 {
		groups = append([]string{s[len(s)-3:]}, groups...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, groups...), " ")
}
