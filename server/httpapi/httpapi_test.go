package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/server/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {name: per-user, requests_per_unit: 10, unit: minute, algorithm: gcra, burst: 5}
  - key: path
    value: /login
    rate_limit: {name: login, requests_per_unit: 3, period: 10s, algorithm: sliding_log}
  - key: closed
    rate_limit: {name: shut, requests_per_unit: 0, unit: second, algorithm: gcra}
  - key: watched
    shadow_mode: true
    rate_limit: {name: trial, requests_per_unit: 1, unit: minute, algorithm: gcra}
  - key: plain
    rate_limit: {requests_per_unit: 2, unit: hour}
  - key: free
    rate_limit: {unlimited: true}
`

// answering is a taker that gives every act one error or every charge one
// decision.
type answering struct {
	err      error
	decision weir.Decision
}

func (f answering) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err = f.err
		for i := range a.Decisions {
			a.Decisions[i] = f.decision
		}
	}
}

// waiting is a taker that answers when its context ends.
type waiting struct{}

func (waiting) Take(ctx context.Context, acts []*weir.Act) {
	<-ctx.Done()
	for _, a := range acts {
		a.Err = fmt.Errorf("%w: %w", weir.ErrAmbiguous, ctx.Err())
	}
}

// frozen is a store in memory whose clock stands still.
func frozen() weir.Taker {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return memstore.New(memstore.Options{Now: func() time.Time { return at }})
}

func handler(t testing.TB, o Options) http.Handler {
	t.Helper()
	set, err := rules.Parse("shop.yaml", []byte(testRules))
	if err != nil {
		t.Fatal(err)
	}
	o.Rules = func() *rules.Set { return set }
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func auth(h http.Handler, query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, subRequest(query))
	return w
}

func take(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	h.ServeHTTP(w, r)
	return w
}

// takeOf is the body of a take for one-entry descriptors, key=value each.
func takeOf(rest string, entries ...string) string {
	var descriptors []string
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		descriptors = append(descriptors, fmt.Sprintf(`{"entries":[{"key":%q,"value":%q}]}`, key, value))
	}
	return `{"domain":"shop","descriptors":[` + strings.Join(descriptors, ",") + `]` + rest + `}`
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("body: %v", err)
	}
	return v
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Fatalf("got %d %s, want %d", w.Code, w.Body, want)
	}
}

func wantHeaders(t *testing.T, w *httptest.ResponseRecorder, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
}

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
	want := problem{
		Type: quotaExceeded, Title: "Quota exceeded", Status: 429,
		Detail:   `limit "per-user" (10/min burst 5) is used up; it has room in 6 s`,
		Violated: []string{"per-user"},
	}
	if diff := cmp.Diff(want, decode[problem](t, w)); diff != "" {
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

func TestNeverHasNoRetryAfter(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	w := auth(h, "domain=shop&user=x&cost=6")
	wantStatus(t, w, http.StatusTooManyRequests)
	wantHeaders(t, w, map[string]string{"Retry-After": "", "RateLimit": `"per-user";r=5`})
	if detail := decode[problem](t, w).Detail; !strings.Contains(detail, "never") {
		t.Errorf("detail: %s", detail)
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
}

func TestRefusalInPlainText(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	w := httptest.NewRecorder()
	r := subRequest("domain=shop&closed=1")
	r.Header.Set("Accept", "text/html")
	h.ServeHTTP(w, r)
	wantStatus(t, w, http.StatusTooManyRequests)
	wantHeaders(t, w, map[string]string{"Content-Type": "text/plain; charset=utf-8"})
}

func TestTake(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	const at = 1767323045000000
	user := limitAnswer{
		Name: "per-user", Key: "user", Algorithm: "gcra", Limit: 10,
		Granted: 2, Remaining: 3, ResetAfterMS: 12000, AtUS: at, Source: "store",
	}
	login := limitAnswer{
		Name: "login", Key: "path", Algorithm: "sliding_log", Limit: 3,
		Granted: 2, Remaining: 1, ResetAfterMS: 10000, AtUS: at, Source: "store",
	}

	w := take(h, takeOf(`,"cost":2`, "user=1", "free=x", "path=/login", "other=y"))
	wantStatus(t, w, http.StatusOK)
	want := takeAnswer{Allowed: true, Granted: 2, Limits: []limitAnswer{user, login}}
	if diff := cmp.Diff(want, decode[takeAnswer](t, w)); diff != "" {
		t.Fatalf("first (-want +got):\n%s", diff)
	}
	wantHeaders(t, w, map[string]string{
		"Content-Type":     "application/json",
		"RateLimit-Policy": `"per-user";q=10;w=60, "login";q=3;w=10`,
		"RateLimit":        `"per-user";r=3;t=12`,
	})

	w = take(h, takeOf(`,"cost":2`, "user=1", "path=/login"))
	wantStatus(t, w, http.StatusTooManyRequests)
	user.Granted, login.Granted, login.RetryAfterMS = 0, 0, 10000
	want = takeAnswer{Limits: []limitAnswer{user, login}}
	if diff := cmp.Diff(want, decode[takeAnswer](t, w)); diff != "" {
		t.Fatalf("second (-want +got):\n%s", diff)
	}
	wantHeaders(t, w, map[string]string{
		"Content-Type": "application/json",
		"RateLimit":    `"login";r=1;t=10`,
		"Retry-After":  "10",
	})
}

func TestTakeModes(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, step := range []struct {
		name, body string
		status     int
		granted    int64
		remaining  int64
	}{
		{"a look at a fresh key", takeOf(`,"cost":0`, "user=1"), 200, 0, 5},
		{"as many as fit", takeOf(`,"cost":3,"mode":"up_to"`, "user=1"), 200, 3, 2},
		{"fewer than asked", takeOf(`,"cost":3,"mode":"up_to"`, "user=1"), 200, 2, 0},
		{"none", takeOf(`,"cost":3,"mode":"up_to"`, "user=1"), 429, 0, 0},
		{"a look at a spent key", takeOf(`,"cost":0`, "user=1"), 200, 0, 0},
		{"the default", takeOf(``, "user=2"), 200, 1, 4},
	} {
		w := take(h, step.body)
		wantStatus(t, w, step.status)
		answer := decode[takeAnswer](t, w)
		if answer.Granted != step.granted || answer.Limits[0].Remaining != step.remaining {
			t.Errorf("%s: got %+v, want granted %d, remaining %d", step.name, answer, step.granted, step.remaining)
		}
	}
}

func TestTakeWithoutLimits(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: answering{err: errors.New("must not be asked")}})
	for _, body := range []string{takeOf(`,"cost":4`, "other=1"), takeOf(`,"cost":4`, "free=1"), takeOf(`,"cost":4,"mode":"up_to"`, "free=1")} {
		w := take(h, body)
		wantStatus(t, w, http.StatusOK)
		if got, want := w.Body.String(), `{"allowed":true,"granted":4,"id":"","limits":[]}`+"\n"; got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

func TestTakeNever(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	w := take(h, takeOf(`,"cost":6`, "user=1"))
	wantStatus(t, w, http.StatusTooManyRequests)
	if got := decode[takeAnswer](t, w).Limits[0].RetryAfterMS; got != -1 {
		t.Errorf("retry_after_ms: got %d, want -1", got)
	}
}

func TestTakeShadow(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	wantStatus(t, take(h, takeOf(``, "watched=1")), http.StatusOK)
	w := take(h, takeOf(``, "watched=1", "user=1"))
	wantStatus(t, w, http.StatusOK)
	answer := decode[takeAnswer](t, w)
	if !answer.Allowed || answer.Granted != 1 || answer.Limits[0].Source != "shadow" || answer.Limits[1].Source != "store" {
		t.Errorf("got %+v", answer)
	}
	wantHeaders(t, w, map[string]string{"RateLimit-Policy": `"per-user";q=10;w=60`, "X-RateLimit-Remaining": "4"})
}

// TestRoundsUp: a client that waits what it is told does not come too early.
func TestRoundsUp(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: answering{decision: weir.Decision{
		Outcome: weir.Refused, Source: weir.SourceStore,
		RetryAfter: 1001 * time.Microsecond, ResetAfter: 1999 * time.Microsecond, Delay: time.Microsecond, At: 7,
	}}})
	w := take(h, takeOf(``, "user=1"))
	wantStatus(t, w, http.StatusTooManyRequests)
	got := decode[takeAnswer](t, w).Limits[0]
	if got.RetryAfterMS != 2 || got.ResetAfterMS != 2 || got.DelayMS != 1 || got.AtUS != 7 {
		t.Errorf("got %+v", got)
	}
	wantHeaders(t, w, map[string]string{"Retry-After": "1"})
}

func TestTakeTransport(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	good := takeOf(``, "user=1")
	for name, test := range map[string]struct {
		method, contentType, body string
		status                    int
		field                     string
	}{
		"no content type":      {"POST", "", good, 200, ""},
		"json with parameters": {"POST", "application/json; charset=utf-8", good, 200, ""},
		"a json of its own":    {"POST", "application/vnd.shop+json", good, 200, ""},
		"a form":               {"POST", "application/x-www-form-urlencoded", good, 415, "content-type"},
		"nonsense":             {"POST", ";", good, 415, "content-type"},
		"too large":            {"POST", "", `{"domain":"` + strings.Repeat("x", maxBody) + `"}`, 413, "body"},
		"not supported yet":    {"POST", "", takeOf(`,"mode":"reserve"`, "user=1"), 400, "mode"},
		"too many entries":     {"POST", "", takeOf(``, "user="+strings.Repeat("x", 2000)), 400, "descriptors[0].entries[0].value"},
		"a GET":                {"GET", "", "", 405, ""},
		"a PUT":                {"PUT", "", good, 405, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			r := httptest.NewRequest(test.method, "/v1/take", strings.NewReader(test.body))
			if test.contentType != "" {
				r.Header.Set("Content-Type", test.contentType)
			}
			h.ServeHTTP(w, r)
			wantStatus(t, w, test.status)
			if test.field == "" {
				return
			}
			wantHeaders(t, w, map[string]string{"Content-Type": "application/problem+json"})
			if p := decode[problem](t, w); p.Field != test.field || p.Status != test.status || p.Type != "about:blank" || p.Title == "" {
				t.Errorf("got %+v, want field %s", p, test.field)
			}
		})
	}
}

func TestNotSupportedYetSaysSo(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for _, w := range []*httptest.ResponseRecorder{
		take(h, takeOf(`,"mode":"reserve"`, "user=1")),
		take(h, takeOf(`,"max_wait_ms":1`, "user=1")),
		take(h, takeOf(`,"id":"x"`, "user=1")),
		take(h, takeOf(`,"hold_ms":1`, "user=1")),
		auth(h, "domain=shop&user=1&id=x"),
	} {
		wantStatus(t, w, http.StatusBadRequest)
		if p := decode[problem](t, w); !strings.Contains(p.Detail, "not supported yet by this version") {
			t.Errorf("detail: %s", p.Detail)
		}
	}
}

func TestAuthRefusesOtherMethods(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/auth?domain=shop&user=1", nil))
	wantStatus(t, w, http.StatusMethodNotAllowed)
}

func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		status int
	}{
		"not applied":   {fmt.Errorf("dial: %w", weir.ErrNotApplied), 503},
		"ambiguous":     {weir.ErrAmbiguous, 503},
		"misconfigured": {weir.ErrMisconfigured, 503},
		"backend":       {weir.ErrBackend, 503},
		"no class":      {errors.New("odd"), 503},
		"invalid":       {fmt.Errorf("take: %w", weir.ErrInvalid), 400},
		"invalid field": {&weir.InvalidError{Field: "charges[0].cost", Value: "7", Want: "less"}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := handler(t, Options{Taker: answering{err: test.err}})
			for _, w := range []*httptest.ResponseRecorder{auth(h, "domain=shop&user=1"), take(h, takeOf(``, "user=1"))} {
				wantStatus(t, w, test.status)
				retry := ""
				if test.status == 503 {
					retry = "1"
				}
				wantHeaders(t, w, map[string]string{"Retry-After": retry, "Content-Type": "application/problem+json", "RateLimit": ""})
				if p := decode[problem](t, w); p.Status != test.status {
					t.Errorf("problem: %+v", p)
				}
			}
		})
	}
}

func TestStoreFailureIsLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		h := handler(t, Options{
			Taker:  answering{err: weir.ErrNotApplied},
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		for range 3 {
			auth(h, "domain=shop&user=1")
			auth(h, "domain=shop&user=2")
			time.Sleep(time.Second)
		}
		if n := strings.Count(logged.String(), "\n"); n != 3 {
			t.Errorf("six failures in three seconds logged %d lines:\n%s", n, &logged)
		}
	})
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: waiting{}, Timeout: time.Millisecond})
	wantStatus(t, auth(h, "domain=shop&user=1"), http.StatusServiceUnavailable)
}

// TestWithoutAlgorithm: rules of envoyproxy/ratelimit are answered too, each by
// itself.
func TestWithoutAlgorithm(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for i := range 3 {
		w := take(h, takeOf(``, "plain=1", "user=1"))
		status := http.StatusOK
		if i == 2 {
			status = http.StatusTooManyRequests
		}
		wantStatus(t, w, status)
		answer := decode[takeAnswer](t, w)
		if len(answer.Limits) != 2 || answer.Limits[1].Granted != 1 || answer.Allowed != (i < 2) {
			t.Errorf("call %d: got %+v", i, answer)
		}
	}
}

func BenchmarkAuth(b *testing.B) {
	h := handler(b, Options{Taker: memstore.New(memstore.Options{})})
	r := subRequest("domain=shop&from=user=X-User")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func BenchmarkTake(b *testing.B) {
	h := handler(b, Options{Taker: memstore.New(memstore.Options{})})
	body := takeOf(``, "user=1", "path=/login")
	b.ReportAllocs()
	for b.Loop() {
		take(h, body)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var storeErr error
	h := handler(t, Options{Taker: frozen(), Ready: func(context.Context) []Check {
		return []Check{{Name: "serving"}, {Name: "store", Err: storeErr}}
	}})
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	w := get("/healthz")
	wantStatus(t, w, http.StatusOK)
	if body, _ := io.ReadAll(w.Body); string(body) != "ok\n" {
		t.Errorf("healthz: %q", body)
	}
	w = get("/readyz")
	wantStatus(t, w, http.StatusOK)
	if got, want := w.Body.String(), `{"ready":true,"checks":[{"name":"serving","ok":true},{"name":"store","ok":true}]}`+"\n"; got != want {
		t.Errorf("readyz: %s", got)
	}
	storeErr = errors.New("connection refused")
	w = get("/readyz")
	wantStatus(t, w, http.StatusServiceUnavailable)
	if got, want := w.Body.String(), `{"ready":false,"checks":[{"name":"serving","ok":true},{"name":"store","ok":false,"detail":"connection refused"}]}`+"\n"; got != want {
		t.Errorf("readyz: %s", got)
	}
	storeErr = nil
	wantStatus(t, get("/healthz"), http.StatusOK)
}

func TestNewNamesTheOption(t *testing.T) {
	t.Parallel()
	rulesOf := func() *rules.Set { return nil }
	for field, o := range map[string]Options{
		"Rules":   {Taker: answering{}},
		"Taker":   {Rules: rulesOf},
		"Timeout": {Rules: rulesOf, Taker: answering{}, Timeout: -1},
		"Headers": {Rules: rulesOf, Taker: answering{}, Headers: 9},
	} {
		_, err := New(o)
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("got %v, want an error that names %s", err, field)
		}
	}
}
