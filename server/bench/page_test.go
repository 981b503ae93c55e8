package bench

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

var update = flag.Bool("update", false, "write the tables of docs/performance.md")

// sections are the tables of docs/performance.md, by the name that stands before them.
var sections = map[string]func(measured) string{
	"setup":     setup,
	"listeners": listenersTable,
	"limits":    limitsTable,
	"ratelimit": ratelimitTable,
	"targets":   targetsTable,
	"redis":     redisTables,
	"cell":      cellTable,
	"growth":    growthTable,
	"memory":    memoryTables,
	"shapes":    shapesTable,
	"bytes":     bytesTable,
	"state":     stateTable,
	"script":    scriptTable,
}

// TestPage holds the tables of docs/performance.md against testdata/measured.txt, the output of the
// benchmarks. With -args -update it writes them.
func TestPage(t *testing.T) {
	const page = "../../docs/performance.md"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	m := readMeasured(t, "testdata/measured.txt")
	text := string(old)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		start, end := "<!-- measured: "+name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(text, start)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no %q that %q ends", page, start, end)
		}
		text = before + start + "\n" + strings.TrimSpace(sections[name](m)) + "\n\n" + end + after
	}
	switch {
	case text == string(old):
	case *update:
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not show what testdata/measured.txt says: run go test -run TestPage -args -update", page)
	}
}

// measured are the results of all benchmarks, in the order of their first rounds.
type measured []*result

// config names what was measured with.
func (m measured) config(key string) string { return m[0].config[key] }

// A result is one benchmark in all rounds.
type result struct {
	name      string            // Redis/hot key granted/limiter=weir/callers=64
	benchmark string            // Redis
	scenario  string            // hot key granted
	labels    map[string]string // callers: 64
	rounds    map[string][]float64
	config    map[string]string // of the first round
}

