package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/bench/measure"
)

// TestMain lets the test's program be the empty handlers, as the benchmark's is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "empty" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A short run of the real thing: every contestant opens, answers and is weighed,
// Weir is exact, and the report can be written from the file.
func TestShortRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if strings.Contains(os.Getenv("WEIR_REQUIRE"), "redis") {
			t.Fatal(err)
		}
		t.Skip("needs redis-server")
	}
	s := settings{short: true, only: regexp.MustCompile("granted|memory|exactness|server")}
	s.plan = measure.Plan{Rounds: 1, Duration: 20 * time.Millisecond, Progress: func(string) {}}
	r, err := s.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Servers) == 0 || len(r.Idle) != 4 {
		t.Errorf("measured %d rows of servers and the idle connections of %d; want several, and 4", len(r.Servers), len(r.Idle))
	}
	for _, row := range slices.Concat(r.Redis, r.Memory, r.Servers) {
		granted := row.Cells[0].Granted > 0 || strings.HasSuffix(row.Scenario, "refused")
		if strings.HasPrefix(row.Contestant, "weir") && (row.Errors() > 0 || !granted) {
			t.Errorf("%s, %s: %d errors, %d granted", row.Scenario, row.Contestant, row.Errors(), row.Cells[0].Granted)
		}
	}
	for _, e := range r.Exactness {
		if strings.HasPrefix(e.Contestant, "weir") && e.Granted != e.Limit {
			t.Errorf("%s on %d nodes granted %d of %d", e.Contestant, e.Nodes, e.Granted, e.Limit)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	in, document := filepath.Join(folder, "r.json"), filepath.Join(folder, "p.md")
	write(t, in, string(data))
	write(t, document, "before\n"+beginMark+"old\n"+endMark+"after\n")
	if err := report([]string{"-in", in, "-document", document, "-pictures", folder}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "| redis_rate |", "| weir serve, frames | TLS | 1 000 |", "after\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	if strings.Contains(string(text), "old\n") {
		t.Error("the document keeps what stood between the marks")
	}
}

// Every function and closure of a file gets a counter of its own.
func TestCount(t *testing.T) {
	t.Parallel()
	found, text, err := count("p/f.go", []byte("package p\n\ntype a int\n\nfunc (x *a) b() { func() {}() }\n\n//go:noinline\nfunc c() {}\n\nfunc d() {}\n"), 7)
	if err != nil {
		t.Fatal(err)
	}
	want := []function{
		{file: "p/f.go", name: "(*a).b", line: 5},
		{file: "p/f.go", name: "(*a).b closure:5", line: 5},
		{file: "p/f.go", name: "d", line: 10},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	for _, line := range []string{
		`package p; import benchcounter "github.com/weirlimit/weir/internal/benchcounter"`,
		`func (x *a) b() {benchcounter.Count(7); func() {benchcounter.Count(8);}() }`,
		`func d() {benchcounter.Count(9);}`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the text lacks %s:\n%s", line, text)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
