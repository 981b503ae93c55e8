package app

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCompared puts a server before another rate limit service: callers get the other
// service's answers or its absence, and the log and the metrics say where they differ.
func TestCompared(t *testing.T) {
	t.Parallel()
	rules := func(count string) string {
		return rulesFor(t, "domain: demo\ndescriptors:\n  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: "+count+"}}\n")
	}
	other, log := start(t, Options{Config: rules("1")}), new(lines)
	app := start(t, Options{Config: rules("2"), RLSCompare: addrOf(other, "grpc"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	conn := dialGRPC(t, app)
	wantCodes(t, conn, ok, over, over)
	wantMetrics(t, app, `weir_compared_total{result="limits"} 2`, `weir_compared_total{result="looser"} 1`)
	want := `result=looser reason="the limits differ" domain=demo descriptor="path=/login" other="OVER_LIMIT, 1/year, 0 remain" weir="OK, 2/year, 0 remain"`
	for _, want := range []string{want, `level=WARN msg="another service answers Envoy's calls;`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	stop(t, other)
	if m, err := login(t, conn); status.Code(err) != codes.Unavailable {
		t.Errorf("while the other service is unreachable: %v, %v", m, err)
	}
	wantMetrics(t, app, `weir_compared_total{result="absent"} 1`)
	wantInvalid(t, "no port", Options{RLSCompare: "ratelimit"}, "rls compare", "")
}
