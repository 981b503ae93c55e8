package meter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestHeldIsNotSpent wants a request that only open holds keep out told to try again soon, and
// how many are open, and one that would not fit without them that the budget is spent.
func TestHeldIsNotSpent(t *testing.T) {
	t.Parallel()
	const levels = "domain: llm\nmodels: [{model: \"mock*\", input: 1000, output: 1000}]\ndescriptors:\n" +
		"  - {key: key, rate_limit: {name: it, count: usd, dollars: 0.25, unit: day, algorithm: fixed_window}}\n" +
		"  - {key: model, value: mock*, share_threshold: true, rate_limit: {name: other, count: usd, dollars: %s, unit: day, algorithm: fixed_window}}\n"
	for _, c := range []struct {
		name, rules   string
		before, open  int   // requests that are settled, and that are open
		output        int64 // of each that is settled
		held          bool
		code, message string
	}{
		{"dollars of a day", limited("count: usd, dollars: 0.25, unit: day, algorithm: fixed_window"), 0, 2, 0, true, "rate_limit_exceeded", "held by 2 open requests"},
		{"one is open", limited("count: usd, dollars: 0.15, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin"), 0, 1, 0, true, "rate_limit_exceeded", "held by 1 open request"},
		{"requests of a day", limited("requests_per_unit: 2, unit: day, algorithm: fixed_window"), 0, 2, 0, true, "rate_limit_exceeded", "held by 2 open requests"},
		{"tokens that drain", limited("count: output, requests_per_unit: 100, unit: day, algorithm: gcra"), 0, 1, 0, true, "rate_limit_exceeded", "held by 1 open request"},
		{"spent", limited("count: usd, dollars: 0.25, unit: day, algorithm: fixed_window"), 2, 0, 99, false, "insufficient_quota", "left; retry in"},
		{"spent beside an open one", limited("count: usd, dollars: 0.25, unit: day, algorithm: fixed_window"), 1, 1, 150, false, "insufficient_quota", "left; retry in"},
		{"in debt beside an open one", limited("count: output, requests_per_unit: 160, unit: day, algorithm: fixed_window"), 1, 1, 160, false, "insufficient_quota", "left; retry in"},
		{"drains from a debt beside an open one", limited("count: output, requests_per_unit: 160, unit: day, algorithm: gcra"), 1, 1, 160, false, "insufficient_quota", "left; retry in"},
		{"some is kept for others, and some held", limited("count: usd, dollars: 0.65, keep_dollars: 0.3, unit: day, algorithm: fixed_window"), 2, 1, 99, true, "rate_limit_exceeded", "left beside the $0.3 that are kept for others; retry in 1 s; the rest is held by 1 open request"},
		{"nothing is left but what is kept for others, and some held", limited("count: usd, dollars: 0.601, keep_dollars: 0.3, unit: day, algorithm: fixed_window"), 2, 1, 99, true, "rate_limit_exceeded", "the rest is held by 1 open request"},
		{"drains, and some is kept for others and some held", limited("count: usd, dollars: 0.601, keep_dollars: 0.3, unit: day, algorithm: gcra"), 2, 1, 99, true, "rate_limit_exceeded", "the rest is held by 1 open request"},
		{"the rest is kept for others", limited("count: usd, dollars: 0.55, keep_dollars: 0.3, unit: day, algorithm: fixed_window"), 2, 0, 99, false, "insufficient_quota", "left beside the $0.3 that are kept for others; retry in"},
		{"the rest is kept for others, beside an open one", limited("count: usd, dollars: 0.55, keep_dollars: 0.3, unit: day, algorithm: fixed_window"), 1, 1, 199, false, "insufficient_quota", "left beside the $0.3 that are kept for others; retry in"},
		{"both levels are held", fmt.Sprintf(levels, "0.25"), 0, 2, 0, true, "rate_limit_exceeded", "held by 2 open requests"},
		{"one level is held, one spent", fmt.Sprintf(levels, "0.22"), 1, 1, 130, false, "insufficient_quota", `limit "other"`},
	} {
		for store, open := range stores(t) {
			t.Run(store+" "+c.name, func(t *testing.T) {
				t.Parallel()
				arrived, release := make(chan bool), make(chan bool)
				b := newBench(t, c.rules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if strings.Contains(string(body), "mock-open") {
						arrived <- true
						<-release
					}
					fmt.Fprintf(w, `{"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, c.output)
				}), open)
				var ended sync.WaitGroup
				for range c.open {
					ended.Go(func() { b.post(chatPath, strings.Replace(chatBody, `"mock"`, `"mock-open"`, 1)) })
					<-arrived
				}
				for range c.before {
					if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusOK {
						t.Errorf("%d %s", a.StatusCode, a.text)
					}
				}
				a := b.post(chatPath, chatBody)
				close(release)
				ended.Wait()
				failure := errorOf(t, a.text)
				if a.StatusCode != http.StatusTooManyRequests || failure["code"] != c.code || !strings.Contains(failure["message"].(string), c.message) {
					t.Errorf("%d %s, want %s, %s", a.StatusCode, a.text, c.code, c.message)
				}
				if soon := a.Header.Get("Retry-After") == "1" && a.Header.Get("X-Should-Retry") == ""; soon != c.held || soon != strings.HasSuffix(a.Header.Get("Ratelimit"), ";t=1") {
					t.Errorf("%v", a.Header)
				}
				b.eventually("no open holds", func() bool {
					b.proxy.open.mu.Lock()
					defer b.proxy.open.mu.Unlock()
					return len(b.proxy.open.byKey) == 0
				})
			})
		}
	}
}

// TestLargeBudget wants a budget of a calendar month in dollars to refuse at the millionth of a
// dollar, far above what one request may cost.
func TestLargeBudget(t *testing.T) {
	t.Parallel()
	const text = "domain: llm\nmodels: [{model: mock, input: 0, output: 100000, max_output: 9000}]\ndescriptors:\n" +
		"  - {key: key, output_guess: 9000, rate_limit: {name: month, count: usd, dollars: %s, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}}\n"
	const body = `{"model":"mock","max_tokens":9000,"messages":[]}`
	for store, open := range stores(t) {
		for dollars, granted := range map[string]int{"4500": 5, "4499.999999": 4, "999999999.999999": 7} {
			t.Run(store+" "+dollars, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, fmt.Sprintf(text, dollars), reporting(5, 9000), open)
				for i := range granted {
					if a := b.post(chatPath, body); a.StatusCode != http.StatusOK {
						t.Fatalf("request %d: %d %s", i+1, a.StatusCode, a.text)
					}
				}
				if used := b.used(secretKey, "mock")["month"]; used != int64(granted)*900_000_000 {
					t.Errorf("%d are used", used)
				}
				if granted == 7 {
					return
				}
				if a := b.post(chatPath, body); a.StatusCode != http.StatusTooManyRequests || !strings.Contains(a.text, "($"+dollars+"/month): $900 asked") {
					t.Errorf("%d %s", a.StatusCode, a.text)
				}
			})
		}
	}
}

// held returns the keys of which something is held.
func (o *openHolds) held() (keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, h := range o.byKey {
		if h.requests > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
