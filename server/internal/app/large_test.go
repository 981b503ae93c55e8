package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

const largeRules = `
domain: large
descriptors:
  - key: plain
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: algorithm
    rate_limit: {unit: year, requests_per_unit: 1, algorithm: gcra}
`

// envoyAsks asks Envoy's question over gRPC and returns how many descriptors were over
// their limits.
func envoyAsks(t *testing.T, app *App, m *rlsv3.RateLimitRequest) (over int, err error) {
	t.Helper()
	answer, err := rateLimit(t.Context(), dialGRPC(t, app), m.GetDomain(), m.GetDescriptors()...)
	return overIn(answer), err
}

func overIn(answer *rlsv3.RateLimitResponse) (over int) {
	for _, s := range answer.GetStatuses() {
		if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			over++
		}
	}
	return over
}

// jsonAsks is envoyAsks over /json.
func jsonAsks(t *testing.T, app *App, m *rlsv3.RateLimitRequest) (over, code int) {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	code, body := posted(t, app, "/json", string(text))
	answer := new(rlsv3.RateLimitResponse)
	if code == http.StatusOK || code == http.StatusTooManyRequests {
		if err := protojson.Unmarshal([]byte(body), answer); err != nil {
			t.Fatal(err)
		}
	}
	return overIn(answer), code
}

// large is a request of the rule with a key, for so many values.
func large(key string, values ...string) *rlsv3.RateLimitRequest {
	m := &rlsv3.RateLimitRequest{Domain: "large"}
	for _, v := range values {
		m.Descriptors = append(m.Descriptors, descriptor(key, v))
	}
	return m
}

func numbers(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	return values
}

// TestRequestsAreAsLargeAsEnvoys: 500 descriptors, and values as long as tokens, each
// with a budget of its own, in either store and over every protocol.
func TestRequestsAreAsLargeAsEnvoys(t *testing.T) {
	t.Parallel()
	// They differ in the last byte.
	token := strings.Repeat("eyJ", 6000)
	one, other := token+"1", token+"2"
	for name, store := range map[string]string{"memory": "memory", "Redis": testserver.StartRedis(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := start(t, Options{Store: store, Config: rulesFor(t, largeRules), Timeout: 4 * time.Second})
			for _, want := range []int{0, rules.MaxDescriptors} {
				if over, err := envoyAsks(t, app, large("plain", numbers(rules.MaxDescriptors)...)); err != nil || over != want {
					t.Errorf("gRPC: %d over, %v, want %d", over, err, want)
				}
			}
			if over, code := jsonAsks(t, app, large("plain", numbers(rules.MaxDescriptors)...)); code != http.StatusTooManyRequests || over != rules.MaxDescriptors {
				t.Errorf("/json: %d %d", over, code)
			}
			for _, want := range []int{0, 1} {
				if over, err := envoyAsks(t, app, large("plain", one)); err != nil || over != want {
					t.Errorf("gRPC, a long value: %d over, %v, want %d", over, err, want)
				}
			}
			if over, code := jsonAsks(t, app, large("plain", other)); code != http.StatusOK || over != 0 {
				t.Errorf("/json, another long value: %d %d", over, code)
			}
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				if code, body := posted(t, app, "/v1/take", takes("algorithm", one)); code != want {
					t.Errorf("take, a long value: %d %s, want %d", code, body, want)
				}
			}
			if code := authed(t, app, "algorithm", other); code != http.StatusNoContent {
				t.Errorf("auth, another long value: %d", code)
			}
			if code, body := posted(t, app, "/v1/take", takes("plain", numbers(rules.MaxDescriptors)...)); code != http.StatusTooManyRequests {
				t.Errorf("take, many descriptors: %d %.200s", code, body)
			}
		})
	}
}

// takes is the body of a take.
func takes(key string, values ...string) string {
	var descriptors []any
	for _, v := range values {
		descriptors = append(descriptors, map[string]any{"entries": []any{map[string]string{"key": key, "value": v}}})
	}
	text, _ := json.Marshal(map[string]any{"domain": "large", "descriptors": descriptors})
	return string(text)
}

// authed asks with a value in a header, as proxies do.
func authed(t *testing.T, app *App, key, value string) int {
	t.Helper()
	status, _ := get(t, app, "/v1/auth?domain=large&from="+url.QueryEscape(key+"=Authorization"), "Authorization: "+value)
	return status
}

