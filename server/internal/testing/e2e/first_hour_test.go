package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// firstHour is the page that TestFirstHour types.
const firstHour = "docs/contributing/first-hour.md"

// TestFirstHour types what docs/contributing/first-hour.md has, with a clone of this tree, and
// demands that it has the README's first commands: the server's and those of the Go program.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the server")
	}
	for _, program := range []string{"git", "make", "redis-server", "python3", "node", "npm"} {
		testserver.Require(t, program)
	}
	page, err := os.ReadFile(pages.Path(firstHour))
	if err != nil {
		t.Fatal(err)
	}
	typed := strings.ReplaceAll(string(page), "git clone -q ", "git clone ")
	for _, b := range pages.Mine(t, "README.md") {
		for _, command := range b.Commands() {
			if !strings.Contains(typed, "$ "+command) {
				t.Errorf("%s does not have the README's %s", firstHour, command)
			}
		}
	}
	w := newTour(t, "127.0.0.1:6379", "127.0.0.1:6380")
	w.run("GOWORK=off go mod tidy -diff") // Go has in its caches what the page's program needs
	// The clone is of this tree.
	w.run(fmt.Sprintf("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0='url.%s.insteadOf' GIT_CONFIG_VALUE_0=https://github.com/weirlimit/weir", committed(t)))
	w.run("export GOWORK= GONOSUMDB='*' GOPROXY=off")
	w.run("unset MAKEFLAGS MAKELEVEL MFLAGS") // of the make that runs this test
	// Jobs are groups of processes, as in a shell that people use.
	w.run(`set -m; trap 'for job in $(jobs -p); do kill -- -$job; done 2>&-; wait' EXIT`)
	began := time.Now()
	w.follow(firstHour, func(b pages.Block) {
		switch {
		case strings.Contains(b.Text, "v1/auth"):
			t.Logf("from the clone to the first refusal: %v", time.Since(began).Round(100*time.Millisecond))
		case strings.Contains(b.Text, "> main.go"):
			w.readdress("hello/main.go")
		case strings.Contains(b.Text, "cp weir/examples/nginx"):
			w.patient("nginx.conf")
		}
	})
}

// committed returns the address of a repository that has this tree as its only commit.
func committed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here := []string{"--git-dir", filepath.Join(dir, ".git"), "--work-tree", pages.Path("."), "-c", "user.name=test", "-c", "user.email=test@example.org"}
	for _, args := range [][]string{
		{"init", "-q", dir}, slices.Concat(here, []string{"add", "-A"}), slices.Concat(here, []string{"commit", "-q", "-m", "the tree"}),
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return "file://" + dir
}
