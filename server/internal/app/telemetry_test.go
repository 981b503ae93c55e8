package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// figure reads one number from /metrics.
func figure(t *testing.T, app *App, name string, labels map[string]string) float64 {
	t.Helper()
	status, body := get(t, app, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("metrics: %d %s", status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		matches := 0
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == l.GetValue() {
				matches++
			}
		}
		if matches == len(labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no %s with %v", name, labels)
	return 0
}

func TestMetricsOfCalls(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0"}})
	for range 7 {
		get(t, app, "/v1/auth?domain=demo&user=alice")
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   float64
	}{
		"weir_decisions_total":             {map[string]string{"domain": "demo", "rule": "user", "decision": "refused", "source": "store"}, 2},
		"weir_granted_units_total":         {map[string]string{"rule": "user"}, 5},
		"weir_decision_seconds":            {map[string]string{"frontend": "http"}, 7},
		"weir_store_seconds":               {nil, 7},
		"weir_http_requests_total":         {map[string]string{"path": "/v1/auth", "code": "429"}, 2},
		"weir_memory_keys":                 {nil, 1},
		"weir_config_rules":                {nil, 2},
		"weir_config_load_successes_total": {nil, 1},
	} {
		if got := figure(t, app, name, tc.labels); got != tc.want {
			t.Errorf("%s%v is %v, want %v", name, tc.labels, got, tc.want)
		}
	}
	if resp, text := send(t, app, "admin", "GET", "/metrics", ""); !strings.Contains(text, "weir_decisions_total") {
		t.Errorf("administrators get %d %s", resp.StatusCode, text)
	}
}

// TestMetricsOfRedis: calls leave together, and the store's figures are its own.
func TestMetricsOfRedis(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	app := start(t, Options{Store: "redis://" + redis.Addr()})
	get(t, app, "/v1/auth?domain=demo&user=alice")
	for name, want := range map[string]float64{"weir_coalesce_acts_total": 1, "weir_store_acts": 1, "weir_redis_foreign_values_total": 0} {
		if got := figure(t, app, name, nil); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestMetricsOfReloads(t *testing.T) {
	t.Parallel()
	const good = "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {requests_per_unit: 9, unit: day, algorithm: gcra}\n"
	file := rulesFor(t, good)
	app := start(t, Options{Config: file})
	get(t, app, "/v1/auth?domain=d&user=a")
	until := func(name string, want float64) {
		t.Helper()
		testserver.Eventually(t, fmt.Sprint(name, " becomes ", want), func() bool { return figure(t, app, name, nil) == want })
	}
	until("weir_config_last_load_successful", 1)
	replace(t, file, "domain: d\ndescriptors: 7\n")
	until("weir_config_last_load_successful", 0)
	until("weir_config_load_failures_total", 1)
	replace(t, file, strings.Replace(good, "9", "8", 1))
	until("weir_config_last_load_successful", 1)
	until("weir_config_load_successes_total", 2)
	get(t, app, "/v1/auth?domain=d&user=a")
	if got := figure(t, app, "weir_granted_units_total", map[string]string{"rule": "user"}); got != 2 {
		t.Errorf("%v units: a reload forgets nothing", got)
	}
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestSpansBelowCallers follows a call from its caller to the decision.
func TestSpansBelowCallers(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	traced := tracingBy(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	app := start(t, Options{Telemetry: TelemetryOptions{Tracing: traced}})
	get(t, app, "/v1/auth?domain=demo&user=alice", "traceparent: "+traceparent)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	if _, err := rateLimit(ctx, dialGRPC(t, app), ""); err == nil {
		t.Fatal("a request without a domain was answered")
	}
	get(t, app, "/healthz")
	want := []string{"weir.take", "GET /v1/auth", "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}
	ended := recorder.Ended()
	if len(ended) != len(want) {
		t.Fatalf("%d spans: %v", len(ended), ended)
	}
	for i, span := range ended {
		if span.Name() != want[i] || span.SpanContext().TraceID().String() != traceparent[3:35] {
			t.Errorf("span %d is %s of trace %s", i, span.Name(), span.SpanContext().TraceID())
		}
		for _, attribute := range span.Attributes() {
			if strings.Contains(attribute.Value.String(), "alice") {
				t.Errorf("%s tells %s", span.Name(), attribute.Value.String())
			}
		}
	}
}

// TestStuckCollector: a collector that accepts and never reads costs spans, not
// decisions.
func TestStuckCollector(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(listener.Addr().String()), otlptracehttp.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	traced := exportedBy(exporter)
	app := start(t, Options{Telemetry: TelemetryOptions{Tracing: traced}})
	for i := range 200 {
		if status, body := get(t, app, "/v1/auth?domain=demo&user=u"); status != http.StatusNoContent && status != http.StatusTooManyRequests {
			t.Fatalf("call %d: %d %s", i, status, body)
		}
	}
	if got := figure(t, app, "weir_decision_seconds", map[string]string{"frontend": "http"}); got != 200 {
		t.Errorf("%v decisions", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if traced.provider.Shutdown(ctx) == nil {
		t.Error("the collector has taken everything: nothing was stuck")
	}
}
