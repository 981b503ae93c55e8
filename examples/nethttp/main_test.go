package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// site is the example over a store whose clock stands.
func site(t *testing.T) http.Handler {
	t.Helper()
	h, err := newSite(memstore.New(memstore.Options{Now: storetest.NewClock().Now}))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(h http.Handler, user, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("User", user)
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBothBudgets(t *testing.T) {
	t.Parallel()
	h := site(t)
	for i, step := range []struct {
		user, address string
		status        int
		body          string
	}{
		// One user, wherever they are.
		{"1", "192.0.2.1:1", 200, "hello, user 1\n"},
		{"1", "192.0.2.1:2", 200, "hello, user 1\n"},
		{"1", "192.0.2.2:1", 200, "hello, user 1\n"},
		{"1", "192.0.2.2:1", 200, "hello, user 1\n"},
		{"1", "192.0.2.2:1", 200, "hello, user 1\n"},
		{"1", "192.0.2.1:1", 429, "too many requests of this user\n"},
		{"1", "192.0.2.1:1", 429, "too many requests of this user\n"},
		// Refused requests were not charged to the address: 6 of 8 are left.
		{"2", "192.0.2.1:1", 200, "hello, user 2\n"},
		{"3", "192.0.2.1:1", 200, "hello, user 3\n"},
		{"4", "192.0.2.1:1", 200, "hello, user 4\n"},
		{"5", "192.0.2.1:1", 200, "hello, user 5\n"},
		{"6", "192.0.2.1:1", 200, "hello, user 6\n"},
		{"7", "192.0.2.1:1", 200, "hello, user 7\n"},
		{"8", "192.0.2.1:1", 429, "too many requests of this address\n"},
		// Nor was the last to the user.
		{"8", "192.0.2.3:1", 200, "hello, user 8\n"},
	} {
		w := get(h, step.user, step.address)
		if w.Code != step.status || w.Body.String() != step.body {
			t.Errorf("request %d: %d %q, want %d %q", i, w.Code, w.Body, step.status, step.body)
		}
		if got := w.Header().Get("Retry-After"); (got == "1") != (step.status == 429) {
			t.Errorf("request %d: Retry-After %q", i, got)
		}
		if got := w.Header().Get("RateLimit-Policy"); got != `"500/s";q=500;w=1` {
			t.Errorf("request %d: RateLimit-Policy %q", i, got)
		}
	}
}

func TestWholeSite(t *testing.T) {
	t.Parallel()
	h := site(t)
	for range 500 {
		get(h, "1", "192.0.2.1:1")
	}
	w := get(h, "9", "192.0.2.9:1")
	if w.Code != 429 || w.Header().Get("RateLimit") != `"500/s";r=0;t=1` {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
