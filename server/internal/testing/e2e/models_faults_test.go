package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// modelRules count what a key uses, in windows that do not end at midnight, and hold 500
// output tokens for each request. Each model has its own policy for a store failure.
const modelRules = `
domain: llm
models: [{model: "*", input: 1, output: 2}]
descriptors:
  - key: key
    output_guess: 500
    rate_limits:
      - {name: requests, requests_per_unit: 1000, unit: year, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 100000, unit: year, algorithm: fixed_window}
      - {name: open, requests_per_unit: 20, period: 5s, algorithm: concurrency}
  - {key: model, value: deny-5, rate_limit: {name: deny, requests_per_unit: 1000, unit: year, algorithm: fixed_window, on_store_failure: deny}}
  - {key: model, value: error-5, rate_limit: {name: error, requests_per_unit: 1000, unit: year, algorithm: fixed_window, on_store_failure: error}}
  - {key: model, value: allow-5, rate_limit: {name: allow, requests_per_unit: 1000, unit: year, algorithm: fixed_window, on_store_failure: allow}}
`

// prompt and modelKey are in no log.
const (
	prompt   = "a-prompt-that-nobody-logs"
	modelKey = "a-key-that-nobody-logs"
)

// A modelProxy is a running "weir models".
type modelProxy struct {
	*process
	addrs map[string]string
}

// proxy starts a proxy with modelRules before a mock.
func proxy(t *testing.T, store string, more ...string) *modelProxy {
	t.Helper()
	return proxyWith(t, modelRules, store, append([]string{"--mock"}, more...)...)
}

// proxyWith starts a proxy with rules before what more says.
func proxyWith(t *testing.T, text, store string, more ...string) *modelProxy {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "models.yaml")
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--config", rules, "--store", store, "--log-level", "debug", "--timeout", "4s", "--drain-delay", "0s"}, more...)
	p, addrs := models(t, args...)
	t.Cleanup(func() {
		if said := p.Stderr.String(); strings.Contains(said, prompt) || strings.Contains(said, modelKey) || !strings.Contains(said, `"msg":`) {
			t.Errorf("the log has a prompt or a credential, or nothing:\n%s", said)
		}
	})
	return &modelProxy{p, addrs}
}

// call calls a model.
func (p *modelProxy) call(model string, stream bool) *http.Response {
	p.t.Helper()
	body := map[string]any{"model": model, "stream": stream, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.addrs["models"]+"/v1/chat/completions", strings.NewReader(string(text)))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+modelKey)
	answer, err := newClient(p.t).Transport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// wants fails the test unless a call of a model is answered so.
func (p *modelProxy) wants(model string, status int) {
	p.t.Helper()
	answer := p.call(model, false)
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status || status == http.StatusServiceUnavailable && !strings.Contains(string(text), `"code":"no_decision"`) {
		p.t.Errorf("%s: %d %s, %v, want %d", model, answer.StatusCode, text, err, status)
	}
}

// eventually repeats a call of a model until it is answered so: a call that is in flight when an
// outage begins gets an error.
func (p *modelProxy) eventually(model string, status int) {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); p.call(model, false).StatusCode != status; {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not %d", model, status)
		}
	}
}

// stream begins a stream.
func (p *modelProxy) stream(model string) *bufio.Reader {
	p.t.Helper()
	from := bufio.NewReader(p.call(model, true).Body)
	if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, "word") {
		p.t.Fatalf("the stream begins with %q, %v", line, err)
	}
	return from
}

// words reads a stream to its end, and returns how many words it had and how it ended.
func words(from io.Reader) (n int, end string, err error) {
	text, err := io.ReadAll(from)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return 1 + strings.Count(string(text), "word"), lines[len(lines)-1], err
}

// used returns what the limits of the key have used.
func (p *modelProxy) used() map[string]int64 {
	sum := sha256.Sum256([]byte(modelKey))
	query := url.Values{"domain": {"llm"}, "entry": {"key=sha256:" + hex.EncodeToString(sum[:8])}}
	answer, err := http.Get("http://" + p.addrs["admin"] + "/v1/key?" + query.Encode())
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var state struct {
		Limits []struct {
			Name  string
			State struct{ Used int64 }
		}
	}
	_ = json.NewDecoder(answer.Body).Decode(&state)
	used := map[string]int64{}
	for _, l := range state.Limits {
		used[l.Name] = l.State.Used
	}
	return used
}

