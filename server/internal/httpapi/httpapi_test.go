package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(described{m}) }

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
  - key: batch
    rate_limit: {name: batch, requests_per_unit: 10, unit: minute, algorithm: gcra, keep: 4}
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
	return memengine.New(memengine.Options{Now: func() time.Time { return at }})
}

func handler(t testing.TB, o Options) http.Handler {
	t.Helper()
	return handlerOf(t, testRules, o)
}

// handlerOf is handler with rules of the test's own.
func handlerOf(t testing.TB, text string, o Options) http.Handler {
	t.Helper()
	set := rules.MustParse("shop.yaml", text)
	o.Rules = func() *rules.Set { return set }
	h := New(o)
	if _, measured := t.(*testing.B); measured {
		return h
	}
	return document().Handler(t, h)
}

func auth(h http.Handler, query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, subRequest(query))
	return w
}

func take(h http.Handler, body string) *httptest.ResponseRecorder { return post(h, "take", body) }

// post asks for one kind of act.
func post(h http.Handler, kind, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/"+kind, strings.NewReader(body))
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
