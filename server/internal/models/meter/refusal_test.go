package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/models/mockmodel"
	"github.com/weirlimit/weir/server/internal/rules"
)

// strictRules hold the most that a request can use.
const strictRules = `
domain: llm
models:
  - {model: "mock-9", input: 1, output: 2, max_output: 9}
  - {model: "free*", input: 0, output: 0}
descriptors:
  - key: key
    estimate: strict
    rate_limit: {name: output, count: output, requests_per_unit: 1000, unit: hour, algorithm: fixed_window}
`

// limited is a rule with one limit.
func limited(limit string) string {
	return "domain: llm\nmodels: [{model: \"mock*\", input: 1000, output: 1000}]\ndescriptors:\n  - key: key\n    rate_limit: {name: it, " + limit + "}\n"
}

// A broken is a store in which a limit reaches no decision, or denies.
type broken struct{ outcome weir.Outcome }

func (b broken) Take(_ context.Context, all []*weir.Act) {
	for _, a := range all {
		a.Err = nil
		if b.outcome == weir.NotEvaluated {
			a.Err = fmt.Errorf("take: %w", weir.ErrNotApplied)
		}
		for i := range a.Decisions {
			a.Decisions[i] = weir.Decision{Outcome: b.outcome, Source: acts.SourceFailClosed, RetryAfter: 1e9}
		}
	}
}

