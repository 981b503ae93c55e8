package meter

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/mockmodel"
)

// prices are dollars per million tokens, as a rules file gives them.
var prices = func() []config.Model {
	domain, err := config.Parse("f", []byte("domain: d\nmodels:\n  - {model: m, input: 3, cache_read: 0.3, cache_write: 3.75, output: 15, max_output: 50}\n"))
	if err != nil {
		panic(err)
	}
	return domain.Models
}()

// TestEstimates wants each number of the table that a guess and a strict estimate hold.
func TestEstimates(t *testing.T) {
	t.Parallel()
	pad := func(body string, bytes int) string { // to so many bytes
		return strings.Replace(body, "PAD", strings.Repeat("x", bytes-len(body)+3), 1)
	}
	guess, strict := manner{guess: 100}, manner{strict: true, guess: 100}
	for _, c := range []struct {
		name          string
		e             endpoint
		m             manner
		body          string
		input, output int64
		adds          string // to the body
	}{
		{"the bound", chat, guess, pad(`{"model":"m","max_tokens":40,"messages":[{"content":"PAD"}]}`, 401), 101, 40, ""},
		{"no bound", chat, guess, pad(`{"model":"m","messages":[{"content":"PAD"}]}`, 400), 100, 100, ""},
		{"a large bound", chat, guess, pad(`{"model":"m","max_completion_tokens":4000,"messages":[{"content":"PAD"}]}`, 400), 100, 100, ""},
		{"the larger of two bounds", chat, guess, pad(`{"model":"m","max_tokens":1,"max_completion_tokens":60,"messages":[{"content":"PAD"}]}`, 400), 100, 60, ""},
		{"a bound of 0 is none", messages, guess, pad(`{"model":"m","max_tokens":0,"messages":[{"content":"PAD"}]}`, 400), 100, 100, ""},
		{"several answers", chat, guess, pad(`{"model":"m","n":3,"max_tokens":40,"messages":[{"content":"PAD"}]}`, 400), 100, 120, ""},
		{"best of several", completions, guess, pad(`{"model":"m","n":2,"best_of":5,"max_tokens":40,"prompt":["a","b","PAD"]}`, 400), 100, 600, ""},
		{"a prompt of tokens", completions, guess, pad(`{"model":"m","max_tokens":40,"prompt":[1,2,3],"x":"PAD"}`, 400), 100, 40, ""},
		{"prompts of tokens", completions, guess, pad(`{"model":"m","max_tokens":40,"prompt":[[1,2],[3]],"x":"PAD"}`, 400), 100, 80, ""},
		{"embeddings", embeddings, guess, pad(`{"model":"m","input":"PAD"}`, 400), 100, 0, ""},
		{"counting", countTokens, guess, pad(`{"model":"m","messages":[{"content":"PAD"}]}`, 400), 0, 0, ""},
		{"an image", messages, guess, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"` + strings.Repeat("A", 4000) + `"}}]}]}`, 1600 + 28, 1, ""},
		{"an address", chat, guess, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 4000) + `"}}]}]}`, 1600 + 25, 1, ""},
		{"a document of text", messages, guess, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"document","source":{"type":"text","data":"` + strings.Repeat("A", 400) + `"}}]}]}`, 1600 + 128, 1, ""},
		{"strict with a bound", chat, strict, pad(`{"model":"m","n":2,"max_tokens":4000,"messages":[{"content":"PAD"}]}`, 400), 1424, 8000, ""},
		{"strict without a bound", chat, strict, pad(`{"model":"m","n":2,"messages":[{"content":"PAD"}]}`, 400), 1424 + 27, 100, `"max_completion_tokens":50,`},
		{"strict messages", messages, strict, pad(`{"model":"m","messages":[{"content":"PAD"}]}`, 400), 1424 + 16, 50, `"max_tokens":50,`},
		{"strict responses", responses, strict, pad(`{"model":"m","input":"PAD"}`, 400), 1424 + 23, 50, `"max_output_tokens":50,`},
		{"usage in a stream", chat, guess, pad(`{"model":"m","stream":true,"max_tokens":40,"messages":[{"content":"PAD"}]}`, 400), 100, 40, `"stream_options":{"include_usage":true},`},
	} {
		r, err := readRequest(c.e, &admission.Body{Text: []byte(c.body)})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		e, err := estimateOf(r, c.m, prices)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := [3]int64{e.costs[config.MeterInput], e.costs[config.MeterOutput], e.costs[config.MeterTokens]}
		if diff := cmp.Diff([3]int64{c.input, c.output, c.input + c.output}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		// Input is held at the dearer price, that of writing to a cache.
		if want := ceil(c.input*3_750_000+c.output*15_000_000, 1_000_000); e.costs[config.MeterUSD] != want {
			t.Errorf("%s: %d µ$, want %d", c.name, e.costs[config.MeterUSD], want)
		}
		if want := "{" + c.adds + c.body[1:]; string(bytes.Join(e.body, nil)) != want {
			t.Errorf("%s: the body is %s", c.name, e.body)
		}
	}
}

// TestDollars wants the price of each kind of token, rounded up once.
func TestDollars(t *testing.T) {
	t.Parallel()
	for want, u := range map[int64]usage{
		0:         {},
		1:         {cached: 1},
		4:         {input: 1, written: 1},
		19:        {input: 1, cached: 1, output: 1}, // 3 + 0.3 + 15
		3_000_000: {input: 1_000_000},
		maxTokens: {output: maxTokens},
	} {
		if got := dollars(&prices[0], u); got != want {
			t.Errorf("%+v: %d µ$, want %d", u, got, want)
		}
	}
}

// TestSmallLimit wants a guess to give way to a small limit, of the rule or of the key
// itself, and the answer charged as it was.
func TestSmallLimit(t *testing.T) {
	t.Parallel()
	const rules = "domain: llm\nmodels: [{model: \"mock*\", input: 1, output: 1}]\ndescriptors:\n  - key: key\n    rate_limits:\n" +
		"      - {name: output, count: output, requests_per_unit: 50, unit: hour, algorithm: fixed_window}\n" +
		"      - {name: tokens, count: tokens, requests_per_unit: 60, unit: hour, algorithm: fixed_window}\n" +
		"      - {name: usd, count: usd, dollars: 0.00006, unit: hour, algorithm: fixed_window}\n"
	const body = `{"model":"mock-5","messages":[{"role":"user","content":"hello"}]}`
	own := override.Wrap(memengine.New(memengine.Options{}), override.Options{})
	b := newBench(t, rules, new(mockmodel.Server), func(o *Options) { o.Taker = own })
	for _, key := range []string{"secret", "another"} {
		if key == "another" {
			// A limit of the key's own is smaller still.
			ask := b.proxy.ask(&subject{key: keyOf(key), model: "mock-5"})
			ask.Costs = meters
			plan, err := b.set.Plan(ask)
			if err != nil {
				t.Fatal(err)
			}
			small := weir.Limit{Name: "output", Algorithm: weir.FixedWindow, Count: 20, Period: time.Hour}.MustCompile()
			if err := own.Set(override.Override{Key: plan.Acts[0].Charges[0].Key, Limit: small, Until: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		r := b.request(http.MethodPost, chatPath, body)
		r.Header.Set("Authorization", "Bearer "+key)
		if a := b.send(r); a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", key, a.StatusCode, a.text)
		}
		if used := b.used(keyOf(key), "mock-5"); used["output"] != 5 || used["tokens"] != 5+int64(len(body)+3)/4 {
			t.Errorf("%s used %v", key, used)
		}
	}
	// What was stated cannot give way.
	r := b.request(http.MethodPost, chatPath, strings.Replace(body, "hello", strings.Repeat("x", 300), 1))
	if a := b.send(r); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
}

// TestTwoProxies wants two proxies on one Redis to share all limits: of parallel requests
// no more are forwarded than fit, and all numbers are those that the provider reported.
func TestTwoProxies(t *testing.T) {
	t.Parallel()
	const rules = "domain: llm\ndescriptors:\n  - key: key\n    rate_limits:\n" +
		"      - {name: output, count: output, requests_per_unit: 1000, unit: day, algorithm: fixed_window}\n" +
		"      - {name: input, count: input, requests_per_unit: 1000000, unit: day, algorithm: fixed_window}\n" +
		"      - {name: open, requests_per_unit: 50, period: 15m, algorithm: concurrency}\n"
	const body = `{"model":"mock-40","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
	addr := testserver.StartRedis(t).Addr()
	var mock mockmodel.Server
	var open, most atomic.Int64
	gate := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		for now := most.Load(); n > now && !most.CompareAndSwap(now, n); now = most.Load() {
		}
		<-gate
		mock.ServeHTTP(w, r)
		open.Add(-1)
	})
	var both [2]*bench
	for i := range both {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		store, err := redisengine.New(client, redisengine.Options{Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		both[i] = newBench(t, rules, upstream, func(o *Options) { o.Taker, o.Timeout = store, 20*time.Second })
	}
	var calls sync.WaitGroup
	var granted, refused atomic.Int64
	for i := range 40 {
		calls.Go(func() {
			switch a := both[i%2].post(chatPath, body); a.StatusCode {
			case http.StatusOK:
				granted.Add(1)
			case http.StatusTooManyRequests:
				if refused.Add(1) == 30 {
					close(gate)
				}
			default:
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
		})
	}
	calls.Wait()
	truth := mock.Used()
	if granted.Load() != 10 || most.Load() > 10 || truth.Output != 400 {
		t.Errorf("%d granted, %d at once, %+v", granted.Load(), most.Load(), truth)
	}
	for _, b := range both {
		if used := b.used(secretKey, "mock-40"); used["output"] != truth.Output || used["input"] != truth.Input || used["open"] != 0 {
			t.Errorf("used %v, want %+v", used, truth)
		}
	}
}
