package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAlgorithmIsItsFilesAndItsRow adds an algorithm by its two files, its row and its
// name, and nothing else. Both stores decide it alike, and rules files, explain, simulate
// and the schema with its documentation know it.
func TestAlgorithmIsItsFilesAndItsRow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the library and the program anew")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := toyOverlay(t, root)
	weir := filepath.Join(t.TempDir(), "weir")
	run(t, root, "go", "test", "-vet=off", "-overlay", overlay, "./internal/algo", "-run", "TestAssembleKnowsEveryAlgorithm")
	if text := run(t, root, "go", "test", "-vet=off", "-overlay", overlay, "./internal/engine/redisengine", "-run", "^TestTwins$/^toy_window$", "-v"); !strings.Contains(text, "--- PASS: TestTwins/toy_window") {
		t.Errorf("the stores were not compared:\n%s", text)
	}
	run(t, filepath.Join(root, "server"), "go", "build", "-overlay", overlay, "-o", weir, "./cmd/weir")

	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := "domain: toy\ndescriptors:\n  - key: user\n    rate_limit: {algorithm: toy_window, unit: minute, requests_per_unit: 5}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"toy_window, 5 per 1m0s", []string{"check", rules, "--explain", "toy user=ann"}},
		{"toy_window", []string{"simulate", "--limit", "5/min", "--algorithms", "toy_window", "--rate", "1", "--duration", "5m"}},
		{"toy_window counts in windows that are a toy", []string{"schema"}},
	} {
		if text := run(t, root, weir, c.args...); !strings.Contains(text, c.want) {
			t.Errorf("weir %s: no %q in\n%s", strings.Join(c.args, " "), c.want, text)
		}
	}
}

// toyOverlay writes the overlay with which the go command sees the algorithm.
func toyOverlay(t *testing.T, root string) string {
	t.Helper()
	toy, err := filepath.Abs("testdata/toy")
	if err != nil {
		t.Fatal(err)
	}
	dir, replaced := t.TempDir(), map[string]string{}
	for _, name := range []string{"toy_window.go", "toy_window.lua"} {
		replaced[filepath.Join(root, "internal/algo", name)] = filepath.Join(toy, name)
	}
	edit := func(file string, pairs ...string) {
		path := filepath.Join(root, file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.NewReplacer(pairs...).Replace(string(text))
		if edited == string(text) {
			t.Fatalf("%s has no place for the toy", file)
		}
		replaced[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replaced[path], []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit("internal/algo/algo.go",
		"\n\t// Count is how many there are.\n", "\n\tToyWindow\n\t// Count is how many there are.\n",
		"\n\tConcurrency: {\n", `
	ToyWindow: {
		Name: "toy_window", Letter: 'y', Format: '1', Doc: "counts in windows that are a toy",
		Traits: Traits{Aligned: true}, Age: toyAge, Wait: toyWait, Fresh: toyFresh, Refund: toyRefund,
	},
	Concurrency: {
`)
	edit("limit.go", "\n\tConcurrency = Algorithm(algo.Concurrency)\n",
		"\n\tConcurrency = Algorithm(algo.Concurrency)\n\t// ToyWindow is a toy.\n\tToyWindow = Algorithm(algo.ToyWindow)\n")
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, text)
	}
	return string(text)
}
