package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/bench/measure"
)

// A short run of the real thing: every contestant opens, answers and is weighed,
// Weir is exact, and the report can be written from the file.
func TestShortRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if strings.Contains(os.Getenv("WEIR_REQUIRE"), "redis") {
			t.Fatal(err)
		}
		t.Skip("needs redis-server")
	}
	s := settings{short: true, only: regexp.MustCompile("granted|memory|exactness")}
	s.plan = measure.Plan{Rounds: 1, Duration: 20 * time.Millisecond, Progress: func(string) {}}
	r, err := s.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range append(r.Redis, r.Memory...) {
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
	for _, want := range []string{"before\n", "| redis_rate |", "after\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	if strings.Contains(string(text), "old\n") {
		t.Error("the document keeps what stood between the marks")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
