package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// instants are what differs from run to run.
var instants = regexp.MustCompile(`(?m)^(Date: |Content-Length: |Retry-After: |X-Ratelimit-Reset: ).*$|("at_us":|"retry_after_ms":|"reset_after_ms":|;t=|room in )[0-9]+`)

// TestHTTPDocs runs the calls of docs/http.md and demands that the docs have the
// answers.
func TestHTTPDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "curl")
	w := serve(t, "../../rules/demo.yaml", "memory")
	s := newShell(t, "127.0.0.1:8080", w.addr)
	pages.Hold(t, "docs/http.md", instants, func(b pages.Block) string { return s.console(b.Text) })
}

// shared are the figures of docs/sharing.md that differ from run to run.
var shared = regexp.MustCompile(`("at_us":|"retry_after_ms":|"reset_after_ms":|"remaining":)[0-9]+`)

// TestSharingDocs serves the rules of docs/sharing.md and runs its commands.
func TestSharingDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "curl")
	dir := t.TempDir()
	for _, b := range pages.Mine(t, "docs/sharing.md") {
		if b.File != "" {
			if err := os.WriteFile(filepath.Join(dir, b.File), []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := serve(t, dir, "memory")
	s := newShell(t, "127.0.0.1:8080", w.addr)
	s.run("cd '" + dir + "'")
	pages.Hold(t, "docs/sharing.md", shared, func(b pages.Block) string {
		if b.Language != "console" {
			return b.Text
		}
		return s.console(b.Text)
	})
}

// TestCompletionDocs has bash complete the command.
func TestCompletionDocs(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	pages.Hold(t, "docs/install.md", nil, func(b pages.Block) string { return s.console(b.Text) })
	// What the package bash-completion has.
	s.run(`_get_comp_words_by_ref() { cur=che prev=weir words=(weir che) cword=1; }; compopt() { :; }`)
	if printed := s.run(`COMP_TYPE=9 __start_weir; echo "${COMPREPLY[@]}"`); printed != "check\n" {
		t.Errorf("bash completes weir che to %q", printed)
	}
}
