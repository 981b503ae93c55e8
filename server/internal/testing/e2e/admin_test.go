package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// aged are what differs from run to run of docs/admin.md.
var aged = regexp.MustCompile(`(all free in |fits in |another )[0-9][0-9a-z.]*|[0-9]{4}-[0-9-]+T[0-9:]+Z|[0-9]+ used, [0-9]+ remain|raise [A-Z2-7]{8}|("at_us": |"for_ms": )[0-9]+`)

// TestAdminDocs runs the commands of docs/admin.md on two instances with one Redis,
// and on one whose Redis is away.
func TestAdminDocs(t *testing.T) {
	t.Parallel()
	w := newTour(t, "127.0.0.1:6071", "127.0.0.1:17999")
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.run("cd /tmp/weir-quickstart; export WEIR_STORE_TIMEOUT=5s WEIR_CONFIG=rules.yaml")
	w.run("export WEIR_STORE='" + testserver.StartRedis(t).URL() + "'")
	var logged, addresses string
	pages.Hold(t, "docs/admin.md", aged, func(b pages.Block) string {
		switch {
		case b.Language == "json":
			logged = b.Text
		case b.Language == "":
			addresses = b.Text
		case b.File != "":
			w.write(b.File, b.Text)
			if printed := w.background("weir serve 2> first.log &"); printed != addresses {
				t.Errorf("%s says that weir serve prints\n%s\nbut it is\n%s", b.Page, addresses, printed)
			}
			w.background("WEIR_HTTP=127.0.0.1:0 WEIR_GRPC=off weir serve --admin 127.0.0.1:6071 2> second.log &")
			w.run(`curl -s 'http://127.0.0.1:8080/v1/auth?domain=shop&user=42&cost=18'`)
		case strings.Contains(b.Text, "17999"):
			return w.away(b.Text)
		default:
			return w.each(b.Text)
		}
		return b.Text
	})
	w.audited(logged)
}

// each runs a block, and lets what a command changes reach the other instance before
// the next one.
func (w *tour) each(text string) string {
	var printed strings.Builder
	for i, part := range strings.SplitAfter(text, "\n$ ") {
		part = strings.TrimSuffix(part, "$ ")
		if i > 0 {
			part = "$ " + part
		}
		printed.WriteString(w.console(part))
		w.agree()
	}
	return printed.String()
}

// away runs a block against an instance whose Redis is not there.
func (w *tour) away(text string) string {
	w.background("WEIR_HTTP=127.0.0.1:0 WEIR_GRPC=off weir serve --admin 127.0.0.1:8000 --store redis://127.0.0.1:17999 2> third.log &")
	w.run("export WEIR_ADMIN=127.0.0.1:8000")
	defer w.run("export WEIR_ADMIN=127.0.0.1:6070")
	return w.console(text)
}

// until is what instances compute for themselves.
var until = regexp.MustCompile(`"(for_ms|since_ms)": *[0-9]+`)

// agree waits until both instances know the same overrides.
func (w *tour) agree() {
	w.t.Helper()
	known := func(address string) string {
		resp, err := http.Get("http://" + w.addrs[address] + "/v1/overrides")
		if err != nil {
			w.t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			w.t.Fatal(err)
		}
		return until.ReplaceAllString(string(text), "")
	}
	for deadline := time.Now().Add(startTimeout); known("127.0.0.1:6070") != known("127.0.0.1:6071"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("one instance knows %s\nthe other %s", known("127.0.0.1:6070"), known("127.0.0.1:6071"))
		}
	}
}

// audited compares the fields of the page's line of the log with those of a line.
func (w *tour) audited(page string) {
	w.t.Helper()
	log, err := os.ReadFile(filepath.Join(w.dir, "first.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(`"audit":"key block"`)) {
			if got, want := fields(w.t, []byte(page)), fields(w.t, line); !slices.Equal(got, want) {
				w.t.Errorf("docs/admin.md has a line with %v, the log with %v", got, want)
			}
			return
		}
	}
	w.t.Errorf("the log has no line about a key that was blocked:\n%s", log)
}

func fields(t *testing.T, line []byte) []string {
	t.Helper()
	var record map[string]any
	if err := json.Unmarshal(line, &record); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(record))
}