// eventuallyUses waits until the key has used so much.
func (p *modelProxy) eventuallyUses(want map[string]int64) {
	p.t.Helper()
	diff := "-"
	for deadline := time.Now().Add(60 * time.Second); diff != "" && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		diff = cmp.Diff(want, p.used())
	}
	if diff != "" {
		p.t.Errorf("used (-want +got):\n%s", diff)
	}
}

// TestModelsDrain ends a process by SIGTERM while streams are open: those that end in time
// end in order, the others with an error event, and each is charged.
func TestModelsDrain(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t).URL()
	p, other := proxy(t, store, "--drain-timeout", "12s"), proxy(t, store)
	short, long := p.stream("mock-50"), p.stream("mock-100000")
	begun := time.Now()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if n, end, err := words(short); n != 50 || end != "data: [DONE]" || err != nil {
		t.Errorf("%d words, then %q, %v", n, end, err)
	}
	n, end, err := words(long)
	if took := time.Since(begun); !strings.HasPrefix(end, `data: {"error":{"message":"the server stops"`) || err != nil || took < 9*time.Second {
		t.Errorf("%d words, then %q, %v after %v", n, end, err, took)
	}
	<-p.Exited
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	seen := (int64(n*len("word ")) + 3) / 4
	other.eventuallyUses(map[string]int64{"requests": 2, "output": 50 + seen, "open": 0})
}

// TestModelsKilled kills a proxy while a stream is open. Its hold stays charged, and its slot
// is free once the lease ends.
func TestModelsKilled(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t).URL()
	p, other := proxy(t, store), proxy(t, store)
	p.stream("mock-100000")
	other.eventuallyUses(map[string]int64{"requests": 1, "output": 500, "open": 1})
	_ = p.Cmd.Process.Kill()
	<-p.Exited
	other.wants("mock-5", http.StatusOK)
	other.eventuallyUses(map[string]int64{"requests": 2, "output": 505, "open": 0})
}

// TestModelsOutage breaks Redis while a stream is open. The stream goes on, new requests are
// answered by on_store_failure of their limits, and once Redis is back it has counted what
// was used.
func TestModelsOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testserver.Redis, *atomic.Bool)
	}{
		"stopped": {
			func(r *testserver.Redis, _ *atomic.Bool) { r.Kill() },
			func(r *testserver.Redis, _ *atomic.Bool) { r.Restart() },
		},
		"hung": {
			func(r *testserver.Redis, _ *atomic.Bool) { r.Pause() },
			func(r *testserver.Redis, _ *atomic.Bool) { r.Resume() },
		},
		"late": {
			func(_ *testserver.Redis, late *atomic.Bool) { late.Store(true) },
			func(_ *testserver.Redis, late *atomic.Bool) { late.Store(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
			var late atomic.Bool
			between := testserver.StartProxy(t, redis.Addr(), func([]byte) testserver.Fault {
				if late.Load() {
					return testserver.Delay
				}
				return testserver.Pass
			})
			p := proxy(t, "redis://"+between.Addr(), "--store-timeout", "1s", "--store-silence", "1s")
			p.wants("mock-5", http.StatusOK)
			stream := p.stream("mock-600")
			fault.begin(redis, &late)
			for model, status := range map[string]int{
				"mock-5": http.StatusOK, "allow-5": http.StatusOK, "deny-5": http.StatusServiceUnavailable, "error-5": http.StatusServiceUnavailable,
			} {
				if status == http.StatusOK {
					p.eventually(model, status)
				} else {
					p.wants(model, status)
				}
			}
			if n, end, err := words(stream); n != 600 || end != "data: [DONE]" || err != nil {
				t.Errorf("%d words, then %q, %v", n, end, err)
			}
			fault.end(redis, &late)
			p.eventuallyUses(map[string]int64{"requests": 4, "output": 5 + 600 + 5 + 5, "open": 0})
			p.wants("deny-5", http.StatusOK)
		})
	}
}
