package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const (
	modelRules = `domain: llm
descriptors:
  - key: key
    rate_limits:
      - {name: requests, requests_per_unit: 1000, unit: day, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 100000, unit: day, algorithm: fixed_window}
      - {name: open, requests_per_unit: 20, period: 15m, algorithm: concurrency}
`
	promptBody  = `{"model":"m","max_tokens":80,"messages":[{"role":"user","content":"a-prompt"}]}`
	providerKey = "the-key-of-the-provider"
)

// A provider is an upstream that keeps the headers of the requests that it gets.
type provider struct {
	*httptest.Server
	got chan http.Header
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{got: make(chan http.Header, 10)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		p.got <- r.Header
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":9,"completion_tokens":4,"input_tokens":9,"output_tokens":4}}`)
	}))
	t.Cleanup(p.Close)
	return p
}

// askModel calls a model.
func askModel(t *testing.T, app *App, path string, headers ...string) (int, string) {
	t.Helper()
	resp, text := send(t, app, "models", "POST", path, promptBody, headers...)
	return resp.StatusCode, text
}

// TestModelCallers wants callers known by their tokens, which go no further, charged by their
// names, and the key of the provider sent in place of the tokens.
func TestModelCallers(t *testing.T) {
	t.Parallel()
	token := "Bearer " + tokenOf("edge")
	for _, keyFile := range []string{passwordFile(t, providerKey), ""} {
		upstream := newProvider(t)
		var log lines
		app := start(t, Options{
			Config: rulesFor(t, modelRules), Callers: callersFile(t, "take", "llm"), Admin: AdminOptions{Address: "127.0.0.1:0"},
			Models: ModelOptions{Address: "127.0.0.1:0", Upstream: upstream.URL, UpstreamKeyFile: keyFile},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		for _, c := range []struct {
			path, header string
			status       int
			text         string
			want         http.Header // of the credentials that the provider gets
		}{
			{"/v1/chat/completions", "Authorization: " + token, 200, "usage", http.Header{"Authorization": {"Bearer " + providerKey}}},
			{"/v1/messages", "X-Api-Key: " + tokenOf("edge"), 200, "usage", http.Header{"X-Api-Key": {providerKey}}},
			{"/v1/messages", "Authorization: " + token, 200, "usage", http.Header{"X-Api-Key": {providerKey}}},
			{"/v1/chat/completions", "Authorization: Bearer " + providerKey, 401, `"code":"invalid_api_key"`, nil},
			{"/v1/messages", "X-Api-Key: nobody", 401, `"type":"authentication_error"`, nil},
			{"/v1/chat/completions", "X-Api-Key: " + tokenOf("edge"), 401, `"code":"invalid_api_key"`, nil},
			{"/v1/chat/completions", "Authorization: Bearer " + tokenOf("watch"), 403, `"code":"forbidden"`, nil},
		} {
			status, text := askModel(t, app, c.path, c.header)
			if status != c.status || !strings.Contains(text, c.text) {
				t.Errorf("%s, %s: %d %s", c.path, c.header, status, text)
			}
			if status != http.StatusOK {
				continue
			}
			got := <-upstream.got
			credentials := http.Header{}
			for _, name := range []string{"Authorization", "X-Api-Key"} {
				if values := got[name]; len(values) > 0 {
					credentials[name] = values
				}
			}
			if keyFile == "" {
				c.want = http.Header{}
			}
			if diff := gocmp.Diff(c.want, credentials); diff != "" || strings.Contains(fmt.Sprint(got), tokenOf("edge")) {
				t.Errorf("%s, %s: the provider got (-want +got):\n%s\nof %v", c.path, c.header, diff, got)
			}
		}
		if n := len(upstream.got); n > 0 {
			t.Errorf("%d more were forwarded", n)
		}
		for name, want := range map[string]int64{"edge": 3, "watch": 0} {
			used := modelUse(t, app, name)
			if used["requests"] != want || used["output"] != 4*want || used["open"] != 0 {
				t.Errorf("%s used %v", name, used)
			}
		}
		if said := log.String(); said == "" || strings.Contains(said, tokenOf("edge")) || strings.Contains(said, providerKey) || strings.Contains(said, "a-prompt") {
			t.Errorf("logged: %s", said)
		}
	}
	wantInvalid(t, "a key of the provider for everybody", Options{
		Config: rulesFor(t, modelRules), Models: ModelOptions{Address: "127.0.0.1:0", Mock: true, UpstreamKeyFile: passwordFile(t, providerKey)},
	}, "upstream key file", "")
}

// TestModelDomain wants a domain that no rules have to be an error at the start, and a request
// that no rule applies to refused unless the operator says otherwise.
func TestModelDomain(t *testing.T) {
	t.Parallel()
	wantInvalid(t, "a domain of no rules", Options{
		Config: rulesFor(t, modelRules), Models: ModelOptions{Address: "127.0.0.1:0", Mock: true, Domain: "lllm"},
	}, "domain", "llm")
	for unmatched, want := range map[string]int{"": 403, "refuse": 403, "allow": 200} {
		app := start(t, Options{
			Config: rulesFor(t, strings.Replace(modelRules, "- key: key", "- key: key\n    value: nobody", 1)), Unmatched: unmatched,
			Models: ModelOptions{Address: "127.0.0.1:0", Mock: true},
		})
		status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer me")
		if status != want || want == 403 && !strings.Contains(text, `"code":"unmatched"`) {
			t.Errorf("%q: %d %s", unmatched, status, text)
		}
	}
}

// TestModelClearText wants credentials to cross the network over TLS, or where the operator
// says that something else encrypts the connections.
func TestModelClearText(t *testing.T) {
	t.Parallel()
	config, key, callers := rulesFor(t, modelRules), passwordFile(t, providerKey), callersFile(t, "take", "llm")
	cert, certKey := newIssuer(t).pair("weir.test")
	secured := TLS{Cert: cert, Key: certKey}
	for name, c := range map[string]struct {
		field, want string // empty: it starts
		insecure    bool
		callers     string
		ModelOptions
	}{
		"a provider over the network":           {"upstream", "https://provider.example", false, "", ModelOptions{Upstream: "http://provider.example/v1"}},
		"a provider with the operator's key":    {"upstream", "https://10.0.0.1:80", false, callers, ModelOptions{Upstream: "http://10.0.0.1:80", UpstreamKeyFile: key}},
		"a provider that gets no key":           {"", "", false, callers, ModelOptions{Upstream: "http://10.0.0.1:80"}},
		"a provider over TLS":                   {"", "", false, "", ModelOptions{Upstream: "https://provider.example"}},
		"a provider on this host":               {"", "", false, "", ModelOptions{Upstream: "http://localhost:80"}},
		"a provider in a mesh":                  {"", "", true, "", ModelOptions{Upstream: "http://provider.example"}},
		"credentials that pass through":         {"listen", "--models-tls-cert", false, "", ModelOptions{Upstream: "https://provider.example", Address: ":0"}},
		"callers' tokens":                       {"callers", "--models-tls-cert", false, callers, ModelOptions{Upstream: "https://provider.example", Address: ":0"}},
		"credentials that pass through TLS":     {"", "", false, "", ModelOptions{Upstream: "https://provider.example", Address: ":0", TLS: secured}},
		"credentials that pass through a mesh":  {"", "", true, "", ModelOptions{Upstream: "https://provider.example", Address: ":0"}},
		"a mock on the network":                 {"", "", false, "", ModelOptions{Mock: true, Address: ":0"}},
		"a secret in the address":               {"upstream", "http://HOST or https://HOST", false, "", ModelOptions{Upstream: "https://me:a-secret@provider.example"}},
		"a secret in the query":                 {"upstream", "http://HOST or https://HOST", false, "", ModelOptions{Upstream: "https://provider.example?key=a-secret"}},
		"a secret in what cannot be an address": {"upstream", "http://HOST or https://HOST", false, "", ModelOptions{Upstream: "https://me:a-secret@provider.example:port"}},
	} {
		c.ModelOptions.Address = cmp.Or(c.ModelOptions.Address, "127.0.0.1:0")
		o := Options{Config: config, Callers: c.callers, InsecureToken: c.insecure, Models: c.ModelOptions}
		if c.field == "" {
			wantGood(t, name, o)
			continue
		}
		wantInvalid(t, name, o, c.field, c.want)
		if _, err := New(o); strings.Contains(err.Error(), "a-secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestModelKeyFile wants a key that cannot be sent refused at the start, and a new one used.
func TestModelKeyFile(t *testing.T) {
	t.Parallel()
	options := Options{Config: rulesFor(t, modelRules), Callers: callersFile(t, "take", "llm")}
	for _, text := range []string{"", "a\tkey", "a key", "a\x01key", "two\nlines"} {
		o := options
		o.Models = ModelOptions{Address: "127.0.0.1:0", Mock: true, UpstreamKeyFile: passwordFile(t, text)}
		wantInvalid(t, fmt.Sprintf("%q", text), o, "upstream key file", "one line")
		if _, err := New(o); text != "" && strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
	upstream, file := newProvider(t), passwordFile(t, providerKey)
	options.Models = ModelOptions{Address: "127.0.0.1:0", Upstream: upstream.URL, UpstreamKeyFile: file}
	app := start(t, options)
	for _, key := range []string{providerKey, "another-key"} {
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+tokenOf("edge")); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
			if got := (<-upstream.got).Get("Authorization"); got != "Bearer "+key {
				return fmt.Errorf("the provider got %s", got)
			}
			return nil
		})
	}
}

// TestModelPages wants web pages of other sites refused, also those whose name resolves to a
// loopback address.
func TestModelPages(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Config: rulesFor(t, modelRules), Models: ModelOptions{Address: "127.0.0.1:0", Mock: true}})
	for header, want := range map[string]int{
		"Host: localhost": 200, "Host: evil.example": 421, "Sec-Fetch-Site: cross-site": 403, "Origin: https://evil.example": 403,
	} {
		if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer me", header); status != want {
			t.Errorf("%s: %d %s", header, status, text)
		}
	}
}

