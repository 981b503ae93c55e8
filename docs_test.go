package weir_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/pages"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/memstore"
)

// TestArrivalsTable prints what each algorithm lets through of the same traffic,
// and demands that the docs say the same.
func TestArrivalsTable(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| second | 1 | 2 | 3 | 4 | 5 | 6 | most in any 3 s |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	row(&table, "requests", storetest.SeedArrivals, "")
	for id := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // has holders, not units
		}
		clock := storetest.NewClock()
		p := storetest.Arrivals(memstore.New(memstore.Options{Now: clock.Now}), clock, weir.Algorithm(id))
		row(&table, "`"+p.Algorithm.String()+"`", p.Seconds, fmt.Sprint(p.Worst))
	}
	pages.Section(t, "docs/algorithms.md", "arrivals", table.String())
}

func row(table *strings.Builder, name string, seconds [6]int, last string) {
	fmt.Fprintf(table, "| %s |", name)
	for _, n := range seconds {
		fmt.Fprintf(table, " %d |", n)
	}
	fmt.Fprintf(table, " %s |\n", last)
}
