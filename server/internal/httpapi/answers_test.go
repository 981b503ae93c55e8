package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// TestEveryKindAnswersAlike: what can go wrong with a body goes wrong in the same
// way whatever it asks.
func TestEveryKindAnswersAlike(t *testing.T) {
	t.Parallel()
	failing := handler(t, Options{Taker: answering{err: fmt.Errorf("%w: gone", weir.ErrNotApplied)}})
	ended := handler(t, Options{Taker: answering{err: weir.ErrReleased}})
	for kind, rest := range map[string]string{
		"take": `,"id":"a"`, "refund": `,"id":"a","cost":1`, "settle": `,"id":"a","cost":1`, "release": `,"id":"a"`, "renew": `,"id":"a"`,
		"record": `,"cost":1`, "reset": ``,
	} {
		body := takeOf(rest, "user=1")
		if !strings.Contains(rest, `"id"`) {
			body = `{"limits":[{"key":"k","limit":"1/s"}]` + rest + "}"
		} else {
			wantStatus(t, post(ended, kind, body), http.StatusConflict)
		}
		wantStatus(t, post(failing, kind, body), http.StatusServiceUnavailable)
		wantStatus(t, post(failing, kind, body+strings.Repeat(" ", maxBody)), http.StatusRequestEntityTooLarge)
		r := httptest.NewRequest(http.MethodPost, "/v1/"+kind, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/xml")
		w := httptest.NewRecorder()
		failing.ServeHTTP(w, r)
		wantStatus(t, w, http.StatusUnsupportedMediaType)
	}
}

// TestHeadIsGet: a proxy that keeps its client's method gets the same decisions.
func TestHeadIsGet(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for range 5 {
		wantStatus(t, head(h, "/v1/auth?domain=shop&user=1"), http.StatusNoContent)
	}
	wantStatus(t, head(h, "/v1/auth?domain=shop&user=1"), http.StatusTooManyRequests)
	wantStatus(t, head(h, "/v1/auth?domain=shop&user=1&deny=403"), http.StatusForbidden)
	wantStatus(t, auth(h, "domain=shop&user=1"), http.StatusTooManyRequests)
	for err, status := range map[error]int{weir.ErrIDReused: http.StatusConflict, errors.New("gone"): http.StatusServiceUnavailable} {
		wantStatus(t, head(handler(t, Options{Taker: answering{err: err}}), "/v1/auth?domain=shop&user=1&id=a"), status)
	}
	sick := handler(t, Options{Taker: frozen(), Ready: oneCheck(errors.New("away"))})
	wantStatus(t, head(sick, "/readyz"), http.StatusServiceUnavailable)
}

func head(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, target, nil))
	return w
}

// oneCheck is a readiness of one thing.
func oneCheck(err error) func(context.Context) []Check {
	return func(context.Context) []Check { return []Check{{Name: "store", Err: err}} }
}