// TestModelCatalog wants the list of models for callers of the domain only.
func TestModelCatalog(t *testing.T) {
	t.Parallel()
	app := start(t, Options{
		Config: rulesFor(t, modelRules), Callers: callersFile(t, "take", "llm"), Models: ModelOptions{Address: "127.0.0.1:0", Mock: true},
	})
	for name, want := range map[string]int{"edge": 200, "watch": 403} {
		if resp, text := send(t, app, "models", "GET", "/v1/models", "", "Authorization: Bearer "+tokenOf(name)); resp.StatusCode != want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
}

// TestModelMemory wants the memory of requests to follow the memory limit.
func TestModelMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for limit, want := range map[int64]int{1 << 20: 4, 400 << 20: 100, 1 << 40: 256} {
		debug.SetMemoryLimit(limit)
		o := Options{Models: ModelOptions{Mock: true}}
		if err := o.complete(); err != nil || o.Limits.RequestMemory != want {
			t.Errorf("limit %d: %d MiB, %v", limit, o.Limits.RequestMemory, err)
		}
	}
	o := Options{Models: ModelOptions{Mock: true}, Limits: Limits{RequestMemory: 7}}
	if err := o.complete(); err != nil || o.Limits.RequestMemory != 7 {
		t.Errorf("%d MiB, %v", o.Limits.RequestMemory, err)
	}
}

