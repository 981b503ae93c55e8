package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
)

const (
	beginMark = "<!-- bench: begin -->\n"
	endMark   = "<!-- bench: end -->\n"
)

// report writes the tables of a run between two marks of a document.
func report(args []string) error {
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	in := flags.String("in", "results/latest.json", "what was measured, a `file` of JSON")
	document := flags.String("document", "../../docs/contributing/benchmarks.md", "`file` with the marks")
	pictures := flags.String("pictures", "../../docs/pictures", "`folder` for the plots")
	if err := flags.Parse(args); err != nil {
		return err
	}
	data, err := os.ReadFile(*in)
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("bench: read %s: %w", *in, err)
	}
	text, err := os.ReadFile(*document)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(beginMark))
	_, after, closed := bytes.Cut(rest, []byte(endMark))
	if !ok || !closed {
		return errors.New("bench: " + *document + " lacks the marks between which tables go")
	}
	whole := slices.Concat(before, []byte(beginMark), []byte(r.markdown()), []byte(endMark), after)
	if err := os.WriteFile(*document, whole, 0o644); err != nil {
		return err
	}
	return r.plots(*pictures)
}

func (r *results) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "\nMeasured on %s: %d cores of %s, shared; %s, Redis %s on the same machine", m.Date, m.Cores, m.CPU, m.Go, m.Redis)
	var modules []string
	for module, version := range m.Versions {
		modules = append(modules, fmt.Sprintf("%s %s", module, version))
	}
	slices.Sort(modules)
	fmt.Fprintf(&b, ".\nPeers: %s.\n", strings.Join(modules, ", "))
	r.targetTable(&b)
	r.scenarioTables(&b)
	r.idleTable(&b)
	r.memoryTables(&b)
	r.exactTable(&b)
	r.sizeTables(&b)
	r.growthTable(&b)
	return b.String()
}

func (r *results) targetTable(b *strings.Builder) {
	fmt.Fprint(b, "\n### Targets\n\n| work | target | measured | met |\n|---|---|---:|---|\n")
	for _, t := range targets {
		measured, met := t.judge(r)
		if measured == "" {
			fmt.Fprintf(b, "| %s | %s | – | not measured |\n", t.work, t.want)
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.work, t.want, measured, verdict(met))
	}
	for _, s := range r.States {
		if s.Target > 0 {
			fmt.Fprintf(b, "| Redis bytes a key, %s | ≤ %s | %s | %s |\n", s.Name, thousands(s.Target), thousands(s.Bytes), verdict(s.Bytes < s.Target+0.5))
		}
	}
}

