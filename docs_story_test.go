package weir_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// A moment of a story: what is asked, and when.
type moment struct {
	second float64
	cost   int64
}

// story is asked of every algorithm with a limit of 3 per 10 s.
var story = []moment{{0, 2}, {1, 1}, {2, 1}, {5, 1}, {9.5, 1}, {10, 2}, {12, 1}, {20, 3}, {20, 4}}

// TestStoryTables prints what each algorithm answers to the story, and demands
// that the docs say the same.
func TestStoryTables(t *testing.T) {
	t.Parallel()
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // TestHolderTable
		}
		clock, store, start := stage()
		limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 3, Period: 10 * time.Second}
		if limit.Algorithm == weir.RollingWindow {
			limit.Buckets = 10
		}
		compiled := limit.MustCompile()
		table := "| at | cost | answer | remaining | retry after | fresh after |\n|---:|---:|---|---:|---:|---:|\n"
		for _, m := range story {
			clock.Set(start.Add(time.Duration(m.second * float64(time.Second))))
			d := ask(t, store, storetest.NewAct(weir.Charge{Key: "k", Limit: compiled, Cost: m.cost}))
			table += fmt.Sprintf("| %g s | %d | %s | %d | %s | %s |\n", m.second, m.cost, answer(d), d.Remaining, wait(d), brief(d.ResetAfter))
		}
		pages.Section(t, "docs/algorithms.md", "story "+step.Name, table)
	}
}

// stage is a memory store at noon.
func stage() (*storetest.Clock, *memstore.Store, time.Time) {
	clock := storetest.NewClock()
	return clock, memstore.New(memstore.Options{Now: clock.Now}), clock.Now()
}

func ask(t *testing.T, store weir.Taker, a *weir.Act) weir.Decision {
	t.Helper()
	if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Decisions[0]
}

func answer(d weir.Decision) string {
	switch {
	case d.Delay > 0:
		return "granted, in " + brief(d.Delay)
	default:
		return d.Outcome.String()
	}
}

func wait(d weir.Decision) string {
	switch d.RetryAfter {
	case 0:
		return ""
	case weir.Never:
		return "never"
	}
	return brief(d.RetryAfter)
}

func brief(d time.Duration) string {
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// TestHolderTable tells the story of a concurrency limit.
func TestHolderTable(t *testing.T) {
	t.Parallel()
	clock, store, start := stage()
	limit := weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: 10 * time.Second}.MustCompile()
	table := "| at | who | does | answer | remaining | retry after |\n|---:|---|---|---|---:|---:|\n"
	for _, m := range []struct {
		second float64
		who    string
		kind   weir.Kind
	}{
		{0, "a", acts.KindTake}, {1, "b", acts.KindTake}, {2, "c", acts.KindTake}, {3, "a", acts.KindRelease}, {3, "c", acts.KindTake}, {9, "c", acts.KindRenew}, {12, "d", acts.KindTake},
	} {
		clock.Set(start.Add(time.Duration(m.second * float64(time.Second))))
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
		a.Kind, a.ID, a.Scope.Owner = m.kind, fmt.Sprint(m.who, m.second), a.Charges[0].Key
		if m.kind != acts.KindTake {
			a.ID, a.Scope.Owner = map[string]string{"a": "a0", "c": "c3"}[m.who], a.Charges[0].Key
		}
		d := ask(t, store, a)
		table += fmt.Sprintf("| %g s | %s | %s | %s | %d | %s |\n", m.second, m.who, m.kind, d.Outcome, d.Remaining, wait(d))
	}
	pages.Section(t, "docs/algorithms.md", "story concurrency", table)
}

// TestArrivalsTable prints what each algorithm lets through of the same traffic,
// and demands that the docs say the same.
func TestArrivalsTable(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| second | 1 | 2 | 3 | 4 | 5 | 6 | most in any 3 s |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	row(&table, "requests", sixSeconds, "")
	for id := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // has holders, not units
		}
		granted, most := playSixSeconds(t, weir.Algorithm(id))
		row(&table, "`"+weir.Algorithm(id).String()+"`", granted, fmt.Sprint(most))
	}
	pages.Section(t, "docs/algorithms.md", "arrivals", table.String())
}

// sixSeconds are the numbers of requests in six consecutive seconds. With a limit of 1000 per
// 3 s, a fixed window grants 1980 of them within 3 s.
var sixSeconds = [6]int{10, 10, 980, 900, 100, 0}

