package check

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// block returns the first block of a page that is this test's and has a text in it.
func block(t *testing.T, page, language, text string) string {
	t.Helper()
	for _, b := range pages.Mine(t, page) {
		if b.Language == language && strings.Contains(b.Text, text) {
			return b.Text
		}
	}
	t.Fatalf("%s has no block of %s with %q for this test", page, language, text)
	return ""
}

// TestReadmeServer does what the README says of the server: its rules, its
// command, its calls. Only the addresses are others.
func TestReadmeServer(t *testing.T) {
	t.Parallel()
	m := release(t)
	shell := testserver.Require(t, "bash")
	testserver.Require(t, "curl")
	store, dir := testserver.StartRedis(t), t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, block(t, "README.md", "yaml", "domain: shop"), 0o644)
	line := strings.TrimSpace(block(t, "README.md", "sh", "weir serve --config rules.yaml"))
	command := strings.Fields(strings.NewReplacer("redis://127.0.0.1:6379", "redis://"+store.Addr(), "rules.yaml", rules).Replace(line))
	if command[0] != "weir" || !slices.Contains(command, "redis://"+store.Addr()+"/0") {
		t.Fatalf("the README says %q", line)
	}
	command[0] = m.binary
	s := serve(t, served{command: command})
	calls := strings.ReplaceAll(block(t, "README.md", "sh", "curl -d"), "http://127.0.0.1:8080", "http://"+s.http)
	calls = strings.ReplaceAll(calls, "curl ", "curl -sS --fail-with-body ")
	out, err := exec.Command(shell, "-ec", calls).CombinedOutput()
	if got := string(out); err != nil || !strings.HasPrefix(got, "HTTP/1.1 204") || !strings.Contains(got, `"allowed":true,"granted":5`) {
		t.Errorf("%v, %q: want that both are granted; of\n%s", err, out, calls)
	}
	s.stop()
}

// TestInstallArchive does what docs/install.md says of archives.
func TestInstallArchive(t *testing.T) {
	t.Parallel()
	m := release(t)
	target := filepath.Join(t.TempDir(), "weir")
	commands := strings.NewReplacer("/usr/local/bin/weir", target, "linux_amd64", "linux_"+goarch).Replace(block(t, "docs/install.md", "sh", "sha256sum"))
	dir := t.TempDir()
	for _, name := range []string{"checksums.txt", m.name + ".tar.gz"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join(m.dist, name)), 0o644)
	}
	if err := run(nil, dir, "sh", "-ec", commands); err != nil {
		t.Fatal(err)
	}
	said := block(t, "docs/install.md", "console", "weir version")
	said = strings.NewReplacer("go1.26.8", runtime.Version(), "linux/amd64", "linux/"+goarch).Replace(said)
	if got := "$ weir version\n" + output(t, target, "version"); got != said {
		t.Errorf("docs/install.md says\n%s\nbut it is\n%s", said, got)
	}
	// What was changed on the way is found.
	write(t, filepath.Join(dir, m.name+".tar.gz"), "changed", 0o644)
	if err := run(nil, dir, "sh", "-ec", commands); err == nil {
		t.Error("an archive that is another passes")
	}
}
