package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/models/mockmodel"
)

// benchRules count everything and refuse nothing.
const benchRules = `
domain: llm
models: [{model: "*", input: 1, output: 2}]
descriptors:
  - key: key
    rate_limits:
      - {name: requests, requests_per_unit: 1000000000, unit: day, algorithm: fixed_window}
      - {name: input, count: input, requests_per_unit: 1000000000, unit: day, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 1000000000, unit: day, algorithm: fixed_window}
      - {name: dollars, count: usd, dollars: 1000, unit: day, algorithm: fixed_window}
      - {name: open, requests_per_unit: 4096, period: 15m, algorithm: concurrency}
`

// proxyBefore starts a proxy with benchRules before an upstream, and returns its process and
// URL.
func proxyBefore(b *testing.B, upstream string) (pid int, url string) {
	b.Helper()
	rules := filepath.Join(b.TempDir(), "models.yaml")
	if err := os.WriteFile(rules, []byte(benchRules), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := command([]string{"GOMEMLIMIT=230MiB"}, binary(b), "models", "--listen", "127.0.0.1:0", "--upstream", upstream, "--config", rules)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if addr, found := strings.CutPrefix(lines.Text(), "models "); found {
			return cmd.Process.Pid, "http://" + addr
		}
	}
	b.Fatal("weir models named no address")
	return 0, ""
}

// openStream begins a stream and reads its first event.
func openStream(client *http.Client, url string) (io.ReadCloser, error) {
	const body = `{"model":"mock-1000","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer a-key")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	_, err = io.ReadFull(answer.Body, make([]byte, 64))
	return answer.Body, err
}

// BenchmarkModelsFirstByte measures how much later the first bytes of a stream come through a
// proxy than without it, call by call in turn, in microseconds.
func BenchmarkModelsFirstByte(b *testing.B) {
	upstream := httptest.NewServer(&mockmodel.Server{Pause: time.Millisecond})
	b.Cleanup(upstream.Close) // after the proxy has ended
	_, url := proxyBefore(b, upstream.URL)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	var took [2][]time.Duration
	call := func(i int) time.Duration {
		begun := time.Now()
		body, err := openStream(client, [2]string{upstream.URL, url}[i])
		if err != nil {
			b.Fatal(err)
		}
		first := time.Since(begun)
		_ = body.Close()
		return first
	}
	for range 100 { // until connections are open and code is warm
		call(0)
		call(1)
	}
	b.ResetTimer()
	for range b.N {
		for i := range took {
			took[i] = append(took[i], call(i))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	for name, at := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		place := int(at * float64(b.N-1))
		b.ReportMetric(float64(took[0][place].Microseconds()), "direct-"+name+"-µs")
		b.ReportMetric(float64((took[1][place] - took[0][place]).Microseconds()), "later-"+name+"-µs")
	}
}

// BenchmarkModelsStreams measures the memory of a proxy with 2000 open streams, in MiB.
func BenchmarkModelsStreams(b *testing.B) {
	const streams = 2000
	upstream := httptest.NewServer(&mockmodel.Server{Pause: 100 * time.Millisecond})
	b.Cleanup(upstream.Close) // after the proxy has ended
	for range b.N {
		pid, url := proxyBefore(b, upstream.URL)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
		open := make(chan io.ReadCloser, streams)
		var calls sync.WaitGroup
		room := make(chan struct{}, 50)
		for range streams {
			room <- struct{}{}
			calls.Go(func() {
				defer func() { <-room }()
				body, err := openStream(client, url)
				if err != nil {
					b.Error(err)
					return
				}
				open <- body
			})
		}
		calls.Wait()
		close(open)
		for body := range open {
			go func() { _, _ = io.Copy(io.Discard, body) }()
		}
		time.Sleep(10 * time.Second) // of 20 000 events a second
		b.ReportMetric(float64(memoryOf(b, pid, "VmHWM:"))/1024, "MiB-most")
		b.ReportMetric(float64(memoryOf(b, pid, "VmRSS:"))/1024, "MiB")
	}
}

// memoryOf returns a figure of a process in KiB.
func memoryOf(b testing.TB, pid int, name string) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	b.Fatalf("no %s", name)
	return 0
}
