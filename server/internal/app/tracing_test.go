package app

import (
	"log/slog"
	"net/http"
	"testing"
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
