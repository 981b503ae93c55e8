package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestIDHeader wants the caller's own id back, in the header only where it can
// stand there.
func TestIDHeader(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, actRules, Options{Taker: frozen()})
	for id, header := range map[string]string{"job-7%": "job-7%", "a b": "", "größe": "", "a\r\nSet-Cookie: b": "", "\x7f": ""} {
		quoted, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		w := take(h, takeOf(`,"id":`+string(quoted), "tokens=1"))
		wantStatus(t, w, http.StatusOK)
		wantHeaders(t, w, map[string]string{"Weir-Id": header})
		if got := decode[actAnswer](t, w).ID; got != id {
			t.Errorf("got %q, want %q", got, id)
		}
	}
}

// TestAuthHolds asks as a proxy does: for a place, which a program gives back.
func TestAuthHolds(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	h := handlerOf(t, actRules, Options{Taker: memengine.New(memengine.Options{Now: clock.Now})})
	wantAuth := func(query string, status int, headers map[string]string) string {
		t.Helper()
		w := auth(h, query)
		wantStatus(t, w, status)
		wantHeaders(t, w, headers)
		return w.Header().Get("Weir-Id")
	}
	made := wantAuth("domain=shop&places=1", 204, map[string]string{
		"RateLimit-Policy": `"places";q=2;qu="concurrent-requests"`, "RateLimit": `"places";r=1`, "X-RateLimit-Limit": "2",
	})
	wantAuth("domain=shop&places=1&id=b", 204, map[string]string{"Weir-Id": "b", "RateLimit": `"places";r=0`})
	wantAuth("domain=shop&places=1&id=b", 204, map[string]string{"Weir-Id": "b"})
	wantAuth("domain=shop&places=1&id=", 429, map[string]string{"RateLimit": `"places";r=0;t=1`, "Retry-After": "1"})
	wantStatus(t, post(h, "release", takeOf(fmt.Sprintf(`,"id":%q`, made), "places=1")), http.StatusOK)
	wantAuth("domain=shop&places=1&id=c", 204, map[string]string{"Weir-Id": "c"})
	wantAuth("domain=shop&places=1&id=b&cost=2", http.StatusConflict, nil) // whatever the limits count
	wantAuth("domain=shop&places=1&id=b", 204, map[string]string{"Weir-Id": "b"})
	clock.Advance(30 * time.Second)
	wantAuth("domain=shop&places=1&id=d", 204, map[string]string{"RateLimit": `"places";r=1`})
}

// TestAuthDoesNotWait wants a leaky bucket to refuse what it would have to queue,
// and the headers to say so.
func TestAuthDoesNotWait(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, actRules, Options{Taker: frozen()})
	w := auth(h, "domain=shop&leaky=1")
	wantStatus(t, w, http.StatusNoContent)
	wantHeaders(t, w, map[string]string{
		"RateLimit-Policy": `"leaky";q=10;w=60`, "RateLimit": `"leaky";r=0;t=6`, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "6",
	})
	w = auth(h, "domain=shop&leaky=1")
	wantStatus(t, w, http.StatusTooManyRequests)
	wantHeaders(t, w, map[string]string{"RateLimit": `"leaky";r=0;t=6`, "Retry-After": "6"})
	wantStatus(t, auth(h, "domain=shop&tokens=1&id=x"), http.StatusNoContent)
	long := auth(h, "domain=shop&tokens=1&id="+fmt.Sprintf("%0129d", 1))
	wantStatus(t, long, http.StatusBadRequest)
	if p := decode[problem.Document](t, long); p.Field != "id" {
		t.Errorf("got %+v", p)
	}
}

// TestIDProblems wants each of the library's errors of ids to have a status and a
// code of its own, which no failure of the store is.
func TestIDProblems(t *testing.T) {
	t.Parallel()
	for err, want := range map[weir.IDError]struct {
		status int
		code   string
	}{
		weir.ErrUnknownID:  {404, "unknown_id"},
		weir.ErrIDReused:   {409, "id_reused"},
		weir.ErrSettled:    {409, "settled"},
		weir.ErrReleased:   {409, "released"},
		weir.ErrOverRefund: {422, "over_refund"},
		weir.ErrBusyID:     {409, "busy"},
		weir.IDError(99):   {400, ""},
	} {
		h := handler(t, Options{Taker: answering{err: fmt.Errorf("weir: settle: %w", err)}})
		answers := []*httptest.ResponseRecorder{post(h, "refund", takeOf(`,"id":"a","cost":1`, "user=1"))}
		if want.status == 400 || want.status == 409 { // no take is about another one
			answers = append(answers, auth(h, "domain=shop&user=1"), take(h, takeOf(`,"id":"a"`, "user=1")))
		}
		for _, w := range answers {
			wantStatus(t, w, want.status)
			wantHeaders(t, w, map[string]string{"Retry-After": "", "Content-Type": "application/problem+json"})
			if p := decode[problem.Document](t, w); p.Code != want.code || p.Detail == "" || p.Title == "" || p.Status != want.status {
				t.Errorf("%v: got %+v", err, p)
			}
		}
	}
}
