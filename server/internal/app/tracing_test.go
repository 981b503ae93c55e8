package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirlimit/weir/server/internal/rls"
)

func TestTracesWanted(t *testing.T) {
	t.Parallel()
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for name, tc := range map[string]struct {
		environment map[string]string
		want        bool
	}{
		"nothing":            {nil, false},
		"endpoint":           {map[string]string{endpoint: "http://c:4318"}, true},
		"endpoint of traces": {map[string]string{traces: "http://c:4318/v1/traces"}, true},
		"exporter":           {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		"no traces":          {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false},
		"another exporter":   {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "zipkin"}, false},
		"disabled":           {map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, false},
	} {
		if got := tracesWanted(func(name string) string { return tc.environment[name] }); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNoTracing: what is not there does nothing.
func TestNoTracing(t *testing.T) {
	t.Parallel()
	var none *Tracing
	next := http.NewServeMux()
	if none.HTTP(next, "/") != http.Handler(next) {
		t.Error("there is something")
	}
	none.Stop(t.Context(), slog.New(slog.DiscardHandler))
}

const watchedRules = `
domain: shop
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1}]
descriptors:
  - {key: user, rate_limit: {<<: *one, requests_per_unit: 2}, trial: *one}
  - {key: shadow, rate_limit: *one, shadow_mode: true}
  - {key: live, rate_limit: *one}
`

// TestSpansHaveOutcomes: the outcome of a limit that is only watched is another attribute
// than the one that the caller got.
func TestSpansHaveOutcomes(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	traced := tracingBy(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	app := start(t, Options{Config: rulesFor(t, watchedRules), RLS: rls.Mode{Shadow: true}, Telemetry: TelemetryOptions{Tracing: traced}})
	for _, want := range []struct {
		query  string
		status int
	}{
		{"user=a", http.StatusNoContent},
		{"user=a", http.StatusNoContent},
		{"user=a", http.StatusTooManyRequests},
		{"shadow=a", http.StatusNoContent},
		{"shadow=a", http.StatusNoContent},
		{"live=a", http.StatusNoContent},
		{"live=a", http.StatusTooManyRequests},
	} {
		if status, body := get(t, app, "/v1/auth?domain=shop&"+want.query); status != want.status {
			t.Fatalf("%s: %d %s", want.query, status, body)
		}
	}
	answer, err := rateLimit(t.Context(), dialGRPC(t, app), "shop", descriptor("live", "a"))
	if err != nil || answer.OverallCode != rlsv3.RateLimitResponse_OK {
		t.Fatalf("%v, %v", answer, err)
	}
	var got []string
	for _, span := range recorder.Ended() {
		if span.Name() != "weir.take" {
			continue
		}
		attributes := attribute.NewSet(span.Attributes()...)
		outcome, _ := attributes.Value("weir.outcome")
		watched, _ := attributes.Value("weir.shadow_outcome")
		got = append(got, fmt.Sprintf("%s/%s", outcome.AsString(), watched.AsString()))
	}
	want := []string{"granted/granted", "granted/refused", "refused/refused", "granted/granted", "granted/refused", "granted/", "refused/", "granted/refused"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
