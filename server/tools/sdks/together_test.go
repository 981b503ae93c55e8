package sdks

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slots let five requests be open at a time, and cents let a twentieth of a dollar be used.
const (
	slots = `
domain: llm
descriptors:
  - {key: model, rate_limit: {name: open, requests_per_unit: 5, period: 30s, algorithm: concurrency}}
`
	cents = `
domain: llm
models: [{model: "*", input: 3, output: 15}]
descriptors:
  - {key: model, rate_limit: {name: dollars, count: usd, dollars: 0.05, unit: day, algorithm: fixed_window, anchor: first}}
`
)

// TestTogether lets 60 callers come at once, who wait in line.
func TestTogether(t *testing.T) {
	t.Parallel()
	for language, script := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			var jobs []string
			var want []map[string]int64
			job := func(instances int, rules, how, words string, served int64) {
				_, urls := several(t, instances, rules, "--upstream", steady(t, 50*time.Millisecond), "--wait", "60s")
				jobs = append(jobs, "--", "together", urls, "60", how, words)
				told := map[string]int64{"calls": 60, "served": served}
				if served < 60 {
					told["insufficient_quota"] = 60 - served
				}
				want = append(want, told)
			}
			job(1, slots, "both", "1", 60)
			// Between instances there is no order, and nobody is refused, either.
			job(2, slots, "both", "1", 60)
			// Without max_tokens a request holds the price of 1024 output tokens and uses that of 100,
			// so that the budget ends for one caller alone with $0.015 left. All at once get as much.
			for words, served := range map[string]int64{"1": 23, "20": 22} {
				job(1, cents, "alone", words, served)
				job(1, cents, "chat", words, served)
			}
			for i, got := range printed(t, script(t, jobs[1:]...)) {
				if !maps.Equal(got, want[i]) {
					t.Errorf("%v: %v, want %v", jobs[6*i+1:6*i+6], got, want[i])
				}
			}
		})
	}
}

// TestTogetherOnTwo lets 60 callers come at once to two instances that share the last cents: they
// are never exceeded.
func TestTogetherOnTwo(t *testing.T) {
	t.Parallel()
	all, urls := several(t, 2, cents, "--upstream", steady(t, 50*time.Millisecond), "--wait", "60s")
	told := printed(t, node(t, "sdks.mjs", "together", urls, "60", "chat", "1"))[0]
	// A request has 16 tokens, and its answer 100.
	if used := told["served"] * (3*16 + 15*100); used > 50_000 || used == 0 {
		t.Errorf("%v of 50000 for %v", used, told)
	} else {
		all[1].wantsOf(t, "model=m", map[string]int64{"dollars": used})
	}
}

// several starts instances on one Redis, if they are more than one, and returns their URLs,
// separated by commas, too.
func several(t *testing.T, n int, rules string, args ...string) (all []*proxy, urls string) {
	t.Helper()
	if n > 1 {
		// However late the machine is, the store decides.
		args = append(args, "--store", redis(t), "--store-timeout", "4s", "--store-silence", "4s", "--timeout", "4.9s")
	}
	for range n {
		p := start(t, rules, args...)
		all, urls = append(all, p), strings.TrimPrefix(urls+","+p.url, ",")
	}
	return all, urls
}

// redis starts a Redis, and returns its URL.
func redis(t *testing.T) string {
	t.Helper()
	require(t, "redis-server", "Redis", "")
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			return "unix://" + socket
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// steady is an upstream that answers after a pause, with 100 tokens and one for each four bytes of
// the request.
func steady(t *testing.T, pause time.Duration) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		time.Sleep(pause)
		answer(w, r, int(n+3)/4, 100)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