// TestRefusals wants each row of the table of answers, in both forms: status, type, code
// and headers; and nothing forwarded.
func TestRefusals(t *testing.T) {
	t.Parallel()
	both := stores(t)
	const image = `{"model":"mock-9","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`
	for _, c := range []struct {
		name        string
		rules, body string
		before      int // requests that are granted before
		change      func(*Options)
		header      [2]string
		path        string // empty: chat and messages
		status      int
		kind, code  string // of OpenAI
		other       string // of Anthropic
		retry       bool
		final       bool
		limit       bool
		message     string
	}{
		{name: "requests", rules: limited("requests_per_unit: 1, unit: minute, algorithm: gcra"), body: chatBody, before: 1, status: 429, kind: "requests", code: "rate_limit_exceeded", other: "rate_limit_error", retry: true, limit: true, message: `limit "it" (1/min): 1 asked, 0 left; retry in 60 s`},
		{name: "tokens", rules: limited("count: output, requests_per_unit: 100, unit: minute, algorithm: gcra"), body: chatBody, before: 1, status: 429, kind: "tokens", code: "rate_limit_exceeded", other: "rate_limit_error", retry: true, limit: true, message: `limit "it" (100/min): 80 asked, `},
		{name: "a long wait", rules: limited("count: output, requests_per_unit: 100, unit: hour, algorithm: fixed_window, anchor: first"), body: chatBody, before: 1, status: 429, kind: "tokens", code: "rate_limit_exceeded", other: "rate_limit_error", retry: true, final: true, limit: true},
		{name: "slots", rules: limited("requests_per_unit: 1, period: 15m, algorithm: concurrency"), body: chatBody, change: func(o *Options) { occupy(o) }, status: 429, kind: "requests", code: "rate_limit_exceeded", other: "rate_limit_error", retry: true, limit: true, message: `limit "it" (1 at once): 1 asked, 0 left; retry in 1 s`},
		{name: "dollars", rules: limited("count: usd, dollars: 0.1, unit: hour, algorithm: fixed_window"), body: chatBody, before: 1, status: 429, kind: "insufficient_quota", code: "insufficient_quota", other: "rate_limit_error", retry: true, final: true, limit: true, message: `limit "it" ($0.1/h): $0.1 asked, `},
		{name: "a day", rules: limited("requests_per_unit: 1, unit: day, algorithm: fixed_window"), body: chatBody, before: 1, status: 429, kind: "insufficient_quota", code: "insufficient_quota", other: "rate_limit_error", retry: true, final: true, limit: true},
		{name: "it can never fit", rules: limited("count: input, requests_per_unit: 5, unit: minute, algorithm: gcra"), body: chatBody, status: 413, kind: invalidRequest, code: "request_too_large", other: "request_too_large", final: true, limit: true},
		{name: "no decision", rules: limited("requests_per_unit: 1, unit: minute, algorithm: gcra"), body: chatBody, change: func(o *Options) { o.Taker = broken{} }, status: 503, kind: "server_error", code: "no_decision", other: "api_error", retry: true},
		{name: "denied", rules: limited("requests_per_unit: 1, unit: minute, algorithm: gcra"), body: chatBody, change: func(o *Options) { o.Taker = broken{weir.Refused} }, status: 503, kind: "server_error", code: "no_decision", other: "api_error", retry: true, limit: true},
		{name: "no JSON", body: `{"model":`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "no object", body: `["model"]`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "no model", body: `{}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "a field twice", body: `{"model":"mock","max_tokens":1,"max_\u0074okens":100}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "a long model", body: `{"model":"` + strings.Repeat("m", 257) + `"}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "background", body: `{"model":"mock","background":true}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "a bound that is not whole", body: `{"model":"mock","max_tokens":1.5}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "a negative bound", body: `{"model":"mock","max_completion_tokens":-1}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "n is a text", body: `{"model":"mock","n":"2"}`, status: 400, kind: invalidRequest, code: "invalid_body", other: invalidRequest, final: true},
		{name: "compressed", body: chatBody, header: [2]string{"Content-Encoding", "gzip"}, status: 415, kind: invalidRequest, code: "unsupported_encoding", other: invalidRequest, final: true},
		{name: "too large", body: `{"model":"` + strings.Repeat("m", 2000) + `"}`, change: func(o *Options) { o.MaxBody = 1000 }, status: 413, kind: invalidRequest, code: "body_too_large", other: "request_too_large", final: true},
		{name: "no memory", body: `{"model":"` + strings.Repeat("m", 200_000) + `"}`, change: func(o *Options) { o.Budget = admission.NewBudget(100_000) }, status: 503, kind: "server_error", code: "request_memory", other: "api_error", retry: true},
		{name: "no rule", rules: strings.Replace(testRules, "- key: key", "- key: team", 1), body: chatBody, change: func(o *Options) {
			o.Unmatched = func(*rules.Request, rules.Unmatched) bool { return true }
		}, status: 403, kind: invalidRequest, code: "unmatched", other: "permission_error", final: true},
		{name: "no price", rules: limited("count: usd, dollars: 1, unit: hour, algorithm: fixed_window"), body: `{"model":"other"}`, status: 400, kind: invalidRequest, code: "unknown_model", other: invalidRequest, final: true},
		{name: "no bound", rules: strictRules, body: `{"model":"free"}`, status: 400, kind: invalidRequest, code: "unbounded", other: invalidRequest, final: true},
		{name: "an image", rules: strictRules, body: image, status: 400, kind: invalidRequest, code: "unbounded", other: invalidRequest, final: true},
		{name: "input at the provider", rules: strictRules, path: "/v1/responses", body: `{"model":"mock-9","max_output_tokens":5,"previous_response_id":"r"}`, status: 400, kind: invalidRequest, code: "unbounded", final: true},
		{name: "files", path: "/v1/files", body: chatBody, status: 404, kind: invalidRequest, code: "unknown_path", final: true},
		{name: "two slashes", path: "//v1/messages", body: chatBody, status: 404, kind: invalidRequest, code: "unknown_path", final: true},
		{name: "batches", path: "/v1/messages/batches", body: chatBody, status: 404, other: "not_found_error", final: true},
		{name: "an escaped path", path: "/v1/chat/%63ompletions", body: chatBody, status: 404, kind: invalidRequest, code: "unknown_path", final: true},
	} {
		paths := []string{chatPath, messagePath}
		if c.path != "" {
			paths = []string{c.path}
		}
		for i := range 2 * len(paths) {
			path, store := paths[i/2], [...]string{"memory", "redis"}[i%2]
			t.Run(store+" "+c.name+" "+path, func(t *testing.T) {
				t.Parallel()
				text := c.rules
				if text == "" {
					text = testRules
				}
				var forwarded atomic.Int64
				mock := new(mockmodel.Server)
				change := []func(*Options){both[store]}
				if c.change != nil {
					change = append(change, c.change)
				}
				b := newBench(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					forwarded.Add(1)
					mock.ServeHTTP(w, r)
				}), change...)
				for range c.before {
					if a := b.post(path, strings.Replace(c.body, `"mock"`, `"mock-80"`, 1)); a.StatusCode != http.StatusOK {
						t.Fatalf("%d %s", a.StatusCode, a.text)
					}
				}
				r := b.request(http.MethodPost, path, c.body)
				if c.header[0] != "" {
					r.Header.Set(c.header[0], c.header[1])
				}
				a := b.send(r)
				if a.StatusCode != c.status || forwarded.Load() != int64(c.before) {
					t.Fatalf("%d %s, want %d; %d forwarded", a.StatusCode, a.text, c.status, forwarded.Load())
				}
				b.wantBody(a, path, c.kind, c.code, c.other)
				if c.message != "" && !strings.Contains(errorOf(t, a.text)["message"].(string), c.message) {
					t.Errorf("message %s, want %s", a.text, c.message)
				}
				seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
				if (err == nil && seconds >= 1) != c.retry {
					t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
				}
				if (a.Header.Get("X-Should-Retry") == "false") != c.final {
					t.Errorf("x-should-retry is %q after %d s", a.Header.Get("X-Should-Retry"), seconds)
				}
				if (a.Header.Get("Weir-Limit") == "it") != c.limit {
					t.Errorf("weir-limit is %q", a.Header.Get("Weir-Limit"))
				}
				if c.limit && c.status == 429 && (a.Header.Get("Ratelimit") == "" || a.Header.Get("Ratelimit-Policy") == "" || a.Header.Get("X-Ratelimit-Limit") != "") {
					t.Errorf("%v", a.Header)
				}
			})
		}
	}
}