func readMeasured(t *testing.T, path string) measured {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	byName := make(map[string]*result)
	var all measured
	lines := benchfmt.NewReader(file, path)
	for lines.Scan() {
		line, ok := lines.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		r := byName[line.Name.String()]
		if r == nil {
			r = newResult(line.Name)
			for _, c := range line.Config {
				r.config[c.Key] = string(c.Value)
			}
			byName[line.Name.String()] = r
			all = append(all, r)
		}
		for _, v := range line.Values {
			r.rounds[v.Unit] = append(r.rounds[v.Unit], v.Value)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// underscores puts those back that are not blanks: in a benchmark's name they look the same.
var underscores = strings.NewReplacer("redis rate", "redis_rate", "rolling window", "rolling_window", "fixed window", "fixed_window",
	"token bucket", "token_bucket", "leaky bucket", "leaky_bucket", "sliding counter", "sliding_counter", "sliding log", "sliding_log")

func newResult(name benchfmt.Name) *result {
	base, parts := name.Parts()
	r := &result{name: string(base), benchmark: string(base), labels: make(map[string]string), rounds: make(map[string][]float64), config: make(map[string]string)}
	for _, p := range parts {
		part, ok := bytes.CutPrefix(p, []byte("/"))
		if !ok {
			continue // -2, the number of processors
		}
		text := underscores.Replace(strings.ReplaceAll(string(part), "_", " "))
		r.name += "/" + text
		if key, value, ok := strings.Cut(text, "="); ok && !strings.Contains(key, " ") {
			r.labels[key] = value
			continue
		}
		r.scenario = strings.TrimPrefix(r.scenario+", "+text, ", ")
	}
	return r
}

// of returns the results of a benchmark that have all labels.
func (m measured) of(benchmark string, labels ...string) measured {
	return slices.DeleteFunc(slices.Clone(m), func(r *result) bool {
		return r.benchmark != benchmark || slices.ContainsFunc(labels, func(l string) bool { return r.labels[l] == "" })
	})
}

// median returns the median of a unit, and whether it was measured.
func (r *result) median(unit string) (float64, bool) {
	all := slices.Sorted(slices.Values(r.rounds[unit]))
	if len(all) == 0 {
		return 0, false
	}
	return all[len(all)/2], true
}

// A grid is a table in the making: rows and columns are in the order in which they first came.
type grid struct {
	rows, columns []string
	cells         map[[2]string]string
}

func (g *grid) set(row, column, text string) {
	if !slices.Contains(g.rows, row) {
		g.rows = append(g.rows, row)
	}
	if !slices.Contains(g.columns, column) {
		g.columns = append(g.columns, column)
	}
	if g.cells == nil {
		g.cells = make(map[[2]string]string)
	}
	g.cells[[2]string{row, column}] = text
}

// number sets the median of a unit, times scale.
func (g *grid) number(row, column string, r *result, unit string, scale float64) {
	if v, ok := r.median(unit); ok {
		g.set(row, column, digits(v*scale))
	}
}

// markdown returns the table. head is that of the columns that name rows, with bars between them.
func (g *grid) markdown(head string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n", head, strings.Join(g.columns, " | "))
	b.WriteString(strings.Repeat("|---", strings.Count(head, "|")+1) + strings.Repeat("|---:", len(g.columns)) + "|\n")
	for _, row := range g.rows {
		b.WriteString("| " + row)
		for _, column := range g.columns {
			text := g.cells[[2]string{row, column}]
			if text == "" {
				text = "–"
			}
			b.WriteString(" | " + text)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// digits writes a number with three digits or all before the point, in groups.
func digits(v float64) string {
	decimals := 0
	switch {
	case v < 0.0005:
		return "0"
	case v < 1:
		decimals = 3
	case v < 10:
		decimals = 2
	case v < 100:
		decimals = 1
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	if rest != "" {
		return grouped(whole) + "." + rest
	}
	return grouped(whole)
}

// grouped sets the digits of a whole number in threes.
func grouped(whole string) string {
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	return whole
}

func setup(m measured) string {
	return fmt.Sprintf("Medians of rounds, of which there were %d, measured on %s on two cores of an %s that other programs shared: Go %s, Redis %s on the same machine, %s.",
		len(m[0].rounds["sec/op"]), m.config("date"), m.config("cpu"), strings.TrimPrefix(m.config("go"), "go"), m.config("redis"), m.config("peers"))
}

func listenersTable(m measured) string {
	var g grid
	for _, r := range m.of("Listeners", "listener") {
		g.number(r.labels["listener"]+" | "+r.labels["load"], r.labels["limiter"]+", "+r.labels["work"], r, "server-µs/op", 1)
	}
	return g.markdown("listener | load")
}

func limitsTable(m measured) string {
	var g grid
	for _, r := range m.of("ListenersLimits", "listener") {
		g.number(r.labels["listener"]+" | "+r.labels["work"], "µs", r, "server-µs/op", 1)
	}
	return g.markdown("listener | work")
}

func cellTable(m measured) string {
	var g grid
	for _, r := range m.of("RedisCell", "limiter") {
		row := r.scenario + ", " + r.labels["callers"] + " callers | " + r.labels["limiter"]
		g.number(row, "client, µs", r, "client-µs/op", 1)
		g.number(row, "Redis, µs", r, "redis-µs/op", 1)
	}
	slices.Sort(g.rows)
	return g.markdown("work | limiter")
}

func ratelimitTable(m measured) string {
	var g grid
	ours := make(map[string]float64)
	for _, r := range m.of("RateLimit", "limiter") {
		row, name := r.labels["load"]+" | "+r.labels["work"], strings.Replace(r.labels["limiter"], " ", "/", 1)
		g.number(row, name+", µs", r, "server-µs/op", 1)
		g.number(row, "Redis of "+name+", µs", r, "redis-µs/op", 1)
		v, _ := r.median("server-µs/op")
		if name == "weir" {
			ours[row] = v
		} else {
			g.set(row, "times", digits(v/ours[row]))
		}
	}
	return g.markdown("load | work")
}

func redisTables(m measured) string {
	var b strings.Builder
	all := m.of("Redis", "limiter", "callers")
	for _, scenario := range scenarios(all) {
		var g grid
		last := ""
		for _, r := range all {
			if r.scenario == scenario {
				last = r.labels["callers"]
			}
		}
		for _, r := range all {
			if r.scenario != scenario {
				continue
			}
			seconds, _ := r.median("sec/op")
			g.set(r.labels["limiter"], r.labels["callers"]+" callers", digits(1/seconds))
		}
		for _, r := range all {
			if r.scenario != scenario || r.labels["callers"] != last {
				continue
			}
			row := r.labels["limiter"]
			g.number(row, "p99, µs", r, "p99-µs", 1)
			g.number(row, "client, µs", r, "client-µs/op", 1)
			g.number(row, "Redis, µs", r, "redis-µs/op", 1)
			g.number(row, "allocations", r, "allocs/op", 1)
		}
		fmt.Fprintf(&b, "**%s**\n\n%s\n", scenario, g.markdown(""))
	}
	return b.String()
}

// scenarios returns those of results which are not a number of keys or instances.
func scenarios(all measured) []string {
	var names []string
	for _, r := range all {
		if r.scenario != "" && !slices.Contains(names, r.scenario) {
			names = append(names, r.scenario)
		}
	}
	return names
}

func growthTable(m measured) string {
	var b strings.Builder
	for _, label := range []string{"keys", "instances"} {
		var g grid
		for _, r := range m.of("Redis", label) {
			g.number(grouped(r.labels[label]), "Redis, µs", r, "redis-µs/op", 1)
			g.number(grouped(r.labels[label]), "client, µs", r, "client-µs/op", 1)
		}
		for _, r := range m.of("Growth", label) {
			g.number(grouped(r.labels[label]), map[string]string{"weir": "in memory, ns", "map": "a bare map, ns"}[r.scenario], r, "sec/op", 1e9)
		}
		b.WriteString(g.markdown(label) + "\n")
	}
	return b.String()
}

func memoryTables(m measured) string {
	var b strings.Builder
	all := m.of("Memory", "limiter", "callers")
	for _, scenario := range scenarios(all) {
		var g grid
		for _, r := range all {
			if r.scenario == scenario {
				g.number(r.labels["limiter"], map[string]string{"1": "1 thread", "2": "2 threads", "8": "8 callers"}[r.labels["callers"]], r, "sec/op", 1e9)
			}
		}
		for _, r := range all {
			if r.scenario == scenario {
				g.number(r.labels["limiter"], "allocations", r, "allocs/op", 1)
			}
		}
		fmt.Fprintf(&b, "**%s**\n\n%s\n", scenario, g.markdown(""))
	}
	return b.String()
}

// shapesTable compares each shape with the first of its scenario, and one that is refused with the
// first that is. Of an act of several keys it compares what each key costs.
func shapesTable(m measured) string {
	var g grid
	for _, store := range []struct{ benchmark, name, unit string }{{"RedisShapes", "Redis", "redis-µs/op"}, {"MemoryShapes", "memory", "sec/op"}, {"MemoryKeyLimit", "memory", "sec/op"}} {
		plain := make(map[string]float64)
		for _, r := range m.of(store.benchmark, "limiter") {
			v, _ := r.median(store.unit)
			of := fmt.Sprint(r.scenario, r.labels["callers"], strings.HasSuffix(r.labels["limiter"], "refused"))
			if plain[of] == 0 {
				plain[of] = v
			}
			row := fmt.Sprintf("%s | %s | %s", store.name, r.scenario, r.labels["limiter"])
			if store.benchmark == "MemoryKeyLimit" {
				row += ", " + r.labels["callers"] + " threads"
			}
			g.number(row, "µs", r, "sec/op", 1e6)
			g.number(row, "client, µs", r, "client-µs/op", 1)
			g.number(row, "Redis, µs", r, "redis-µs/op", 1)
			keys := 1
			if n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.labels["limiter"], "weir, "), " keys")); err == nil {
				keys = n
			}
			g.set(row, "to the plain one", digits(v/plain[of]/float64(keys))+" ×")
		}
	}
	return g.markdown("store | work | shape")
}

func bytesTable(m measured) string {
	var g grid
	for _, r := range m.of("Bytes", "limiter") {
		g.number(r.labels["limiter"], map[string]string{"memory": "in memory", "redis": "in Redis"}[r.scenario], r, "bytes/key", 1)
	}
	slices.Sort(g.rows)
	return g.markdown("")
}

func stateTable(m measured) string {
	var g grid
	for _, r := range m.of("State") {
		g.number(r.scenario, "bytes", r, "bytes/key", 1)
	}
	return g.markdown("")
}

func scriptTable(m measured) string {
	var g grid
	for _, r := range m.of("Script") {
		g.number(r.scenario, "µs a decision in Redis", r, "redis-µs/decision", 1)
	}
	return g.markdown("work")
}