// order returns the values of a field in the order in which they come.
func order(rows []measure.Row, field func(*measure.Row) string) []string {
	var all []string
	for i := range rows {
		if v := field(&rows[i]); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

func callersOf(rows []measure.Row, scenario string) []int {
	var all []int
	for i := range rows {
		if rows[i].Scenario == scenario && !slices.Contains(all, rows[i].Callers) {
			all = append(all, rows[i].Callers)
		}
	}
	return all
}

func scenario(r *measure.Row) string   { return r.Scenario }
func contestant(r *measure.Row) string { return r.Contestant }

func (r *results) scenarioTables(b *strings.Builder) {
	fmt.Fprint(b, "\n### On Redis\n\n",
		"Decisions a second: median of interleaved rounds, in brackets the least and the most. Below them CPU in µs a decision,\n",
		"of the client's process and of Redis; where a server stands between, its own in the middle.\n")
	rows := slices.Concat(r.Redis, r.Servers)
	for _, name := range order(rows, scenario) {
		callers := callersOf(rows, name)
		fmt.Fprintf(b, "\n**%s**\n\n| |", name)
		for _, n := range callers {
			fmt.Fprintf(b, " %d callers | p50 / p99 µs | CPU µs |", n)
		}
		fmt.Fprint(b, " scripts | allocations |\n|---|"+strings.Repeat("---:|---:|---:|", len(callers))+"---:|---:|\n")
		for _, who := range order(rows, contestant) {
			r.scenarioRow(b, rows, name, who, callers)
		}
	}
}

func (r *results) scenarioRow(b *strings.Builder, rows []measure.Row, name, who string, callers []int) {
	var last *measure.Row
	for _, n := range callers {
		row := find(rows, name, who, n)
		if row == nil {
			continue
		}
		if last == nil {
			fmt.Fprintf(b, "| %s |", who)
		}
		last = row
		median, low, high := row.Median(perSecond)
		typical, _, _ := row.Median(p50)
		late, _, _ := row.Median(p99)
		client, _, _ := row.Median(clientCPU)
		server, _, _ := row.Median(serverCPU)
		inRedis, _, _ := row.Median(redisCPU)
		fmt.Fprintf(b, " %s [%s–%s]%s | %s / %s | %.2f", thousands(median), short(low), short(high), failures(row), micro(typical), micro(late), client)
		if server > 0 {
			fmt.Fprintf(b, " + %.1f", server)
		}
		fmt.Fprintf(b, " + %.2f |", inRedis)
	}
	if last != nil {
		scripts, _, _ := last.Median(func(c *measure.Cell) float64 { return c.Scripts })
		allocs, _, _ := last.Median(func(c *measure.Cell) float64 { return c.Allocs })
		fmt.Fprintf(b, " %.3g | %.1f |\n", scripts, allocs)
	}
}

func (r *results) idleTable(b *strings.Builder) {
	if len(r.Idle) == 0 {
		return
	}
	fmt.Fprint(b, "\n**idle connections of gRPC**, growth of the server's resident memory\n\n| | | connections | KiB each |\n|---|---|---:|---:|\n")
	for _, i := range r.Idle {
		secured := "plain text"
		if i.TLS {
			secured = "TLS"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %.1f |\n", i.Server, secured, thousands(float64(i.Connections)), i.Bytes/1024)
	}
}

func failures(row *measure.Row) string {
	if n := row.Errors(); n > 0 {
		return fmt.Sprintf(", %s errors", thousands(float64(n)))
	}
	return ""
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func micro(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return thousands(v)
}

func (r *results) memoryTables(b *strings.Builder) {
	fmt.Fprint(b, "\n### In memory\n\nns a decision (threads of one process on two cores) and allocations. *One budget*: not by key.\n")
	for _, name := range order(r.Memory, scenario) {
		callers := callersOf(r.Memory, name)
		fmt.Fprintf(b, "\n**%s**\n\n| |", name)
		for _, n := range callers {
			fmt.Fprintf(b, " %d callers |", n)
		}
		fmt.Fprint(b, " allocations |\n|---|"+strings.Repeat("---:|", len(callers)+1)+"\n")
		for _, who := range order(r.Memory, contestant) {
			if find(r.Memory, name, who, callers[0]) == nil {
				continue
			}
			note, allocs := "", 0.0
			if keyless(who) {
				note = ", one budget"
			}
			fmt.Fprintf(b, "| %s%s |", who, note)
			for _, n := range callers {
				row := find(r.Memory, name, who, n)
				median, low, high := row.Median(perSecond)
				allocs, _, _ = row.Median(func(c *measure.Cell) float64 { return c.Allocs })
				fmt.Fprintf(b, " %.0f [%.0f–%.0f] |", 1e9/median, 1e9/high, 1e9/low)
			}
			fmt.Fprintf(b, " %.2f |\n", allocs)
		}
	}
}

func keyless(who string) bool {
	return slices.ContainsFunc(contest.MemoryPeers, func(c contest.Contestant) bool { return c.Name == who && c.Keyless })
}

func (r *results) exactTable(b *strings.Builder) {
	fmt.Fprint(b, "\n### Exactness\n\nOne key, 64 callers on each node, ten times what the limit allows.\n\n",
		"| | nodes | asked | limit | granted | errors |\n|---|---:|---:|---:|---:|---:|\n")
	for _, e := range r.Exactness {
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s |\n", e.Contestant, e.Nodes,
			thousands(float64(e.Asked)), thousands(float64(e.Limit)), thousands(float64(e.Granted)), thousands(float64(e.Errors)))
	}
}

func (r *results) sizeTables(b *strings.Builder) {
	fmt.Fprint(b, "\n### Memory of a key\n\nThe caller's keys have 16 bytes; in memory they are not counted.\n\n| | where | keys | bytes |\n|---|---|---:|---:|\n")
	for _, s := range r.Sizes {
		fmt.Fprintf(b, "| %s | %s | %s | %.0f |\n", s.Contestant, s.Where, thousands(float64(s.Keys)), s.Bytes)
	}
	fmt.Fprint(b, "\nWeir in Redis, names of 30 bytes, of which 11 are Weir's own (prefix `w:`, slot, algorithm and format):\n\n| | keys | bytes |\n|---|---:|---:|\n")
	for _, s := range r.States {
		fmt.Fprintf(b, "| %s | %s | %s |\n", s.Name, thousands(float64(s.Keys)), thousands(s.Bytes))
	}
}

func (r *results) growthTable(b *strings.Builder) {
	if len(r.Growth) == 0 {
		return
	}
	fmt.Fprint(b, "\n### Growth in memory\n\n| keys | Weir, ns | look-up in a bare map, ns |\n|---:|---:|---:|\n")
	for i := 0; i+1 < len(r.Growth); i += 2 {
		fmt.Fprintf(b, "| %s | %.0f | %.0f |\n", thousands(float64(r.Growth[i].Keys)), r.Growth[i].Nanos, r.Growth[i+1].Nanos)
	}
}
