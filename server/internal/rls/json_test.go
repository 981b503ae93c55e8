package rls_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/rls"
)

func post(s *rls.Service, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.JSON(nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
	return w
}

// TestJSON: proto3's JSON in and out, one call after the other.
func TestJSON(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	clock.Set(midday)
	s := newService(t, theirs, rls.Options{Now: clock.Now, Taker: memengine.New(memengine.Options{Now: clock.Now})})
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{
			`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`,
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE","name":"three"},"limitRemaining":2,"durationUntilReset":"56s"}]}`, 200,
		},
		{
			`{"domain":"d","hits_addend":"2","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`,
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE","name":"three"},"durationUntilReset":"56s"}]}`, 200,
		},
		{
			`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}],"hitsAddend":1}]}`,
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE","name":"three"},"durationUntilReset":"56s"}]}`, 429,
		},
		{
			`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"2"}],"limit":{"requestsPerUnit":1,"unit":3,"unitMultiplier":2}}]}`,
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"HOUR","unitMultiplier":2},"durationUntilReset":"7196s"}]}`, 200,
		},
		{`{"domain":"x","descriptors":[{}]}`, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`, 200},
	} {
		w := post(s, c.body)
		var got, want any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s: %v: %s", c.body, err, w.Body)
		}
		if diff := cmp.Diff(want, got); diff != "" || w.Code != c.status || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s", c.body, w.Code, w.Header(), diff)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	t.Parallel()
	s := newService(t, theirs, rls.Options{Taker: memengine.New(memengine.Options{})})
	for body, want := range map[string]int{
		``:                                     400,
		`null`:                                 400,
		`[]`:                                   400,
		`{"domain":"d","descriptors":[{}]} {}`: 400,
		`{"domain":"d","descriptors":[{}],"unknown":1}`: 400,
		`{"domain":"d"}`:       400,
		`{"descriptors":[{}]}`: 400,
		`{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"unit":0}}]}`:      400,
		`{"domain":"d","hitsAddend":-1,"descriptors":[{}]}`:                                400,
		`{"domain":"` + strings.Repeat("x", rls.MaxRequestBytes) + `","descriptors":[{}]}`: 413,
	} {
		if w := post(s, body); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%.80s: %d %v, want %d", body, w.Code, w.Header(), want)
		}
	}
}

// TestJSONIsOutlined: see httpapi's TestBodiesAreOutlined.
func TestJSONIsOutlined(t *testing.T) {
	t.Parallel()
	s := newService(t, theirs, rls.Options{Taker: memengine.New(memengine.Options{}), Budget: admission.NewBudget(128 << 10)})
	for body, want := range map[string]int{
		strings.Repeat(`{"entries":[{}]},`, 300):              503,
		strings.Repeat(`{},`, 2000):                           400,
		`{"entries":[` + strings.Repeat(`{},`, 600) + `{}]},`: 400,
	} {
		if w := post(s, `{"domain":"d","descriptors":[`+strings.TrimSuffix(body, ",")+`]}`); w.Code != want {
			t.Errorf("%.40s: %d, want %d", body, w.Code, want)
		}
	}
}

func TestJSONFailure(t *testing.T) {
	t.Parallel()
	const body = `{"domain":"d","descriptors":[{"entries":[{"key":"a"}]}]}`
	fails := func(_ context.Context, a *weir.Act) { a.Err = fmt.Errorf("secret: %w", weir.ErrNotApplied) }
	w := post(newService(t, theirs, rls.Options{Taker: taker(fails)}), body)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a store that fails: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