// modelUse returns what a caller has used, by the names of the limits.
func modelUse(t *testing.T, app *App, name string) map[string]int64 {
	t.Helper()
	resp, text := send(t, app, "admin", "GET", "/v1/key?domain=llm&entry=key%3D"+name, "", "Authorization: Bearer "+tokenOf("watch"))
	var state struct {
		Limits []struct {
			Name  string
			State struct{ Used int64 }
		}
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", resp.StatusCode, text, err)
	}
	used := map[string]int64{}
	for _, l := range state.Limits {
		used[l.Name] = l.State.Used
	}
	return used
}

// TestModelSpans wants a span of each request, with those of its hold and its settlement below,
// and neither prompts nor credentials in any.
func TestModelSpans(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	traced := tracingBy(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	app := start(t, Options{
		Config: rulesFor(t, modelRules), Models: ModelOptions{Address: "127.0.0.1:0", Upstream: newProvider(t).URL},
		Telemetry: TelemetryOptions{Tracing: traced},
	})
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	for path, header := range map[string]string{"/v1/chat/completions": "Authorization: Bearer a-secret", "/v1/messages": "X-Api-Key: a-secret"} {
		if status, text := askModel(t, app, path, header, "Traceparent: 00-"+parent+"-00f067aa0ba902b7-01"); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	want := []string{"POST /v1/chat/completions", "POST /v1/messages", "weir.take", "weir.take", "weir.take", "weir.take"}
	eventually(t, func() error {
		var got []string
		for _, span := range recorder.Ended() {
			got = append(got, span.Name())
		}
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	for _, span := range recorder.Ended() {
		text := fmt.Sprint(span.Attributes(), span.Events(), span.Status())
		if strings.Contains(text, "a-prompt") || strings.Contains(text, "a-secret") || span.SpanContext().TraceID().String() != parent {
			t.Errorf("%s of %v has %s", span.Name(), span.SpanContext().TraceID(), text)
		}
	}
}

// TestModelMetrics wants the metrics to count what happened.
func TestModelMetrics(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/messages" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":9,"completion_tokens":900,"prompt_tokens_details":{"cached_tokens":2}}}`)
	}))
	t.Cleanup(upstream.Close)
	app := start(t, Options{
		Config: rulesFor(t, `domain: llm
models: [{model: "m*", input: 0, output: 1000}]
descriptors:
  - key: key
    rate_limits:
      - {name: output, count: output, requests_per_unit: 100, unit: hour, algorithm: gcra}
      - {count: usd, dollars: 900, unit: day, algorithm: fixed_window}
`),
		Models: ModelOptions{Address: "127.0.0.1:0", Upstream: upstream.URL}, Admin: AdminOptions{Address: "127.0.0.1:0"},
	})
	for _, call := range []struct {
		path, header string
		status       int
	}{
		{"/v1/chat/completions", "Authorization: Bearer one", 200},
		{"/v1/chat/completions", "Authorization: Bearer one", 429},
		{"/v1/messages", "X-Api-Key: two", 200},
	} {
		if status, text := askModel(t, app, call.path, call.header); status != call.status {
			t.Fatalf("%d %s", status, text)
		}
	}
	_, text := send(t, app, "admin", "GET", "/metrics", "")
	for _, want := range []string{
		`weir_models_requests_total{code="200",form="openai"} 1`, `weir_models_requests_total{code="429",form="openai"} 1`,
		`weir_models_requests_total{code="200",form="anthropic"} 1`,
		`weir_models_tokens_total{kind="input",model="m*"} ` + fmt.Sprint(7+(len(promptBody)+3)/4), `weir_models_tokens_total{kind="cached",model="m*"} 2`,
		`weir_models_tokens_total{kind="output",model="m*"} 980`,
		// A dollar for a thousand tokens of the output; input is free.
		`weir_models_dollars_total{model="m*"} 0.98`,
		`weir_models_settled_units_total{count="output",model="m*",rule="output"} 980`,
		`weir_models_settled_units_total{count="usd",model="m*",rule="key#2"} 980000`,
		// Two of 80 were held. One was settled at 900, of which the limit records 200, and the other at its hold.
		`weir_held_units_total{domain="llm",rule="output"} 160`, `weir_granted_units_total{domain="llm",rule="output"} 280`,
		`weir_models_usage_missing_total{reason="absent"} 1`,
		// 80 were held, and the limit records 200.
		`weir_models_underestimated_units_total{rule="output"} 820`, `weir_models_forgiven_units_total{rule="output"} 700`,
		`weir_models_settle_failures_total 0`, `weir_models_first_byte_seconds_count 2`, `weir_models_streams 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "weir_models") && !strings.Contains(line, "_bucket") {
				t.Log(line)
			}
		}
	}
}

