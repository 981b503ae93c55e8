package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/pages"
	"github.com/weirlimit/weir/internal/testserver"
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
			s = newShell(t, "127.0.0.1:8090", addrs["models"], "models.yaml", rules, "ops-token", filepath.Join(dir, "ops-token"))
			s.run("export WEIR_ADMIN=http://" + addrs["admin"])
		case b.Language == "console":
			return s.console(b.Text)
		}
		return b.Text
	})
}
