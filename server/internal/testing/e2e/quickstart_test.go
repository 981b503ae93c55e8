package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A tour is a page that leads through several programs.
type tour struct {
	*shell
	dir   string
	addrs map[string]string // by those of the page
}

func newTour(t *testing.T, more ...string) *tour {
	t.Helper()
	w := &tour{dir: filepath.Join(t.TempDir(), "weir"), addrs: map[string]string{}}
	replaced := []string{"/tmp/weir-quickstart", w.dir, "/tmp/weir-hour", w.dir}
	usual := []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:6070", "127.0.0.1:8000", "127.0.0.1:3000"}
	for _, address := range append(usual, more...) {
		free := testserver.FreeAddr(t)
		w.addrs[address] = free
		for _, between := range []string{":", " ", " --port "} {
			replaced = append(replaced, strings.Replace(address, ":", between, 1), strings.Replace(free, ":", between, 1))
		}
	}
	t.Cleanup(func() { w.logs() })
	w.shell = newShell(t, replaced...)
	w.ready = map[string]string{"nginx": "127.0.0.1:8000", "python3": "127.0.0.1:3000", "redis-server": "127.0.0.1:6379"}
	w.run("export WEIR_HTTP=127.0.0.1:8080 WEIR_GRPC=127.0.0.1:8081 WEIR_ADMIN=127.0.0.1:6070 WEIR_RESP=off")
	return w
}

// logs shows what the programs have logged, where the test failed.
func (w *tour) logs() {
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, file := range files {
		showLog(w.t, file)
	}
}

// write saves a file as the page shows it, and waits until the server has read its
// rules, if there is one.
func (w *tour) write(file, text string) {
	w.t.Helper()
	before := w.loads()
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(w.to.Replace(text)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(startTimeout); before > 0 && w.loads() == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("the server does not read %s", file)
		}
	}
}

var successes = regexp.MustCompile(`(?m)^weir_config_load_successes_total (\d+)$`)

// loads is how often a server has put rules in force, 0 if none runs.
func (w *tour) loads() int {
	resp, err := http.Get("http://" + w.addrs["127.0.0.1:8080"] + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		w.t.Fatal(err)
	}
	found := successes.FindSubmatch(text.Bytes())
	if found == nil {
		w.t.Fatalf("no %s", successes)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}

// patient makes a configuration wait longer for Weir: on a busy machine an answer may
// take its time, and a request that passes unlimited would spoil the count.
func (w *tour) patient(file string) {
	w.t.Helper()
	w.change(file, func(conf string) string {
		return regexp.MustCompile(`(_timeout +)1s;`).ReplaceAllString(w.to.Replace(conf), "${1}10s;")
	})
}

// readdress replaces the addresses in a file that a command wrote.
func (w *tour) readdress(file string) {
	w.t.Helper()
	w.change(file, w.to.Replace)
}

func (w *tour) change(file string, edit func(string) string) {
	w.t.Helper()
	path := filepath.Join(w.dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(edit(string(text))), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// passing is what differs from run to run.
var passing = regexp.MustCompile(`(all free in |fits in |until |;t=|Retry-After: )[0-9][^,; \n]*`)

// TestQuickstart does what docs/quickstart.md says, from the first command to the
// last.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	w := newTour(t)
	w.follow("docs/quickstart.md", func(b pages.Block) {
		if strings.Contains(b.Text, "weir serve") {
			w.patient("nginx.conf")
			w.dashboard()
		}
	})
}

// TestNginxDocs does the same with docs/nginx.md.
func TestNginxDocs(t *testing.T) {
	t.Parallel()
	w := newTour(t)
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.follow("docs/nginx.md", func(b pages.Block) {
		if b.File == "weir.conf" {
			w.patient(b.File)
		}
	})
}

// follow saves the files of a page and runs its commands, from the top down.
func (w *tour) follow(page string, after func(pages.Block)) {
	w.t.Helper()
	testserver.Require(w.t, "nginx")
	testserver.Require(w.t, "python3")
	pages.Hold(w.t, page, passing, func(b pages.Block) string {
		text := b.Text
		if b.File != "" {
			w.write(b.File, b.Text)
		} else {
			text = w.console(b.Text)
		}
		after(b)
		return text
	})
}

// dashboard looks at the page that the reader is asked to open.
func (w *tour) dashboard() {
	w.t.Helper()
	resp, err := http.Get("http://" + w.addrs["127.0.0.1:6070"] + "/")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		w.t.Errorf("the dashboard: %s", resp.Status)
	}
}