// TestLargerRequestsAreRefused: the number is named, and nothing is charged.
func TestLargerRequestsAreRefused(t *testing.T) {
	t.Parallel()
	limited := Limits{}
	limited.Descriptors = 3
	for name, c := range map[string]struct {
		limits Limits
		ask    *rlsv3.RateLimitRequest
		want   string
	}{
		"descriptors":      {Limits{}, large("plain", numbers(513)...), "descriptors is 513: want 1 … 512 descriptors"},
		"fewer by a flag":  {limited, large("plain", numbers(4)...), "descriptors is 4: want 1 … 3 descriptors"},
		"decided together": {Limits{}, large("algorithm", numbers(65)...), "descriptors is 65 charges of rules with an algorithm: want at most 64"},
	} {
		app := start(t, Options{Config: rulesFor(t, largeRules), Limits: c.limits})
		_, err := envoyAsks(t, app, c.ask)
		if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if _, code := jsonAsks(t, app, c.ask); code != http.StatusBadRequest {
			t.Errorf("%s, /json: %d, want 400", name, code)
		}
		var values []string
		for _, d := range c.ask.GetDescriptors() {
			values = append(values, d.GetEntries()[0].GetValue())
		}
		code, body := posted(t, app, "/v1/take", takes(c.ask.GetDescriptors()[0].GetEntries()[0].GetKey(), values...))
		if code != http.StatusBadRequest || !strings.Contains(body, c.want) {
			t.Errorf("%s, take: %d %s", name, code, body)
		}
		if over, err := envoyAsks(t, app, large("plain", "0")); err != nil || over != 0 {
			t.Errorf("%s: charged: %d, %v", name, over, err)
		}
	}
}

// TestOversizedRequests: what a client could make too large to be read is refused as if it were
// over a limit, or gets an error; it is counted, logged once, and charges nothing.
func TestOversizedRequests(t *testing.T) {
	t.Parallel()
	values := make([]string, 20)
	for i := range values {
		values[i] = fmt.Sprint(i) + strings.Repeat("x", 14<<10)
	}
	ask := large("plain", values...) // 280 KB
	for name, c := range map[string]struct {
		options    Options
		grpc       codes.Code
		overall    rlsv3.RateLimitResponse_Code
		json, take int
	}{
		"default": {Options{}, codes.OK, rlsv3.RateLimitResponse_OVER_LIMIT, 429, 429},
		"refuse":  {Options{Oversized: "refuse"}, codes.OK, rlsv3.RateLimitResponse_OVER_LIMIT, 429, 429},
		"error":   {Options{Oversized: "error"}, codes.ResourceExhausted, 0, 413, 413},
		"shadow":  {Options{RLS: rls.Mode{Shadow: true}}, codes.OK, rlsv3.RateLimitResponse_OK, 200, 429},
	} {
		var log lines
		o := c.options
		o.Config, o.Logger = rulesFor(t, largeRules), slog.New(slog.NewTextHandler(&log, nil))
		app := start(t, o)
		conn := dialGRPC(t, app)
		for range 3 {
			answer, err := rateLimit(t.Context(), conn, ask.GetDomain(), ask.GetDescriptors()...)
			if status.Code(err) != c.grpc || answer.GetOverallCode() != c.overall || len(answer.GetStatuses()) != 0 {
				t.Errorf("%s: %v, %v", name, answer, err)
			}
			if _, code := jsonAsks(t, app, ask); code != c.json {
				t.Errorf("%s, /json: %d, want %d", name, code, c.json)
			}
			code, body := posted(t, app, "/v1/take", takes("plain", values...))
			if code != c.take || code == 429 && body != `{"allowed":false,"granted":0,"id":"","limits":[]}`+"\n" {
				t.Errorf("%s, take: %d %s, want %d", name, code, body, c.take)
			}
		}
		if code, _ := posted(t, app, "/v1/settle", takes("plain", values...)); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s, settle: %d", name, code)
		}
		wantMetrics(t, app, `weir_rejected_total{listener="grpc",reason="message"} 3`, `weir_rejected_total{listener="http",reason="message"} 7`)
		for _, listener := range []string{"grpc", "http"} {
			if n := strings.Count(log.String(), "listener="+listener+" reason=message"); n < 1 || n > 4 {
				t.Errorf("%s: %s logged %d times: %s", name, listener, n, log.String())
			}
		}
		if over, err := envoyAsks(t, app, large("plain", values[0])); err != nil || over != 0 {
			t.Errorf("%s: charged: %d, %v", name, over, err)
		}
	}
}

// TestLargeHeaders: a proxy sends the values of its client's headers. As many as nginx reads are
// counted; more are refused with 431, which is counted.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Config: rulesFor(t, largeRules)})
	for _, value := range []string{strings.Repeat("x", 20<<10), strings.Repeat("y", 60<<10), "\xff\xfe" + strings.Repeat("z", 30<<10)} {
		for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
			if code := authed(t, app, "plain", value); code != want {
				t.Errorf("%.5q, %d bytes: %d, want %d", value, len(value), code, want)
			}
		}
	}
	if code := authed(t, app, "plain", strings.Repeat("x", 70<<10)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("too large: %d", code)
	}
	wantMetrics(t, app, `weir_rejected_total{listener="http",reason="header"} 1`)
}