// TestModelLabels wants rules about a label that no caller has refused with their position, at the
// start and when they change, and limits of a label to hold for all callers that have it.
func TestModelLabels(t *testing.T) {
	t.Parallel()
	const text = "domain: llm\ndescriptors:\n  - {key: team, rate_limit: {name: team, requests_per_unit: 2, unit: day, algorithm: fixed_window}}\n"
	file := strings.ReplaceAll(readFile(t, callersFile(t, "take", "llm")), "{name: edge,", "{name: edge, labels: {team: web},")
	config, reloaded := rulesFor(t, text), make(chan error, 1)
	options := Options{
		Config: config, Callers: passwordFile(t, file), Reloaded: func(err error) { reloaded <- err },
		Models: ModelOptions{Address: "127.0.0.1:0", Mock: true},
	}
	wrong := options
	wrong.Config = rulesFor(t, strings.Replace(text, "key: team", "key: tema", 1))
	if _, err := New(wrong); err == nil || !strings.Contains(err.Error(), `rules.yaml:3:5: a rule about "tema", which no request has`) {
		t.Errorf("%v", err)
	}
	app := start(t, options)
	if err := os.WriteFile(config, []byte(strings.Replace(text, "key: team", "key: tema", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	app.Reload()
	if err := <-reloaded; err == nil || !strings.Contains(err.Error(), `"tema"`) {
		t.Errorf("%v", err)
	}
	for i, want := range []int{200, 200, 429} {
		if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+tokenOf("edge")); status != want {
			t.Errorf("request %d: %d %s, want %d", i+1, status, text, want)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