// wantBody wants an answer of Weir's own in the form of the path.
func (b *bench) wantBody(a answered, path, kind, code, other string) {
	b.t.Helper()
	id := a.Header.Get("Weir-Id")
	if id == "" || a.Header.Get("X-Request-Id") != id || a.Header.Get("Request-Id") != id || a.Header.Get("Weir-Source") != "weir" || a.Header.Get("Content-Type") != "application/json" {
		b.t.Errorf("%v", a.Header)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		b.t.Fatal(err)
	}
	failure := body["error"].(map[string]any)
	message, _ := failure["message"].(string)
	if formOf(path) == Anthropic {
		want := map[string]any{"type": "error", "error": map[string]any{"type": other, "message": message}, "request_id": id}
		if code == "insufficient_quota" {
			want["error"].(map[string]any)["details"] = map[string]any{"error_code": "enforced_spend_limit_reached"}
		}
		if diff := cmp.Diff(want, body); diff != "" {
			b.t.Errorf("(-want +got):\n%s", diff)
		}
		return
	}
	want := map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}}
	if diff := cmp.Diff(want, body); diff != "" || message == "" {
		b.t.Errorf("(-want +got):\n%s", diff)
	}
}

// occupy takes the only slot of the key.
func occupy(o *Options) {
	h := &holder{Options: o}
	ask := h.ask(&subject{key: secretKey, model: "mock"})
	ask.Costs, ask.Hold = meters, 1e12
	plan, err := o.Rules().Plan(ask)
	if err != nil {
		panic(err)
	}
	plan.Take(context.Background(), o.Taker)
}

