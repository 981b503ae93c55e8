package e2e

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/storetest"
)

var update = flag.Bool("update", false, "write the answers in the docs anew")

// instants are what differs from run to run.
var instants = regexp.MustCompile(`(?m)^(Date: |Content-Length: |Retry-After: |X-Ratelimit-Reset: ).*$|("at_us":|"retry_after_ms":|"reset_after_ms":|;t=|room in )[0-9]+`)

// TestHTTPDocs runs the calls of docs/http.md and demands that the docs have the
// answers.
func TestHTTPDocs(t *testing.T) {
	t.Parallel()
	storetest.Require(t, "curl")
	const file = "../../docs/http.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := serve(t, "../../server/rules/demo.yaml", "memory")
	var out strings.Builder
	rest, ran := string(text), 0
	for {
		before, block, found := strings.Cut(rest, "```console\n")
		out.WriteString(before)
		if !found {
			break
		}
		block, rest, _ = strings.Cut(block, "```")
		out.WriteString("```console\n")
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out.WriteString(line + w.run(t, strings.TrimSuffix(command, "\n")))
				ran++
			}
		}
		out.WriteString("```")
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := instants.ReplaceAllString(out.String(), "$1$2…"), instants.ReplaceAllString(string(text), "$1$2…")
	if got != want || ran < 5 {
		t.Errorf("%d calls; docs/http.md is to say\n%s", ran, out.String())
	}
}

// run runs a command of the docs on this server and returns what it prints.
func (w *weir) run(t *testing.T, command string) string {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8080", w.addr)).Output()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	answer := strings.TrimRight(strings.ReplaceAll(string(printed), "\r", ""), "\n")
	if answer == "" {
		return ""
	}
	return answer + "\n"
}
