// Package sdks tests weir models with the SDKs of providers: what they make of its answers
// decides whether a client waits, gives up or tries again. It is a module of its own, so
// that nobody who uses Weir depends on them.
package sdks

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take.
const patience = 2 * time.Minute

// rules let a key use 100 output tokens of mock models at once, and half a dollar a day.
// They let mock-quick be called once in three seconds, and mock-100000 once at a time.
const rules = `
domain: llm
models: [{model: "mock*", input: 1000, output: 1000}]
descriptors:
  - key: key
    rate_limits:
      - {name: requests, requests_per_unit: 1000, unit: day, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 100, unit: minute, algorithm: gcra}
      - {name: dollars, count: usd, dollars: 0.5, unit: day, algorithm: fixed_window}
    descriptors:
      - {key: model, value: mock-quick, rate_limit: {name: quick, requests_per_unit: 20, unit: minute, algorithm: gcra, burst: 1}}
  - {key: model, value: mock-100000, rate_limit: {name: open, requests_per_unit: 1, period: 30s, algorithm: concurrency}}
`

// roomy are rules that refuse nothing.
const roomy = `
domain: llm
descriptors:
  - key: key
    rate_limits:
      - {name: requests, requests_per_unit: 1000, unit: day, algorithm: fixed_window}
      - {name: input, count: input, requests_per_unit: 1000000, unit: day, algorithm: fixed_window}
      - {name: cached, count: cached, requests_per_unit: 1000000, unit: day, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 10000000, unit: day, algorithm: fixed_window}
      - {name: open, requests_per_unit: 100, period: 15m, algorithm: concurrency}
`

// binary is the program, built once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "weir")
	build := exec.Command("go", "build", "-o", path, "./server/cmd/weir")
	build.Dir, build.Env = "../../..", append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// folder lives as long as the tests.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "sdks"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// A proxy is a running weir models.
type proxy struct {
	url, admin string
	cmd        *exec.Cmd
}

// start starts weir models, which ends with the test.
func start(t *testing.T, rules string, args ...string) *proxy {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &proxy{cmd: exec.Command(program, append([]string{"models", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)}
	for protocol, addr := range run(t, p.cmd, "admin") {
		switch protocol {
		case "models":
			p.url = "http://" + addr
		case "admin":
			p.admin = "http://" + addr
		}
	}
	return p
}

// run starts a command, and returns the lines that it prints up to the last one: a name
// and a value each. The command ends with the test.
func run(t *testing.T, cmd *exec.Cmd, last string) map[string]string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		force := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		if force.Stop(); t.Failed() {
			t.Logf("%v said:\n%s", cmd, &said)
		}
	})
	found := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if found[name] = value; name == last {
			return found
		}
	}
	t.Fatalf("%v printed no %s", cmd, last)
	return nil
}

// entryOf returns the descriptor of a key.
func entryOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key=sha256:" + hex.EncodeToString(sum[:8])
}

// used returns what the limits of a key have used, by their names.
func (p *proxy) used(t *testing.T, key string) map[string]int64 {
	t.Helper()
	return p.usedOf(t, entryOf(key))
}

// usedOf returns what the limits of a descriptor have used, by their names.
func (p *proxy) usedOf(t *testing.T, entry string) map[string]int64 {
	t.Helper()
	query := url.Values{"domain": {"llm"}, "entry": {entry}}
	answer, err := http.Get(p.admin + "/v1/key?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var state struct {
		Limits []struct {
			Name  string
			State struct{ Used int64 }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil || len(state.Limits) == 0 {
		t.Fatalf("%d, %v", answer.StatusCode, err)
	}
	used := map[string]int64{}
	for _, l := range state.Limits {
		used[l.Name] = l.State.Used
	}
	return used
}

// wants waits until a key has used so much: an SDK stops reading where the last event ends,
// and a request is settled behind that.
func (p *proxy) wants(t *testing.T, key string, want map[string]int64) {
	t.Helper()
	p.wantsOf(t, entryOf(key), want)
}

// wantsOf is [proxy.wants] of a descriptor.
func (p *proxy) wantsOf(t *testing.T, entry string, want map[string]int64) {
	t.Helper()
	for deadline := time.Now().Add(patience / 4); ; time.Sleep(20 * time.Millisecond) {
		used := p.usedOf(t, entry)
		got := map[string]int64{}
		for name := range want {
			got[name] = used[name]
		}
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s used %v, want %v", entry, used, want)
			return
		}
	}
}

// overloaded is an upstream that answers the first two requests of a kind as an overloaded
// provider does, and the third one with 7 and 5 tokens.
func overloaded(t *testing.T) string {
	t.Helper()
	var calls [2]atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		messages := strings.HasSuffix(r.URL.Path, "/messages")
		kind := &calls[0]
		if messages {
			kind = &calls[1]
		}
		switch n := kind.Add(1); {
		case n%3 != 0 && messages:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		case n%3 != 0:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After-Ms", "50")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"overloaded","type":"server_error","param":null,"code":null}}`)
		default:
			answer(w, r, 7, 5)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// answer answers a request with so many tokens.
func answer(w http.ResponseWriter, r *http.Request, input, output int) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/messages") {
		_, _ = fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}`, input, output)
		return
	}
	_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, input, output, input+output)
}

// node returns a command that runs a script with the packages of package.json.
func node(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	require(t, "node", "the SDKs for Node", "node_modules/@copilotkit/aimock")
	return exec.Command("node", append([]string{script}, args...)...)
}

// python returns a command that runs sdks.py with the packages of requirements.txt.
func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(cache, "weir", "python-sdks")
	require(t, "python3", "the SDKs for Python", filepath.Join(packages, "anthropic"))
	cmd := exec.Command("python3", append([]string{"-B", "sdks.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	return cmd
}

// require wants a program, and a folder that scripts/setup.sh installs. Without them the test is
// skipped, unless WEIR_REQUIRE names the program.
func require(t *testing.T, program, name, folder string) {
	t.Helper()
	_, missing := exec.LookPath(program)
	if missing == nil && folder != "" {
		_, missing = os.Stat(folder)
	}
	switch {
	case missing == nil:
	case slices.Contains(strings.Split(os.Getenv("WEIR_REQUIRE"), ","), strings.TrimSuffix(program, "-server")):
		t.Fatalf("missing: %s: run scripts/setup.sh: %v", name, missing)
	default:
		t.Skipf("SKIPPED, NOTHING WAS TESTED: missing: %s: run scripts/setup.sh", name)
	}
}
