package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/pages"
	"github.com/weirlimit/weir/internal/testserver"
)

// models starts a proxy for language models, and returns its addresses by protocol.
func models(t *testing.T, args ...string) (*process, map[string]string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	p := startWith(t, nil, path, append([]string{"models", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	addrs := map[string]string{}
	for deadline := time.After(startTimeout); addrs["admin"] == ""; {
		select {
		case line, open := <-p.Lines:
			if !open {
				t.Fatal("weir models ended before it served")
			}
			protocol, addr, _ := strings.Cut(line, " ")
			addrs[protocol] = addr
		case <-deadline:
			t.Fatalf("weir models named no address within %v", startTimeout)
		}
	}
	return p, addrs
}

// ofModels are the parts of docs/models.md that differ from run to run.
var ofModels = regexp.MustCompile(`[A-Z2-7]{26}|[0-9]+ (left|used|remain)|in [0-9][0-9.a-zµ]*`)

// TestModelsDocs starts the proxy with the rules of docs/models.md and runs its calls.
func TestModelsDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "curl")
	rules := filepath.Join(t.TempDir(), "models.yaml")
	var s *shell
	pages.Hold(t, "docs/models.md", ofModels, func(b pages.Block) string {
		switch {
		case b.File != "":
			if err := os.WriteFile(rules, []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(b.Text, "--mock"):
			_, addrs := models(t, "--mock", "--config", rules)
			s = newShell(t, "127.0.0.1:8090", addrs["models"], "models.yaml", rules)
			s.run("export WEIR_ADMIN=http://" + addrs["admin"])
		case b.Language == "console":
			return s.console(b.Text)
		}
		return b.Text
	})
}
