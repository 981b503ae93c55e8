package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/problem"
)

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
				if p := decode[problem.Document](t, w); p.Status != test.status {
					t.Errorf("problem: %+v", p)
				}
			}
		})
	}
}

// TestKeptActs: an act that ends a charge and will be delivered is accepted, unless its answer has
// numbers.
func TestKeptActs(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: answering{err: &acts.KeptError{Kind: acts.KindRelease, Reason: weir.ErrNotApplied}}})
	for kind, want := range map[string]string{
		"release": `{"pending":true}`, "refund": `{"pending":true}`, "settle": "it will get this, repeat it for the numbers",
	} {
		cost := `,"cost":1`
		status := http.StatusAccepted
		switch kind {
		case "release":
			cost = ""
		case "settle":
			status = http.StatusServiceUnavailable
		}
		w := post(h, kind, takeOf(`,"id":"x"`+cost, "user=1"))
		wantStatus(t, w, status)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", kind, w.Body)
		}
	}
}

func TestStoreFailureIsLogged(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	h := handler(t, Options{Taker: answering{err: weir.ErrNotApplied}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	auth(h, "domain=shop&user=1")
	if want := `msg="the store reached no decision" path=/v1/auth error="not applied"`; strings.Count(logged.String(), want) != 1 {
		t.Errorf("logged: %s", &logged)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: waiting{}, Timeout: time.Millisecond})
	wantStatus(t, auth(h, "domain=shop&user=1"), http.StatusServiceUnavailable)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var storeErr error
	options := Options{Taker: frozen(), Ready: func(context.Context) []Check {
		return []Check{{Name: "serving"}, {Name: "store", Err: storeErr}}
	}, Trusted: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer known" }}
	h := handler(t, options)
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
	if got, want := w.Body.String(), `{"ready":true,"state":"healthy","checks":[{"name":"serving","ok":true},{"name":"store","ok":true}]}`+"\n"; got != want {
		t.Errorf("readyz: %s", got)
	}
	storeErr = errors.New("connection refused")
	w = get("/readyz")
	wantStatus(t, w, http.StatusServiceUnavailable)
	if got, want := w.Body.String(), `{"ready":false,"state":"not ready","checks":[{"name":"serving","ok":true},{"name":"store","ok":false}]}`+"\n"; got != want {
		t.Errorf("readyz: %s", got)
	}
	trusted := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	trusted.Header.Set("Authorization", "Bearer known")
	for name, h := range map[string]http.Handler{"trusted": h, "administrators": Readiness(options)} {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, trusted)
		wantStatus(t, w, http.StatusServiceUnavailable)
		if got, want := w.Body.String(), `{"ready":false,"state":"not ready","checks":[{"name":"serving","ok":true},{"name":"store","ok":false,"detail":"connection refused"}]}`+"\n"; got != want {
			t.Errorf("readyz, %s: %s", name, got)
		}
	}
	storeErr = nil
	wantStatus(t, get("/healthz"), http.StatusOK)
}