// playSixSeconds plays them under that limit, one unit at a time and evenly spread, from the start
// of a window on. It returns the units granted in each second, and the most in any 3 s.
func playSixSeconds(t *testing.T, algorithm weir.Algorithm) (granted [6]int, most int) {
	t.Helper()
	clock, store, start := stage()
	limit := weir.Limit{Algorithm: algorithm, Count: 1000, Period: 3 * time.Second}.MustCompile()
	var grants []time.Time
	for second, n := range sixSeconds {
		for i := range n {
			clock.Set(start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Second/time.Duration(n)))
			if !ask(t, store, storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})).Allowed() {
				continue
			}
			granted[second]++
			grants = append(grants, clock.Now())
			for clock.Now().Sub(grants[0]) >= limit.Period {
				grants = grants[1:]
			}
			most = max(most, len(grants))
		}
	}
	return granted, most
}

func row(table *strings.Builder, name string, seconds [6]int, last string) {
	fmt.Fprintf(table, "| %s |", name)
	for _, n := range seconds {
		fmt.Fprintf(table, " %d |", n)
	}
	fmt.Fprintf(table, " %s |\n", last)
}

// TestPictures draws what counts under each algorithm while the same requests
// come, and demands that the pictures in the docs are these.
func TestPictures(t *testing.T) {
	t.Parallel()
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue
		}
		got := picture(t, weir.Algorithm(id))
		file := "docs/pictures/" + step.Name + ".svg"
		if *pages.Update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil || string(text) != got {
			t.Errorf("%s is not what the test draws (%v); -update writes it", file, err)
		}
	}
}

// The canvas: seconds from left to right, units from bottom to top.
const (
	seconds, units = 36, 6
	xScale, yScale = 18, 16
	left, top      = 24, 20
	floor          = top + units*yScale
)

// picture plays requests against 6 per 12 s: two rushes at the border of two
// windows, then a steady trickle.
func picture(t *testing.T, algorithm weir.Algorithm) string {
	clock, store, start := stage()
	limit := weir.Limit{Algorithm: algorithm, Count: units, Period: 12 * time.Second}
	if algorithm == weir.RollingWindow {
		limit.Buckets = 6
	}
	compiled := limit.MustCompile()
	var marks, line strings.Builder
	for tick := range seconds*10 + 1 {
		second := float64(tick) / 10
		clock.Set(start.Add(time.Duration(tick) * 100 * time.Millisecond))
		x := left + second*xScale
		for range requests(tick) {
			d := ask(t, store, storetest.NewAct(weir.Charge{Key: "k", Limit: compiled, Cost: 1}))
			class, length := "no", 5
			if d.Allowed() {
				class, length = "yes", 11
			}
			fmt.Fprintf(&marks, `<path class="%s" d="M%.1f %dv%d"/>`, class, x, floor+4, length)
			x += 1.6
		}
		used := units - ask(t, store, storetest.NewAct(weir.Charge{Key: "k", Limit: compiled})).Remaining
		fmt.Fprintf(&line, "%.1f,%d ", left+second*xScale, floor-int(used)*yScale)
	}
	return fmt.Sprintf(frame, left+seconds*xScale+10, floor+36, algorithm, axes(), strings.TrimSpace(line.String()), marks.String())
}

// requests says how many requests come at a tenth of a second.
func requests(tick int) int {
	switch {
	case tick == 110 || tick == 125:
		return 6
	case tick >= 180 && tick%8 == 0:
		return 1
	}
	return 0
}

const frame = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">
<title>Units that count under %s, 6 per 12 s, and which requests pass</title>
<style>
  .axis{stroke:#888;fill:none} .grid{stroke:#8884;fill:none} text{fill:#888}
  .used{stroke:#2563eb;stroke-width:2;fill:none} .yes{stroke:#16a34a;stroke-width:1.4} .no{stroke:#dc2626;stroke-width:1.4}
</style>
%s<polyline class="used" points="%s"/>
%s
</svg>
`

func axes() string {
	var b strings.Builder
	for second := 0; second <= seconds; second += 6 {
		x := left + second*xScale
		fmt.Fprintf(&b, `<path class="grid" d="M%d %dV%d"/><text x="%d" y="%d" text-anchor="middle">%d s</text>`, x, top, floor, x, floor+30, second)
	}
	for n := 0; n <= units; n += 3 {
		y := floor - n*yScale
		fmt.Fprintf(&b, `<path class="grid" d="M%d %dH%d"/><text x="%d" y="%d" text-anchor="end">%d</text>`, left, y, left+seconds*xScale, left-5, y+3, n)
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n", left, top, floor, left+seconds*xScale)
	return b.String()
}
