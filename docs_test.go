package weir_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

var update = flag.Bool("update", false, "write the tables of the docs anew")

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
	section(t, "docs/algorithms.md", "arrivals", table.String())
}

func row(table *strings.Builder, name string, seconds [6]int, last string) {
	fmt.Fprintf(table, "| %s |", name)
	for _, n := range seconds {
		fmt.Fprintf(table, " %d |", n)
	}
	fmt.Fprintf(table, " %s |\n", last)
}

// section compares the text between two marks of a document with what it should
// be, or replaces it.
func section(t *testing.T, file, name, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no section %s", file, name)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s says\n%s\nbut it is\n%s", file, got, want)
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
