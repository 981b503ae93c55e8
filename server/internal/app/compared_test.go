package app

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCompared puts a server before another rate limit service: callers get the other
// service's answers, and the log and the metrics say where they differ.
func TestCompared(t *testing.T) {
	t.Parallel()
	rules := func(count string) string {
		return rulesFor(t, "domain: demo\ndescriptors:\n  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: "+count+"}}\n")
	}
	other, log := start(t, Options{Config: rules("1")}), new(lines)
	app := start(t, Options{Config: rules("2"), RLSCompare: addrOf(other, "grpc"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	wantCodes(t, dialGRPC(t, app), ok, over, over)
	wantMetrics(t, app, `weir_compared_total{result="limits"} 2`, `weir_compared_total{result="looser"} 1`)
	want := `result=looser reason="the limits differ" domain=demo descriptor="path=/login" other="OVER_LIMIT, 1/year, 0 remain" weir="OK, 2/year, 0 remain"`
	for _, want := range []string{want, `level=WARN msg="another service answers Envoy's calls;`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
}

// TestComparedAbsent passes on that the other service is unreachable.
func TestComparedAbsent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	app := start(t, Options{RLSCompare: l.Addr().String()})
	if m, err := login(t, dialGRPC(t, app)); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, %v", m, err)
	}
	wantMetrics(t, app, `weir_compared_total{result="absent"} 1`)
	if _, err := New(Options{RLSCompare: "ratelimit"}); err == nil {
		t.Error("an address without a port is accepted")
	}
}