// TestCredentials wants one credential that counts, and no other forwarded.
func TestCredentials(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		_, _ = w.Write([]byte(`{"usage":{"prompt_tokens":1,"completion_tokens":1,"input_tokens":1,"output_tokens":1}}`))
	}))
	for _, c := range []struct {
		path   string
		header http.Header
		status int
		want   http.Header // of the credentials that are forwarded
	}{
		{chatPath, http.Header{"Authorization": {"Bearer secret"}}, 200, http.Header{"Authorization": {"Bearer secret"}}},
		{chatPath, http.Header{"Authorization": {"bearer   secret"}, "X-Api-Key": {"other"}, "Cookie": {"a=b"}, "Api-Key": {"c"}, "X-Goog-Api-Key": {"d"}}, 200, http.Header{"Authorization": {"Bearer secret"}}},
		{messagePath, http.Header{"X-Api-Key": {" secret "}}, 200, http.Header{"X-Api-Key": {"secret"}}},
		{messagePath, http.Header{"Authorization": {"Bearer secret"}}, 200, http.Header{"Authorization": {"Bearer secret"}}},
		{messagePath, http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}}, 200, http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}}},
		{messagePath, http.Header{"Authorization": {"Bearer invented"}, "X-Api-Key": {"secret"}}, 400, nil},
		{messagePath, http.Header{"X-Api-Key": {"secret", "secret"}}, 400, nil},
		{chatPath, http.Header{"Authorization": {"Bearer secret", "Bearer other"}}, 400, nil},
		{chatPath, http.Header{"Authorization": {"Bearer secret x1"}}, 400, nil},
		{chatPath, http.Header{"Authorization": {"Bearer secret\tx1"}}, 400, nil},
		{chatPath, http.Header{"Authorization": {"Bearer secret\u00a0x1"}}, 400, nil},
		{chatPath, http.Header{"Authorization": {"Bearer secret\x85"}}, 400, nil},
		{messagePath, http.Header{"X-Api-Key": {"secret x1"}}, 400, nil},
		{messagePath, http.Header{"Authorization": {"Bearer secret x1"}, "X-Api-Key": {"secret x1"}}, 400, nil},
		{chatPath, http.Header{}, 401, nil},
		{chatPath, http.Header{"Authorization": {"Basic c2VjcmV0"}}, 401, nil},
		{chatPath, http.Header{"X-Api-Key": {"secret"}}, 401, nil},
		{messagePath, http.Header{"X-Api-Key": {""}}, 401, nil},
	} {
		r := b.request(http.MethodPost, c.path+"?key=a&beta=true&api_key=b&x=%26&%61pi-key=c&access_token=d", chatBody)
		r.Header = c.header
		before := b.used(secretKey, "mock")["rpm"]
		a := b.send(r)
		if a.StatusCode != c.status {
			t.Errorf("%v: %d %s", c.header, a.StatusCode, a.text)
			continue
		}
		if c.want == nil {
			b.wantBody(a, c.path, invalidRequest, "invalid_api_key", map[int]string{400: invalidRequest, 401: "authentication_error"}[c.status])
			continue
		}
		if after := b.used(secretKey, "mock")["rpm"]; after != before+1 {
			t.Errorf("%v: the key was charged %d", c.header, after-before)
		}
		forwarded := <-got
		shown := http.Header{}
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Api-Key", "X-Goog-Api-Key"} {
			if values := forwarded.Header[name]; values != nil {
				shown[name] = values
			}
		}
		if diff := cmp.Diff(c.want, shown); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.header, diff)
		}
		if forwarded.URL.RawQuery != "beta=true&x=%26" {
			t.Errorf("query %s", forwarded.URL.RawQuery)
		}
	}
}

// TestForwarded wants a request and its answer to pass as they came.
func TestForwarded(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(text)
		got <- r
		body <- string(text)
		w.Header().Set("X-Ratelimit-Remaining-Tokens", "7")
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(418)
		_, _ = w.Write([]byte("{ }"))
	}), func(o *Options) { o.Upstream.Path = "/base/" })
	const sent = "\n{ \"model\" : \"mock\", \"messages\":[ ]}\t"
	r := b.request(http.MethodPost, chatPath, sent)
	for name, value := range map[string]string{"Idempotency-Key": "mine", "X-Forwarded-For": "1.2.3.4", "Te": "trailers", "Connection": "X-Hop", "X-Hop": "a", "Accept-Encoding": "br"} {
		r.Header.Set(name, value)
	}
	a := b.send(r)
	in := <-got
	if in.URL.Path != "/base"+chatPath || <-body != sent || in.Header.Get("Idempotency-Key") != "mine" || in.Header.Get("X-Forwarded-For") != "1.2.3.4" ||
		in.Header.Get("X-Hop") != "" || in.Header.Get("Accept-Encoding") != "identity" || in.Host == r.Host {
		t.Errorf("%s %v", in.URL, in.Header)
	}
	if a.StatusCode != 418 || a.text != "{ }" || a.Header.Get("X-Request-Id") != "theirs" || a.Header.Get("X-Ratelimit-Remaining-Tokens") != "7" ||
		a.Header.Get("Weir-Id") == "" || a.Header.Get("Weir-Source") != "" || a.Header.Get("X-Ratelimit-Limit") != "" || len(a.Header["Ratelimit"]) != 1 {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, a.text)
	}
}

