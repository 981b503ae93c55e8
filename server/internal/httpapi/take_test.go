package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/admission"
)

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
	want := actAnswer{Allowed: true, Granted: 2, Limits: []limitAnswer{user, login}}
	if diff := cmp.Diff(want, decode[actAnswer](t, w)); diff != "" {
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
	want = actAnswer{Limits: []limitAnswer{user, login}}
	if diff := cmp.Diff(want, decode[actAnswer](t, w)); diff != "" {
		t.Fatalf("second (-want +got):\n%s", diff)
	}
	wantHeaders(t, w, map[string]string{
		"Content-Type": "application/json",
		"RateLimit":    `"login";r=1;t=10`,
		"Retry-After":  "10",
	})
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

// TestRoundsUp: a client that waits what it is told does not come too early.
func TestRoundsUp(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: answering{decision: weir.Decision{
		Outcome: weir.Refused, Source: acts.SourceStore,
		RetryAfter: 1001 * time.Microsecond, ResetAfter: 1999 * time.Microsecond, Delay: time.Microsecond, At: time.UnixMicro(7),
	}}})
	w := take(h, takeOf(``, "user=1"))
	wantStatus(t, w, http.StatusTooManyRequests)
	got := decode[actAnswer](t, w).Limits[0]
	if got.RetryAfterMS != 2 || got.ResetAfterMS != 2 || got.DelayMS != 1 || got.AtUS != 7 {
		t.Errorf("got %+v", got)
	}
	wantHeaders(t, w, map[string]string{"Retry-After": "1"})
}

// TestBodiesAreOutlined: what a request says too often is refused before it is decoded, and
// decoding is charged to the budget.
func TestBodiesAreOutlined(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen(), Budget: admission.NewBudget(128 << 10)})
	descriptors := func(n int, text string) string {
		return `{"domain":"shop","descriptors":[` + strings.Repeat(text+",", n-1) + text + `]}`
	}
	for body, want := range map[string]problem.Document{
		descriptors(300, `{"entries":[{}]}`):                             {Status: 503, Code: "request_memory"},
		descriptors(2000, `{}`):                                          {Status: 400, Field: "descriptors"},
		descriptors(1, `{"entries":[`+strings.Repeat(`{},`, 600)+`{}]}`): {Status: 400, Field: "descriptors[0].entries"},
		strings.Repeat("[", 1000):                                        {Status: 400, Field: "body", Detail: "body is nested too deeply: want one JSON object"},
	} {
		p := decode[problem.Document](t, take(h, body))
		if p.Status != want.Status || p.Code != want.Code || p.Field != want.Field || want.Detail != "" && p.Detail != want.Detail {
			t.Errorf("%.40s: got %+v, want %+v", body, p, want)
		}
	}
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
		"plain text":           {"POST", "text/plain;charset=UTF-8", good, 200, ""},
		"JSON that curl sends": {"POST", "application/x-www-form-urlencoded", good, 200, ""},
		"another charset":      {"POST", "application/json; charset=iso-8859-1", good, 415, "content-type"},
		"another type":         {"POST", "text/xml", good, 415, "content-type"},
		"a form with files":    {"POST", "multipart/form-data; boundary=x", good, 415, "content-type"},
		"a form":               {"POST", "application/x-www-form-urlencoded", "domain=shop", 400, "body"},
		"nonsense":             {"POST", ";", good, 415, "content-type"},
		"too large":            {"POST", "", `{"domain":"` + strings.Repeat("x", maxBody) + `"}`, 413, "body"},
		"a wait without end":   {"POST", "", takeOf(`,"mode":"reserve"`, "user=1"), 400, "max_wait_ms"},
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
			if p := decode[problem.Document](t, w); p.Field != test.field || p.Status != test.status || p.Type != "about:blank" || p.Title == "" {
				t.Errorf("got %+v, want field %s", p, test.field)
			}
		})
	}
}

// TestEncodedBodies: a body that is declared as encoded is not read as if it were plain.
func TestEncodedBodies(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	for coding, want := range map[string]int{"gzip": 415, "identity": 200, "identity, br": 415, "x": 415} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(takeOf(``, "user=1")))
		r.Header.Set("Content-Encoding", coding)
		h.ServeHTTP(w, r)
		wantStatus(t, w, want)
		if want != http.StatusUnsupportedMediaType {
			continue
		}
		if p := decode[problem.Document](t, w); p.Field != "content-encoding" {
			t.Errorf("%s: %+v", coding, p)
		}
	}
}

func TestTakeCutShort(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen()})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", iotest.ErrReader(io.ErrUnexpectedEOF)))
	wantStatus(t, w, http.StatusBadRequest)
	if p := decode[problem.Document](t, w); p.Field != "body" {
		t.Errorf("got %+v", p)
	}
}
