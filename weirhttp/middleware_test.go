package weirhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// frozen is a store whose clock stands.
func frozen() weir.Taker {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return memstore.New(memstore.Options{Now: func() time.Time { return now }})
}

func newLimiter(t testing.TB, taker weir.Taker, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	return limiterNamed(t, taker, "test", limits...)
}

func limiterNamed(t testing.TB, taker weir.Taker, name string, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(taker, name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var named = weir.Limit{Name: `per "client"`, Count: 2, Period: time.Minute}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// get sends a GET and returns the answer.
func get(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/a/b?c=d", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func from(peer string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = peer }
}

func TestMiddlewareAnswers(t *testing.T) {
	t.Parallel()
	xRateLimit := map[string]string{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60"}
	for name, test := range map[string]struct {
		style   weirhttp.HeaderStyle
		headers map[string]string
		body    map[string]any
	}{
		"draft-11": {
			weirhttp.HeadersDraft11,
			map[string]string{"Ratelimit-Policy": `"per \"client\"";q=2;w=60`, "Ratelimit": `"per \"client\"";r=0;t=30`},
			map[string]any{"detail": "there is room again in 30 s"},
		},
		"x-ratelimit": {weirhttp.HeadersXRateLimit, nil, map[string]any{"detail": "there is room again in 30 s"}},
		"none":        {weirhttp.HeadersNone, nil, map[string]any{"detail": "too many requests"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := weirhttp.Middleware(newLimiter(t, frozen(), named), weirhttp.Options{Headers: test.style})(http.HandlerFunc(ok))
			for range 2 {
				if w := get(h); w.Code != 200 || w.Body.String() != "hello" || w.Header().Get("Retry-After") != "" {
					t.Fatalf("granted: %d %s %v", w.Code, w.Body, w.Header())
				}
			}
			w := get(h)
			want := map[string]string{"Retry-After": "30", "Cache-Control": "no-store", "Content-Type": "application/problem+json"}
			for _, more := range []map[string]string{test.headers, xRateLimit} {
				for header, value := range more {
					if test.style != weirhttp.HeadersNone {
						want[header] = value
					}
				}
			}
			got := map[string]string{}
			for header := range w.Header() {
				got[header] = w.Header().Get(header)
			}
			if diff := cmp.Diff(want, got); diff != "" || w.Code != 429 {
				t.Errorf("status %d, headers (-want +got):\n%s", w.Code, diff)
			}
			var body map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body["detail"] != test.body["detail"] || body["status"] != 429.0 {
				t.Errorf("body %v, %v", body, err)
			}
		})
	}
}

func TestRefusalInText(t *testing.T) {
	t.Parallel()
	h := weirhttp.Middleware(newLimiter(t, frozen(), weir.PerMinute(1)), weirhttp.Options{
		Cost: func(*http.Request) int64 { return 5 },
	})(http.HandlerFunc(ok))
	w := get(h, func(r *http.Request) { r.Header.Set("Accept", "text/html") })
	want := "Quota exceeded: the request costs more than the limit can ever grant\n"
	if w.Code != 429 || w.Body.String() != want || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	proxy := clientip.Must(clientip.TrustedHops(1))
	for name, test := range map[string]struct {
		key       weirhttp.KeyFunc
		one, two  func(*http.Request)
		different bool
	}{
		"default, port":       {nil, from("192.0.2.1:1"), from("192.0.2.1:2"), false},
		"default, address":    {nil, from("192.0.2.1:1"), from("192.0.2.2:1"), true},
		"default, network":    {nil, from("[2001:db8::1]:1"), from("[2001:db8::2]:1"), false},
		"default, no header":  {nil, set("X-Forwarded-For", "1.1.1.1"), set("X-Forwarded-For", "2.2.2.2"), false},
		"proxy":               {weirhttp.KeyByIP(proxy), set("X-Forwarded-For", "1.1.1.1"), set("X-Forwarded-For", "2.2.2.2"), true},
		"header":              {weirhttp.KeyByHeader("Authorization"), set("Authorization", "a"), set("authorization", "b"), true},
		"header, equal":       {weirhttp.KeyByHeader("Authorization"), set("Authorization", "a"), set("authorization", "a"), false},
		"header, absent":      {weirhttp.KeyByHeader("Authorization"), set("Authorization", "a"), set("X", "a"), true},
		"path":                {weirhttp.KeyByPath, func(r *http.Request) { r.URL.Path = "/x" }, set("a", "b"), true},
		"method":              {weirhttp.KeyByMethod, func(r *http.Request) { r.Method = "POST" }, set("a", "b"), true},
		"method, invented":    {weirhttp.KeyByMethod, func(r *http.Request) { r.Method = "GET1" }, func(r *http.Request) { r.Method = "GET2" }, false},
		"method, empty":       {weirhttp.KeyByMethod, func(r *http.Request) { r.Method = "" }, func(r *http.Request) { r.Method = "GET" }, false},
		"pattern":             {weirhttp.KeyByPattern, func(r *http.Request) { r.Pattern = "/{x}" }, func(r *http.Request) { r.Pattern = "/{y}" }, true},
		"unknown are one":     {nil, from("@"), from(""), false},
		"joined, one differs": {weirhttp.JoinKeys(weirhttp.KeyByMethod, weirhttp.KeyByPath), func(r *http.Request) { r.Method = "PUT" }, set("a", "b"), true},
		"joined, one unknown": {weirhttp.JoinKeys(weirhttp.KeyByIP(clientip.RemoteAddr()), weirhttp.KeyByPath), from("@"), from("x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := weirhttp.Middleware(newLimiter(t, frozen(), weir.PerMinute(1)), weirhttp.Options{Key: test.key})(http.HandlerFunc(ok))
			if w := get(h, test.one); w.Code != 200 {
				t.Fatalf("the first: %d", w.Code)
			}
			if w := get(h, test.two); (w.Code == 200) != test.different {
				t.Errorf("the second: %d", w.Code)
			}
		})
	}
}

func TestHeaderKeysAreNotStored(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Token", "secret")
	if key, err := weirhttp.KeyByHeader("X-Token")(r); err != nil || key == "" || strings.Contains(key, "secret") {
		t.Errorf("%q, %v", key, err)
	}
}

func TestSkipAndChoose(t *testing.T) {
	t.Parallel()
	store := frozen()
	plans := map[string]*weir.Limiter{"small": newLimiter(t, store, weir.PerMinute(1)), "large": newLimiter(t, store, weir.PerMinute(3))}
	h := weirhttp.MiddlewareFunc(func(r *http.Request) *weir.Limiter { return plans[r.Header.Get("Plan")] }, weirhttp.Options{
		Key:  weirhttp.KeyByHeader("Plan"),
		Skip: func(r *http.Request) bool { return r.Method == http.MethodOptions },
	})(http.HandlerFunc(ok))
	for plan, granted := range map[string]int{"small": 1, "large": 3, "none": 10} {
		set := func(r *http.Request) { r.Header.Set("Plan", plan) }
		skipped := func(r *http.Request) { r.Method = http.MethodOptions }
		for i := range 10 {
			if w := get(h, set, skipped); w.Body.String() != "hello" || w.Header().Get("RateLimit") != "" {
				t.Errorf("%s, skipped: %d %v", plan, w.Code, w.Header())
			}
			if w := get(h, set); (w.Body.String() == "hello") != (i < granted) {
				t.Errorf("%s, request %d: %d", plan, i, w.Code)
			}
		}
	}
}

// broken is a store that fails.
type broken struct{ err error }

func (b broken) Take(_ context.Context, acts []*weir.Act) {
	for _, act := range acts {
		act.Err = b.err
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		closed bool
		status int
		retry  string
	}{
		"open":            {weir.ErrNotApplied, false, 200, ""},
		"closed":          {weir.ErrNotApplied, true, 503, "1"},
		"ours":            {&weir.InvalidError{Field: "cost"}, false, 500, ""},
		"ours, closed":    {&weir.InvalidError{Field: "cost"}, true, 500, ""},
		"deadline passed": {context.DeadlineExceeded, false, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []error
			h := weirhttp.Middleware(newLimiter(t, broken{test.err}, weir.PerMinute(1)), weirhttp.Options{
				FailClosed: test.closed,
				OnError:    func(_ *http.Request, err error) { told = append(told, err) },
				Charge:     func(weirhttp.Response) int64 { return 7 },
			})(http.HandlerFunc(ok))
			w := get(h)
			passed, cached := w.Body.String() == "hello", w.Header().Get("Cache-Control") != "no-store"
			if passed != (test.status == 200) || passed != cached {
				t.Errorf("%s, cached: %t", w.Body, cached)
			}
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retry || w.Header().Get("RateLimit") != "" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			if len(told) != 1 || !errors.Is(told[0], test.err) {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestUnknownKeysAreTold(t *testing.T) {
	t.Parallel()
	var told error
	h := weirhttp.Middleware(newLimiter(t, frozen(), weir.PerMinute(1)), weirhttp.Options{
		OnError: func(_ *http.Request, err error) { told = err },
	})(http.HandlerFunc(ok))
	if w := get(h, from("@")); w.Code != 200 || !errors.Is(told, clientip.ErrNoAddress) {
		t.Errorf("%d, told %v", w.Code, told)
	}
}

func TestOnLimit(t *testing.T) {
	t.Parallel()
	h := weirhttp.Middleware(newLimiter(t, frozen(), named), weirhttp.Options{
		Cost: func(*http.Request) int64 { return 2 },
		OnLimit: func(w http.ResponseWriter, _ *http.Request, d weir.Decision) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, d.RetryAfter.String())
		},
	})(http.HandlerFunc(ok))
	get(h)
	if w := get(h); w.Code != http.StatusTeapot || w.Body.String() != "1m0s" || w.Header().Get("Retry-After") != "60" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

// TestNested has both of two middlewares tell their limits.
func TestNested(t *testing.T) {
	t.Parallel()
	store := frozen()
	inner := weirhttp.Middleware(limiterNamed(t, store, "inner", weir.PerMinute(5)), weirhttp.Options{})
	outer := weirhttp.Middleware(limiterNamed(t, store, "outer", weir.PerHour(50)), weirhttp.Options{})
	w := get(outer(inner(http.HandlerFunc(ok))))
	want := []string{`"50/h";r=49;t=72`, `"5/min";r=4;t=12`}
	if diff := cmp.Diff(want, w.Header().Values("RateLimit")); diff != "" || w.Header().Get("X-RateLimit-Limit") != "5" {
		t.Errorf("%v (-want +got):\n%s", w.Header(), diff)
	}
}

func TestMiddlewareNeedsALimiter(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(){
		"nil":          func() { weirhttp.Middleware(nil, weirhttp.Options{}) },
		"nil function": func() { weirhttp.MiddlewareFunc(nil, weirhttp.Options{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			build()
		}()
	}
}

// TestHeaderKey overrides and peeks at a key of the middleware by the value of its header.
func TestHeaderKey(t *testing.T) {
	t.Parallel()
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(5))
	if err != nil {
		t.Fatal(err)
	}
	handler := weirhttp.Middleware(limiter, weirhttp.Options{Key: weirhttp.KeyByHeader("Authorization")})(http.NotFoundHandler())
	ask := func() int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer secret")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	ask()
	key := weirhttp.HeaderKey("Bearer secret")
	if d, err := limiter.Peek(t.Context(), key); err != nil || d.Remaining != 4 {
		t.Errorf("after a request: %v, %v: want 4 remaining", d, err)
	}
	none := weir.PerMinute(0)
	if err := limiter.SetOverride(key, weir.Override{Limit: &none, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if code := ask(); code != http.StatusTooManyRequests {
		t.Errorf("a blocked token: %d, want 429", code)
	}
}
