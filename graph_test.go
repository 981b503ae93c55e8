package weir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// foreignModules are those that a program which uses the library gets into its
// module graph, whatever it imports of the library.
var foreignModules = []string{
	"github.com/cespare/xxhash/v2",
	"github.com/dchest/siphash",
	"github.com/google/go-cmp",
	"github.com/redis/go-redis/v9",
	"go.uber.org/atomic",
	"go.uber.org/goleak",
	"golang.org/x/sys",
	"pgregory.net/rapid",
}

// TestModuleGraph holds the module graph of a program that uses memstore alone
// against the list. What is on it raises versions in other people's go.mod.
func TestModuleGraph(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": "package main\n\nimport _ \"" + module + "/memstore\"\n\nfunc main() {}\n",
		"go.mod": "module program\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\n" +
			"replace " + module + " v0.0.0 => " + root + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var graph []string
	for _, arguments := range [][]string{{"build", "-o", os.DevNull, "."}, {"list", "-m", "all"}} {
		command := exec.Command("go", arguments...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		graph = strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	if len(graph) < 3 {
		t.Fatalf("the graph is %v", graph)
	}
	for _, line := range graph {
		name, _, _ := strings.Cut(line, " ")
		if name != "program" && name != module && !slices.Contains(foreignModules, name) {
			t.Errorf("a program that uses memstore alone gets %s", line)
		}
	}
}
