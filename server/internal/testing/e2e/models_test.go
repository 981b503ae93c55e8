package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// models starts a proxy for language models, and returns its addresses by protocol.
func models(t *testing.T, args ...string) (*process, map[string]string) {
	t.Helper()
	p := start(t, nil, binary(t), append([]string{"models", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	return p, p.named("models", "admin")
}

// ofModels are the parts of docs/models.md that differ from run to run.
var ofModels = regexp.MustCompile(`[A-Z2-7]{26}|raise [A-Z2-7]{8}|[0-9]+ (left|used|remain)|in [0-9][0-9.a-zµ]*|until [0-9T:-]+Z`)

// TestModelsDocs starts the proxy with the rules of docs/models.md and runs its calls.
func TestModelsDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "curl")
	dir := t.TempDir()
	rules, callers := filepath.Join(dir, "models.yaml"), filepath.Join(dir, "callers.yaml")
	var s *shell
	pages.Hold(t, "docs/models.md", ofModels, func(b pages.Block) string {
		switch {
		case b.File != "":
			if err := os.WriteFile(filepath.Join(dir, b.File), []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(b.Text, "--mock"):
			_, addrs := models(t, "--mock", "--config", rules, "--callers", callers)
			s = newShell(t, "127.0.0.1:8090", addrs["models"], "models.yaml", rules, "classes.yaml", filepath.Join(dir, "classes.yaml"), "ops-token", filepath.Join(dir, "ops-token"))
			s.run("export WEIR_ADMIN=http://" + addrs["admin"])
		case b.Language == "console":
			return s.console(b.Text)
		}
		return b.Text
	})
}

// ofPeople are the parts of the pages for people and their leads that differ from run to run.
var ofPeople = regexp.MustCompile(`"(?:used|held)":"?[0-9.]+|"remaining":"?[0-9.]+"?(?:,"resets_at":"[^"]*")?|raise [A-Z2-7]{8}|-?[0-9]+ left|in [0-9]+ s|until [0-9T:-]+Z`)

// demo saves the rules and callers of docs/models.md, and returns the flags that name them.
func demo(t *testing.T) (dir string, flags []string) {
	t.Helper()
	testserver.Require(t, "curl")
	dir = t.TempDir()
	for _, b := range pages.Blocks(t, "docs/models.md") {
		if b.File == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, b.File), []byte(b.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"--mock", "--config", filepath.Join(dir, "models.yaml"), "--callers", filepath.Join(dir, "callers.yaml")}
}

// people runs the commands of a page against a proxy with the rules and callers of docs/models.md.
func people(t *testing.T, page string) {
	t.Helper()
	dir, flags := demo(t)
	_, addrs := models(t, flags...)
	s := newShell(t, "127.0.0.1:8090", addrs["models"], "models.yaml", filepath.Join(dir, "models.yaml"), "ops-token", filepath.Join(dir, "ops-token"))
	s.run("export WEIR_ADMIN=http://" + addrs["admin"])
	pages.Hold(t, page, ofPeople, func(b pages.Block) string { return s.console(b.Text) })
}

// TestYourLimitsDocs makes the calls of docs/your-limits.md.
func TestYourLimitsDocs(t *testing.T) {
	t.Parallel()
	people(t, "docs/your-limits.md")
}

// TestRaisingLimitsDocs runs the commands of docs/raising-limits.md.
func TestRaisingLimitsDocs(t *testing.T) {
	t.Parallel()
	people(t, "docs/raising-limits.md")
}

// TestSpendingDocs runs the commands of docs/spending.md with a Redis. The proxy stops before the
// report, so that all is written.
func TestSpendingDocs(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t)
	_, flags := demo(t)
	dir := filepath.Join(t.TempDir(), "journal")
	p, addrs := models(t, append(flags, "--store", store.URL(), "--ledger-zone", "Europe/Berlin", "--journal", dir, "--drain-delay", "0s")...)
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t, "127.0.0.1:8090", addrs["models"], "127.0.0.1:6379", store.Addr(), "/var/lib/weir/journal", dir, "2026-11", time.Now().In(zone).Format("2006-01"))
	pages.Hold(t, "docs/spending.md", nil, func(b pages.Block) string {
		if strings.Contains(b.Text, "weir report") {
			p.Stop(syscall.SIGTERM)
		}
		return s.console(b.Text)
	})
}