// TestOwnKey wants what goes on beside the operator's key to be known headers only.
func TestOwnKey(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		reporting(9, 4).ServeHTTP(w, r)
	})
	sent := map[string]string{
		"Anthropic-Version": "2023-06-01", "Idempotency-Key": "a", "Openai-Beta": "b", "Traceparent": "c", "X-Stainless-Retry-Count": "0", "Accept": "d", "User-Agent": "e",
		"Openai-Organization": "theirs", "Openai-Project": "theirs", "X-Goog-User-Project": "theirs", "X-Original-Url": "/v1/files", "X-Forwarded-For": "1.2.3.4",
		"Content-Type": "application/json; charset=utf-7", "X-Http-Method-Override": "GET",
	}
	for _, own := range []bool{true, false} {
		b := newBench(t, testRules, upstream)
		if own {
			// The rights of callers are tested where their file is.
			b.proxy.Key = func() string { return "the-operators" }
		}
		r := b.request(http.MethodPost, chatPath, chatBody)
		for name, value := range sent {
			r.Header.Set(name, value)
		}
		if a := b.send(r); a.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", a.StatusCode, a.text)
		}
		h := <-got
		for name, want := range map[string]string{
			"Anthropic-Version": "2023-06-01", "Idempotency-Key": "a", "Openai-Beta": "b", "Traceparent": "c", "X-Stainless-Retry-Count": "0", "Accept": "d", "User-Agent": "e",
			"Content-Type": "application/json", "X-Original-Url": "", "X-Http-Method-Override": "",
		} {
			if h.Get(name) != want {
				t.Errorf("own key %v: %s is %q, want %q", own, name, h.Get(name), want)
			}
		}
		for _, name := range []string{"Openai-Organization", "Openai-Project", "X-Goog-User-Project", "X-Forwarded-For"} {
			if (h.Get(name) == "") != own {
				t.Errorf("own key %v: %s is %q", own, name, h.Get(name))
			}
		}
	}
}

// TestModelNames wants names of models that every provider reads alike.
func TestModelNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"gpt-4o": true, "ft:gpt-4o-mini-2024-07-18:org::id": true, "meta-llama/Llama-3.1-8B_Instruct": true, "anthropic/claude-sonnet-4.5:beta": true,
		"@cf/meta/llama-3": true, "claude-3-5@20240620": true,
		"": false, "gpt-4o ": false, "..": false, "a/../b": false, "a/.": false, "/a": false, "a/": false, "a//b": false, "..;": false, "a;b": false, "a%2fb": false,
		"ａ": false, "a\u00a0": false, "a\\b": false, "a?b": false, "a#b": false, "a\x00": false,
	} {
		if isModel(name) != want {
			t.Errorf("%q is a name: %v", name, !want)
		}
	}
}

// TestWaitText wants a wait as people read it, never less than it is.
func TestWaitText(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]string{
		1: "1 s", 60: "60 s", 120: "120 s", 121: "3 minutes", 3540: "59 minutes", 3541: "1 hour", 3600: "1 hour", 3601: "1 hour 1 minute",
		7300: "2 hours 2 minutes", 86400: "24 hours", 86401: "1 day 1 hour", 295991: "3 days 11 hours", 30 * 86400: "30 days",
	} {
		if got := waitText(seconds); got != want {
			t.Errorf("%d s is %q, want %q", seconds, got, want)
		}
	}
}

// TestUnknownToProvider wants a call that the provider refuses to know to count for nothing,
// so that strangers use up no limit of a model.
func TestUnknownToProvider(t *testing.T) {
	t.Parallel()
	const text = "domain: llm\ndescriptors:\n" +
		"  - {key: key, rate_limit: {name: key, requests_per_unit: 10, unit: hour, algorithm: gcra}}\n" +
		"  - {key: model, rate_limits: [{name: model, requests_per_unit: 10, unit: hour, algorithm: fixed_window}, {name: tokens, count: tokens, requests_per_unit: 100000, unit: hour, algorithm: fixed_window}]}\n"
	for store, open := range stores(t) {
		for status, want := range map[int]int64{401: 0, 403: 0, 400: 3, 404: 3} {
			t.Run(fmt.Sprint(store, " ", status), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), open)
				for range 3 {
					if a := b.post(chatPath, chatBody); a.StatusCode != status {
						t.Fatalf("%d %s", a.StatusCode, a.text)
					}
				}
				if diff := cmp.Diff(map[string]int64{"key": want, "model": want, "tokens": 0}, b.used(secretKey, "mock")); diff != "" {
					t.Errorf("used (-want +got):\n%s", diff)
				}
				if n := b.seen.sum("requests"); n != want {
					t.Errorf("%d requests were counted", n)
				}
			})
		}
	}
}

