package httpapi

import (
	"errors"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

// blamed demands that a mistake is one of the request's, and short.
func blamed(t *testing.T, err error) {
	t.Helper()
	p, failed := problemOf(err)
	if failed || p.Status != http.StatusBadRequest || p.Field == "" || len(p.Detail) > 1000 {
		t.Errorf("%d, field %q: %.200s", p.Status, p.Field, p.Detail)
	}
}

// FuzzParseAct: a body is understood, within the bounds, or told what is wrong.
func FuzzParseAct(f *testing.F) {
	f.Add(uint8(0), []byte(takeOf(`,"cost":1,"mode":"up_to","id":"a","hold_ms":1`, "user=1")))
	f.Add(uint8(1), []byte(takeOf(`,"cost":1,"id":"a"`, "user=1", "path=/")))
	f.Add(uint8(4), []byte(takeOf(`,"max_wait_ms":1,"mode":"reserve"`, "user=1")))
	f.Add(uint8(0), []byte(`{"domain":"\u0000","descriptors":[[]]}`))
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		kinds := []weir.Kind{weir.Take, weir.Refund, weir.Settle, weir.Release, weir.Renew}
		req, err := parseAct(text, kinds[int(kind)%len(kinds)])
		if err != nil {
			if !errors.Is(err, weir.ErrInvalid) {
				t.Errorf("got %T %v", err, err)
			}
			blamed(t, err)
			return
		}
		if req.Domain == "" || len(req.Descriptors) == 0 || req.Cost < 0 || req.Cost > weir.MaxCost || req.UpTo < 0 || req.MaxWait < 0 || req.Hold < 0 {
			t.Errorf("understood: %+v", req)
		}
		for _, d := range req.Descriptors {
			for _, e := range d {
				if !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value) {
					t.Errorf("an entry is not what was sent: %q", e)
				}
			}
		}
	})
}

// FuzzQueryIsNotOverruled: the same of a query, which never looks for free. The header's
// value is the client's, and stays in the entry it is for.
func FuzzQueryIsNotOverruled(f *testing.F) {
	f.Add("domain=shop&user=1&cost=5&deny=403&id=a", "1")
	f.Add("domain=shop&from=user=X-User&entry=cost=1", "a&cost=0")
	f.Add("domain=shop&from=user%3DX-User&a=%zz", "\xff")
	f.Add("from=ip=client_ip&&domain=", "")
	f.Fuzz(func(t *testing.T, raw, header string) {
		r := subRequest("")
		r.URL.RawQuery = raw
		r.Header["X-User"] = []string{header}
		q, err := parseQuery(r)
		if err != nil {
			blamed(t, err)
			return
		}
		if q.domain == "" || len(q.entries) == 0 || q.cost < 1 || q.cost > weir.MaxCost || q.deny != http.StatusForbidden && q.deny != http.StatusTooManyRequests {
			t.Errorf("understood: %+v", q)
		}
		keys := map[string]bool{}
		for _, e := range q.entries {
			if keys[e.Key] {
				t.Errorf("%q twice", e.Key)
			}
			keys[e.Key] = true
		}
		r.Header["X-User"] = []string{"another"}
		again, err := parseQuery(r)
		if err != nil || again.domain != q.domain || again.cost != q.cost || again.deny != q.deny || again.id != q.id || len(again.entries) != len(q.entries) {
			t.Errorf("a header changed more than a value: %+v, %+v, %v", q, again, err)
		}
	})
}
