package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/server/internal/rls"
)

const unmatchedRules = "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {requests_per_unit: 9, unit: day, algorithm: gcra}}\n"

// TestUnmatched: requests that no rule applies to are marked, counted and logged once a
// domain, and refused if the option says so.
func TestUnmatched(t *testing.T) {
	t.Parallel()
	for mode, status := range map[string]int{"": http.StatusNoContent, "allow": http.StatusNoContent, "refuse": http.StatusTooManyRequests} {
		var log lines
		app := start(t, Options{
			Config: rulesFor(t, unmatchedRules), Unmatched: mode, RLS: rls.Mode{Headers: &rls.DefaultHeaders},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for query, want := range map[string]string{"domain=sohp&user=a": "domain", "domain=shop&usr=a": "rule", "domain=shop&user=a": ""} {
			for range 3 {
				answer, _ := send(t, app, "http", "GET", "/v1/auth?"+query, "")
				code := status
				if want == "" {
					code = http.StatusNoContent
				}
				if got := answer.Header.Get("Weir-Unmatched"); got != want || answer.StatusCode != code {
					t.Errorf("%q, %s: %d %q, want %d %q", mode, query, answer.StatusCode, got, code, want)
				}
			}
			domain, entry, _ := strings.Cut(strings.TrimPrefix(query, "domain="), "&")
			key, _, _ := strings.Cut(entry, "=")
			m, err := rateLimit(t.Context(), dialGRPC(t, app), domain, descriptor(key, "a"))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, h := range m.GetResponseHeadersToAdd() {
				if h.GetKey() == "weir-unmatched" {
					got = h.GetValue()
				}
			}
			if over := m.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; got != want || over != (mode == "refuse" && want != "") {
				t.Errorf("%q, Envoy, %s: %v %q, want %q", mode, query, m.GetOverallCode(), got, want)
			}
		}
		wantMetrics(t, app, `weir_unmatched_total{domain="",domain_known="false"} 4`, `weir_unmatched_total{domain="shop",domain_known="true"} 4`)
		said := log.String()
		for _, want := range []string{`msg="a request has an unknown domain" domain=sohp keys=user`, `msg="no rule of the domain matches a request" domain=shop keys=usr`} {
			if strings.Count(said, want) != 1 {
				t.Errorf("%q: want once %s in\n%s", mode, want, said)
			}
		}
	}
}

// TestUnmatchedDomainsAreBounded: a client that makes up domains fills neither the log
// nor the metrics.
func TestUnmatchedDomainsAreBounded(t *testing.T) {
	t.Parallel()
	var log lines
	app := start(t, Options{Config: rulesFor(t, unmatchedRules), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100 {
		get(t, app, fmt.Sprintf("/v1/auth?domain=d%d%s&user=a", i, strings.Repeat("x", 500)))
	}
	if n := strings.Count(metricsOf(t, app), "weir_unmatched_total{"); n != 1 {
		t.Errorf("%d series", n)
	}
	if n := strings.Count(log.String(), "a request has an unknown domain"); n != maxStrays || len(log.String()) > 20_000 {
		t.Errorf("%d lines, %d bytes", n, len(log.String()))
	}
}