// TestCatalog wants the list of models without a charge.
func TestCatalog(t *testing.T) {
	t.Parallel()
	b := newBench(t, testRules, new(mockmodel.Server))
	for path, status := range map[string]int{"/v1/models": 200, "/v1/models/mock": 200, "/v1/models/": 404, "/v1/models/..": 404, "/v1/models/%2e%2e": 404, "/v1/models/a/b": 200, "/v1/models/a//b": 404, "/v1/models/a/..;/b": 404, "/v1/models/..;": 404, "/v1/models/a/../b": 404, "/v1/models/ft:gpt-4o:org::id": 200, "/v1/models/@cf/meta/llama-3.1": 200, "/v1/models/a;b": 404, "/v1/models/a/": 404} {
		r := b.request(http.MethodGet, "/v1/models", "")
		r.URL.Opaque = path
		if a := b.send(r); a.StatusCode != status {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
	if used := b.used(secretKey, "mock"); used["rpm"] != 0 {
		t.Errorf("used %v", used)
	}
}

// TestMethods wants a request by another method to be told that of the path.
func TestMethods(t *testing.T) {
	t.Parallel()
	b := newBench(t, testRules, new(mockmodel.Server))
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodGet, "/v1/chat/completions", http.MethodPost},
		{http.MethodDelete, "/v1/messages", http.MethodPost},
		{http.MethodPost, "/v1/models", http.MethodGet},
		{http.MethodPost, "/v1/me", http.MethodGet},
	} {
		a := b.send(b.request(c.method, c.path, ""))
		want := fmt.Sprintf(`"message":"%s %s: want %s"`, c.method, c.path, c.allow)
		if a.StatusCode != http.StatusMethodNotAllowed || a.Header.Get("Allow") != c.allow || !strings.Contains(a.text, want) {
			t.Errorf("%s %s: %d, Allow %q, %s", c.method, c.path, a.StatusCode, a.Header.Get("Allow"), a.text)
		}
	}
}

// TestStreamOptions wants a provider that does not know stream_options to be asked again
// without them, once, and only if Weir added them.
func TestStreamOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body, complaint string
		calls           int64
		status          int
	}{
		{streamBody, "unknown field stream_options", 2, 200},
		{streamBody, "unknown field foo", 1, 400},
		{`{"stream_options":{"include_usage":true},` + streamBody[1:], "unknown field stream_options", 1, 400},
	} {
		var calls atomic.Int64
		b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			text := make([]byte, r.ContentLength)
			_, _ = r.Body.Read(text)
			if strings.Contains(string(text), "include_usage") {
				w.WriteHeader(400)
				_, _ = w.Write([]byte(c.complaint))
				return
			}
			if string(text) != c.body {
				t.Errorf("asked again with %s", text)
			}
		}))
		a := b.post(chatPath, c.body)
		if a.StatusCode != c.status || calls.Load() != c.calls || a.StatusCode == 400 && a.text != c.complaint {
			t.Errorf("%s: %d %q after %d calls", c.body, a.StatusCode, a.text, calls.Load())
		}
	}
}

// TestNoPromptInLogs wants neither prompts nor credentials in any line of the log.
func TestNoPromptInLogs(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.Upstream.Host = "127.0.0.1:1" },
		func(o *Options) { o.Taker = broken{} },
	} {
		b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"hello"}}]}`))
		}), func(o *Options) { o.Logger = logger }, change)
		b.post(chatPath, chatBody)
		b.post(chatPath, `{"model":"mock","max_tokens":"hello"}`)
	}
	if text := log.String(); text == "" || strings.Contains(text, "hello") || strings.Contains(text, "secret") {
		t.Errorf("the log says %q", text)
	}
}
