package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/pages"
)

// comparedRules grant the path /login so often in a year.
func comparedRules(t *testing.T, count int) string {
	return rulesFor(t, fmt.Sprintf("domain: demo\ndescriptors:\n  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: %d}}\n", count))
}

// awaitMetrics waits until a server has metrics.
func awaitMetrics(t *testing.T, app *App, lines ...string) {
	t.Helper()
	eventually(t, func() error {
		text := "\n" + metricsOf(t, app)
		for _, want := range lines {
			if !strings.Contains(text, "\n"+want+"\n") {
				return errors.New("no " + want)
			}
		}
		return nil
	})
}

// TestCompared puts a server before another rate limit service: callers get the other
// service's answers or its absence, over gRPC and HTTP, and the log, the metrics and the
// readiness say where they differ and that it is absent.
func TestCompared(t *testing.T) {
	t.Parallel()
	other, log := start(t, Options{Config: comparedRules(t, 1)}), new(lines)
	app := start(t, Options{
		Config: comparedRules(t, 2), RLSCompare: addrOf(other, "grpc"), Logger: slog.New(slog.NewTextHandler(log, nil)),
		Telemetry: TelemetryOptions{LogRefusals: true},
	})
	conn := dialGRPC(t, app)
	if code, text := details(t, app); code != http.StatusOK || !strings.Contains(text, `{"name":"compared service","ok":true}`) {
		t.Errorf("readiness: %d %s", code, text)
	}
	wantCodes(t, conn, ok)
	awaitMetrics(t, app, `weir_compared_total{result="limits"} 1`)
	body := `{"domain":"demo","descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}`
	if code, text := posted(t, app, "/json", body); code != http.StatusTooManyRequests {
		t.Errorf("/json: %d %s: want the other service's answer", code, text)
	}
	awaitMetrics(t, app, `weir_compared_total{result="looser"} 1`)
	wantCodes(t, conn, over)
	awaitMetrics(t, app, `weir_compared_total{result="limits"} 2`)
	want := `result=looser reason="the limits differ" domain=demo descriptor=path other="OVER_LIMIT, 1/year, 0 remain" weir="OK, 2/year, 0 remain"`
	for _, want := range []string{want, `level=WARN msg="another service answers Envoy's calls;`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	log.await(t, `msg="would be refused" domain=demo`)

	stop(t, other)
	if m, err := login(t, conn); status.Code(err) != codes.Unavailable {
		t.Errorf("while the other service is unreachable: %v, %v", m, err)
	}
	if code, text := posted(t, app, "/json", body); code != http.StatusServiceUnavailable {
		t.Errorf("/json while the other service is unreachable: %d %s", code, text)
	}
	awaitMetrics(t, app, `weir_compared_total{result="absent"} 2`)
	log.await(t, `level=WARN msg="the compared service gives no answer" code=Unavailable`)
	eventually(t, func() error {
		if code, text := details(t, app); code != http.StatusOK || !strings.Contains(text, `"state":"degraded"`) || !strings.Contains(text, `{"name":"compared service","ok":false,"detail":"`) {
			return fmt.Errorf("readiness: %d %s", code, text)
		}
		return nil
	})
	wantInvalid(t, "no port", Options{RLSCompare: "ratelimit"}, "rls compare", "")
}

// TestComparedDocs holds the line of the log in docs/migrating-envoyproxy.md against one, of a year
// in the place of a minute, which may end meanwhile.
func TestComparedDocs(t *testing.T) {
	t.Parallel()
	limited := func(count int) string {
		return rulesFor(t, fmt.Sprintf("domain: edge\ndescriptors:\n  - {key: path, rate_limit: {unit: year, requests_per_unit: %d}}\n", count))
	}
	other, log := start(t, Options{Config: limited(10)}), new(lines)
	app := start(t, Options{Config: limited(20), RLSCompare: addrOf(other, "grpc"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	for n := range 11 {
		status := http.StatusOK
		if n == 10 {
			status = http.StatusTooManyRequests
		}
		if code, text := posted(t, app, "/json", `{"domain":"edge","descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}`); code != status {
			t.Fatalf("call %d: %d %s", n, code, text)
		}
	}
	_, line, found := strings.Cut(pages.Mine(t, "docs/migrating-envoyproxy.md")[0].Text, "WARN ")
	message, fields, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), "/minute", "/year"), " result=")
	if !found {
		t.Error("the page has no line of the log")
	}
	log.await(t, fmt.Sprintf("level=WARN msg=%q result=%s", message, fields))
}

// TestComparedBesideAHungStore: callers get the other service's answers while Weir decides
// nothing, and the server stops in time.
func TestComparedBesideAHungStore(t *testing.T) {
	t.Parallel()
	store := hanging{make(chan struct{}), make(chan struct{}, 3)}
	defer close(store.released)
	other := start(t, Options{Config: comparedRules(t, 2)})
	app := unstopped(t, Options{
		Config: comparedRules(t, 2), RLSCompare: addrOf(other, "grpc"),
		wrapStore: func(weir.Taker) weir.Taker { return store },
	})
	wantCodes(t, dialGRPC(t, app), ok, ok, over)
	for range 3 {
		<-store.asked
	}
	wantStopped(t, app)
}

// TestComparedRejects: a caller without the right, and a message with too many parts, get Weir's
// error. The other service is not asked.
func TestComparedRejects(t *testing.T) {
	t.Parallel()
	other, log := start(t, Options{Config: comparedRules(t, 9)}), new(lines)
	app := start(t, Options{
		Config: comparedRules(t, 9), RLSCompare: addrOf(other, "grpc"), Callers: callersFile(t, "take", "demo"),
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	edge := scoped{t, app, "edge"}
	ctx, conn := bearer(t, tokenOf("edge")), dialGRPC(t, app)
	unknown := descriptor("path", "/login")
	unknown.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 99}
	for name, c := range map[string]struct {
		domain      string
		descriptors []*ratelimitv3.RateLimitDescriptor
		want        codes.Code
	}{
		"forbidden":             {"shop", []*ratelimitv3.RateLimitDescriptor{descriptor("path", "/login")}, codes.PermissionDenied},
		"forbidden and invalid": {"shop", []*ratelimitv3.RateLimitDescriptor{unknown}, codes.PermissionDenied},
		"many":                  {"demo", make([]*ratelimitv3.RateLimitDescriptor, 120_000), codes.InvalidArgument},
	} {
		for i := range c.descriptors {
			if c.descriptors[i] == nil {
				c.descriptors[i] = new(ratelimitv3.RateLimitDescriptor)
			}
		}
		if m, err := rateLimit(ctx, conn, c.domain, c.descriptors...); status.Code(err) != c.want {
			t.Errorf("%s: %v, %v, want %v", name, m, err, c.want)
		}
	}
	if code, text := edge.http("http", "POST", "/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}`); code != http.StatusForbidden {
		t.Errorf("/json: %d %s", code, text)
	}
	log.await(t, `msg="Weir rejects a call; the compared service was not asked" code=PermissionDenied`)
	log.await(t, `msg="Weir rejects a call; the compared service was not asked" code=InvalidArgument`)
	asked := func() int {
		return strings.Count(metricsOf(t, other), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
	}
	if asked() != 0 {
		t.Errorf("the other service was asked:\n%s", metricsOf(t, other))
	}
	// The other service answers what Weir cannot decide; here it is another Weir.
	if m, err := rateLimit(ctx, conn, "demo", unknown); status.Code(err) != codes.InvalidArgument || asked() == 0 {
		t.Errorf("the other service was not asked: %v, %v", m, err)
	}
}
