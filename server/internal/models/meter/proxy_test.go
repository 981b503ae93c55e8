package meter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/models/mockmodel"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A counted is an Observer that keeps what it is told.
type counted struct {
	mu                  sync.Mutex
	settled             map[string]map[string]int64 // by model, summed up
	charged             map[string]int64            // by rule, row and what it counts
	open                map[string]int              // streams, by key and model
	missing             map[string]int
	under, unrecorded   map[string]int64
	streams, unsettled  int
	waiting             int
	replaced            []string
	answers, firstBytes int
}

func newCounted() *counted {
	return &counted{settled: map[string]map[string]int64{}, charged: map[string]int64{}, open: map[string]int{}, missing: map[string]int{}, under: map[string]int64{}, unrecorded: map[string]int64{}}
}

// sum returns what was settled in all.
func (c *counted) sum(meter string) (n int64) {
	c.do(func() {
		for _, used := range c.settled {
			n += used[meter]
		}
	})
	return n
}

func (c *counted) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *counted) Answered(string, int)             { c.do(func() { c.answers++ }) }
func (c *counted) FirstByte(time.Duration)          { c.do(func() { c.firstBytes++ }) }
func (c *counted) UsageMissing(why string)          { c.do(func() { c.missing[why]++ }) }
func (c *counted) Underestimated(r string, n int64) { c.do(func() { c.under[r] += n }) }
func (c *counted) Unrecorded(r string, n int64)     { c.do(func() { c.unrecorded[r] += n }) }
func (c *counted) Replaced(rule, row, instead string) {
	c.do(func() { c.replaced = append(c.replaced, rule+" "+row+" "+instead) })
}
func (c *counted) Waiting(n int) { c.do(func() { c.waiting += n }) }
func (c *counted) SettleFailed() { c.do(func() { c.unsettled++ }) }

func (c *counted) Stream(key, model string, n int) {
	c.do(func() { c.streams, c.open[key+" "+model] = c.streams+n, c.open[key+" "+model]+n })
}

func (c *counted) Charged(rule, row, count string, n int64) {
	c.do(func() { c.charged[rule+" "+row+" "+count] += n })
}

func (c *counted) Settled(key, model, row string, used map[string]int64) {
	c.do(func() {
		sum := c.settled[key+" "+model]
		if sum == nil {
			sum = map[string]int64{}
			c.settled[key+" "+model] = sum
		}
		for meter, n := range used {
			sum[meter] += n
		}
	})
}

const testRules = `
domain: llm
models:
  - {model: "mock-dear-deep", input: 100, output: 1000, max_output: 500, reasoning: true}
  - {model: "mock-deep*", input: 1, output: 2, max_output: 64, reasoning: true}
  - {model: "mock-dear*", input: 100, output: 1000, cache_read: 10, cache_write: 125, max_output: 50}
  - {model: "mock*", input: 1, output: 2, max_output: 64}
descriptors:
  - key: key
    output_guess: 100
    rate_limits:
      - {name: rpm, requests_per_unit: 1000, unit: hour, algorithm: fixed_window}
      - {name: input, count: input, requests_per_unit: 100000, unit: hour, algorithm: fixed_window}
      - {name: cached, count: cached, requests_per_unit: 100000, unit: hour, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 10000, unit: hour, algorithm: fixed_window}
      - {name: tokens, count: tokens, requests_per_unit: 200000, unit: hour, algorithm: fixed_window}
      - {name: open, requests_per_unit: 5, period: 1m, algorithm: concurrency}
`

// A bench is a proxy before an upstream.
type bench struct {
	t     *testing.T
	proxy *Proxy
	url   string
	set   *rules.Set
	taker weir.Taker
	seen  *counted
}

