package httpapi

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/rules"
)

func TestAuth(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for i := range 5 {
		w := auth(h, "domain=shop&user=alice")
		wantStatus(t, w, http.StatusNoContent)
		wantHeaders(t, w, map[string]string{
			"RateLimit-Policy":      `"per-user";q=10;w=60`,
			"RateLimit":             fmt.Sprintf(`"per-user";r=%d;t=%d`, 4-i, 6*(i+1)),
			"X-RateLimit-Limit":     "10",
			"X-RateLimit-Remaining": fmt.Sprint(4 - i),
			"X-RateLimit-Reset":     fmt.Sprint(6 * (i + 1)),
			"Retry-After":           "",
			"Cache-Control":         "no-store",
		})
	}
	w := auth(h, "domain=shop&user=alice")
	wantStatus(t, w, http.StatusTooManyRequests)
	wantHeaders(t, w, map[string]string{
		"RateLimit":    `"per-user";r=0;t=6`,
		"Retry-After":  "6",
		"Content-Type": "application/problem+json",
	})
	want := problem.Document{
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota exceeded", Status: 429,
		Detail:   `limit "per-user" (10/min burst 5) is used up; retry in 6 s`,
		Violated: []string{"per-user"},
	}
	if diff := cmp.Diff(want, decode[problem.Document](t, w)); diff != "" {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
	wantStatus(t, auth(h, "domain=shop&user=bob"), http.StatusNoContent)
}

func TestAuthVariants(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for name, test := range map[string]struct {
		query  string
		status int
	}{
		"nothing matches":          {"domain=shop&other=1", 204},
		"an unknown domain":        {"domain=other&user=1", 204},
		"unlimited":                {"domain=shop&free=1", 204},
		"refused":                  {"domain=shop&closed=1", 429},
		"refused for nginx":        {"domain=shop&closed=1&deny=403", 403},
		"more than ever fits":      {"domain=shop&user=x&cost=6", 429},
		"from a header":            {"domain=shop&from=closed=X-User", 429},
		"from the address":         {"domain=shop&from=user=client_ip&cost=5", 204},
		"an entry by its spelling": {"domain=shop&entry=closed=1", 429},
		"cost 0":                   {"domain=shop&user=1&cost=0", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantStatus(t, auth(h, test.query), test.status)
		})
	}
}

// TestNoHeadersNoLimit: whoever is not to know the limits does not read them in the
// body of a refusal.
func TestNoHeadersNoLimit(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen(), Headers: ratelimitheader.None})
	for query, retry := range map[string]string{"domain=shop&closed=1": "", "domain=shop&user=x&cost=6": ""} {
		w := auth(h, query)
		wantStatus(t, w, http.StatusTooManyRequests)
		wantHeaders(t, w, map[string]string{"RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Limit": "", "Retry-After": retry})
		want := problem.Document{
			Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota exceeded", Status: 429, Detail: "too many requests",
		}
		if diff := cmp.Diff(want, decode[problem.Document](t, w)); diff != "" {
			t.Errorf("%s: problem (-want +got):\n%s", query, diff)
		}
	}
}

// TestRefusalsAreExplained: a limit that refuses a request may have units left.
func TestRefusalsAreExplained(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, c := range []struct{ query, detail string }{
		{"user=1&cost=6", `limit "per-user" (10/min burst 5) can never grant this cost`},
		{"batch=1&cost=7", `limit "batch" (10/min) can never grant this cost and keep 4 units free`},
		{"batch=1&cost=6", ""},
		{"batch=1", `limit "batch" (10/min) is used up except for 4 units kept free; retry in 6 s`},
	} {
		w := auth(h, "domain=shop&"+c.query)
		if c.detail == "" {
			wantStatus(t, w, http.StatusNoContent)
		} else if got := decode[problem.Document](t, w).Detail; got != c.detail {
			t.Errorf("%s: %q, want %q", c.query, got, c.detail)
		}
	}
	several := decode[problem.Document](t, auth(h, "domain=shop&user=2&and&closed=1"))
	if diff := cmp.Diff([]string{"shut"}, several.Violated); diff != "" {
		t.Errorf("violated (-want +got):\n%s", diff)
	}
}

func TestUnmatchedHasNoHeaders(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, query := range []string{"domain=shop&other=1", "domain=shop&free=1", "domain=shop&watched=1"} {
		w := auth(h, query)
		wantStatus(t, w, http.StatusNoContent)
		wantHeaders(t, w, map[string]string{"RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Limit": ""})
	}
	strict := handler(t, Options{Taker: frozen(), Unmatched: func(*rules.Request, rules.Unmatched) bool { return true }})
	w := auth(strict, "domain=shop&other=1")
	wantStatus(t, w, http.StatusTooManyRequests)
	if p := decode[problem.Document](t, w); p.Code != "unmatched" || w.Header().Get("RateLimit-Policy") != "" {
		t.Errorf("refused with %+v, %v", p, w.Header())
	}
}