func newBench(t *testing.T, text string, upstream http.Handler, change ...func(*Options)) *bench {
	t.Helper()
	set, err := rules.Parse("llm.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	target, _ := url.Parse(up.URL)
	b := &bench{t: t, set: set, taker: memengine.New(memengine.Options{}), seen: newCounted()}
	o := Options{
		Upstream: target, Rules: func() *rules.Set { return set }, Domain: "llm", Taker: b.taker, Timeout: 10 * time.Second, Observer: b.seen,
	}
	for _, f := range change {
		f(&o)
	}
	b.taker = o.Taker
	if b.proxy, err = New(o); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(b.proxy)
	b.url = front.URL
	t.Cleanup(func() {
		front.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.proxy.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// used returns what the limits of a key have used, by their names.
func (b *bench) used(key, model string) map[string]int64 {
	b.t.Helper()
	ask := b.proxy.ask(&subject{key: key, model: model})
	ask.Costs, ask.Hold = meters, 0
	plan, err := b.set.Plan(ask)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range plan.Acts {
		for i := range a.Charges {
			a.Charges[i].Cost = 0
		}
	}
	plan.Take(context.Background(), b.taker)
	if err := plan.Err(); err != nil {
		b.t.Fatal(err)
	}
	used := map[string]int64{}
	for i := range plan.Applied {
		a := &plan.Applied[i]
		used[a.Limit.Name] = a.Limit.Capacity() - a.Decision().Remaining
	}
	return used
}

// request makes a request with the credential "secret".
func (b *bench) request(method, path, body string) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.HasPrefix(path, "/v1/messages") {
		r.Header.Set("X-Api-Key", "secret")
	} else {
		r.Header.Set("Authorization", "Bearer secret")
	}
	return r
}

// An answered is an answer that was read.
type answered struct {
	*http.Response
	text string
}

func (b *bench) send(r *http.Request) answered {
	b.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answered{answer, string(text)}
}

func (b *bench) post(path, body string) answered {
	b.t.Helper()
	return b.send(b.request(http.MethodPost, path, body))
}

var secretKey = keyOf("secret")

// bodies are a request of each endpoint.
var bodies = map[string]string{
	"/v1/chat/completions":      `{"model":"mock-7","messages":[{"role":"user","content":"hello"}]}`,
	"/v1/completions":           `{"model":"mock-7","prompt":"hello"}`,
	"/v1/responses":             `{"model":"mock-7","input":"hello"}`,
	"/v1/embeddings":            `{"model":"mock-7","input":"hello"}`,
	"/v1/messages":              `{"model":"mock-7","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}`,
	"/v1/messages/count_tokens": `{"model":"mock-7","messages":[{"role":"user","content":"hello"}]}`,
}

// TestForms wants every endpoint metered by what the provider reports, as JSON and as a
// stream, and the client to get what the provider sent.
func TestForms(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		for path, body := range bodies {
			name := store + " " + strings.TrimPrefix(path, "/v1/")
			t.Run(name, func(t *testing.T) { wantMetered(t, path, body, open) })
			if path != "/v1/embeddings" && path != "/v1/messages/count_tokens" {
				t.Run(name+" stream", func(t *testing.T) { wantMetered(t, path, `{"stream":true,`+body[1:], open) })
			}
		}
	}
}

func wantMetered(t *testing.T, path, body string, open func(*Options)) {
	t.Parallel()
	mock := new(mockmodel.Server)
	b := newBench(t, testRules, mock, open)
	a := b.post(path, body)
	if a.StatusCode != http.StatusOK || a.Header.Get("Weir-Id") == "" || a.Header.Get("Weir-Source") != "" {
		t.Fatalf("%d %v %s", a.StatusCode, a.Header, a.text)
	}
	truth, used := mock.Used(), b.used(secretKey, "mock-7")
	if used["rpm"] != 1 || used["input"] != truth.Input || used["output"] != truth.Output || used["tokens"] != truth.Input+truth.Output || used["open"] != 0 {
		t.Errorf("used %v, the provider reported %+v", used, truth)
	}
	if strings.Contains(body, `"stream":true`) && strings.Contains(a.text, `"prompt_tokens"`) {
		t.Errorf("the client got a chunk that it did not ask for:\n%s", a.text)
	}
	direct, err := http.Post(b.proxy.Upstream.String()+path, "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Body.Close()
	want, _ := io.ReadAll(direct.Body)
	// The provider adds "usage":null once it is asked for usage.
	if got := strings.ReplaceAll(a.text, `,"usage":null`, ""); got != string(want) && path != "/v1/chat/completions" {
		t.Errorf("the client got\n%s\nwant\n%s", got, want)
	}
	if len(b.seen.missing) > 0 || b.seen.streams != 0 {
		t.Errorf("%+v", b.seen)
	}
}

// errorOf reads an error in either form.
func errorOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var body struct{ Error map[string]any }
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error == nil {
		t.Fatalf("%v: %s", err, text)
	}
	return body.Error
}
