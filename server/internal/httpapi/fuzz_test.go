package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/rules"
)

// wantBlamed demands that a mistake is one of the request's, and told in short.
func wantBlamed(t *testing.T, err error) {
	t.Helper()
	p := problem.Of(err)
	if !errors.Is(err, weir.ErrInvalid) || p == nil || p.Status != http.StatusBadRequest || p.Field == "" || len(p.Detail) > 1000 {
		t.Errorf("%d, field %q: %.200s (%T)", p.Status, p.Field, p.Detail, err)
	}
}

// FuzzParseAct: a body is understood, within the bounds, or told what is wrong.
func FuzzParseAct(f *testing.F) {
	for _, rest := range []string{
		`,"cost":3,"mode":"up_to"`, `,"cost":1,"mode":"up_to","id":"a","hold_ms":1`, `,"cost":1,"id":"a"`,
		`,"max_wait_ms":1,"mode":"reserve"`, `,"mode":"reserve","max_wait_ms":5,"id":"a","hold_ms":9`,
	} {
		f.Add([]byte(takeOf(rest, "user=1", "path=/")))
	}
	f.Add([]byte(`{"domain":"d","descriptors":[{}],"cost":null}`))
	f.Add([]byte(`{"domain":"\u0000","descriptors":[[]]}`))
	f.Add([]byte(`[{"cost":1e9}]`))
	f.Add([]byte(` { "limits" : [ { "key" : "é" , "limit" : "5/min" , "name" : "n" , "cost" : 1 , "keep" : 0 } ] , "dry" : true , "record" : false } `))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, kind := range []weir.Kind{acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew} {
			var req *rules.Request
			var err error
			fuzztest.Within(t, fuzztest.MostBytes, len(body), func() { req, err = parseAct(t, body, kind) })
			if err != nil {
				wantBlamed(t, err)
				continue
			}
			wantSound(t, body, req)
		}
	})
}

// wantSound wants an accepted request to be one that plans take.
func wantSound(t *testing.T, body []byte, req *rules.Request) {
	t.Helper()
	if !json.Valid(body) {
		t.Fatalf("%q: accepted, though not JSON", body)
	}
	if req.Domain == "" || req.Cost < 0 || req.Cost > weir.MaxCost || req.UpTo < 0 || req.UpTo != 0 && req.Cost != 1 {
		t.Fatalf("%q: accepted as %+v", body, req)
	}
	if req.Hold < 0 || req.Hold > weir.MaxWait || req.MaxWait < 0 || req.MaxWait > weir.MaxWait || req.Immediate && req.MaxWait > 0 {
		t.Fatalf("%q: accepted with times %+v", body, req)
	}
	if req.Kind != acts.KindTake && (req.ID == "" || req.UpTo != 0 || req.MaxWait != 0 || req.Immediate) {
		t.Fatalf("%q: accepted as a %v %+v", body, req.Kind, req)
	}
	if len(req.Descriptors) == 0 {
		t.Fatalf("%q: accepted without descriptors", body)
	}
	for _, entries := range req.Descriptors {
		if len(entries) == 0 {
			t.Fatalf("%q: accepted without entries", body)
		}
		for _, e := range entries {
			if !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value) {
				t.Fatalf("%q: an entry is not what was sent: %q", body, e)
			}
		}
	}
}

// FuzzParseQuery: a query is understood or told what is wrong, means the same to the
// standard library's reader, which does not keep the order, and never looks for free.
// The header's value is the client's, and stays in the entry it is for.
func FuzzParseQuery(f *testing.F) {
	for _, query := range []string{
		"domain=d&user=42", "domain=d&from=user=X-User&cost=3", "domain=d&entry=a%3Db=c", "&&=", "domain=d&a;b=%zz",
		"domain=d&a=1&and&optional=user=X-User&b=2", "domain=d&optional=a=Host&and&and&c=",
		"domain=shop&user=1&cost=5&deny=403&id=a", "domain=shop&from=user%3DX-User&a=%zz", "from=ip=client_ip&&domain=",
	} {
		for _, header := range []string{"1", "a&cost=0", "\xff", ""} {
			f.Add(query, header)
		}
	}
	f.Fuzz(func(t *testing.T, raw, header string) {
		r := subRequest("")
		r.URL.RawQuery = raw
		r.Header["X-User"] = []string{header}
		var q *query
		var err error
		fuzztest.Within(t, fuzztest.MostBytes, len(raw)+len(header), func() { q, err = parseQuery(r) })
		if err != nil {
			wantBlamed(t, err)
			return
		}
		wantSoundQuery(t, raw, q)
		r.Header["X-User"] = []string{"another"}
		again, err := parseQuery(r)
		if err != nil || again.domain != q.domain || again.cost != q.cost || again.deny != q.deny || again.id != q.id || !q.left && header != "" && shape(again) != shape(q) {
			t.Errorf("a header changed more than a value: %+v, %+v, %v", q, again, err)
		}
	})
}

// shape is the keys of the descriptors of a query.
func shape(q *query) string {
	var b strings.Builder
	for _, entries := range q.before {
		for _, e := range entries {
			fmt.Fprintf(&b, "%q,", e.Key)
		}
		b.WriteString(";")
	}
	return b.String()
}

func wantSoundQuery(t *testing.T, raw string, q *query) {
	t.Helper()
	if q.domain == "" || len(q.before) == 0 && !q.left || q.cost < 1 || q.cost > weir.MaxCost || q.deny != http.StatusForbidden && q.deny != http.StatusTooManyRequests {
		t.Errorf("%q: accepted as %+v", raw, q)
	}
	for _, entries := range q.before {
		keys := map[string]bool{}
		for _, e := range entries {
			if keys[e.Key] {
				t.Errorf("%q: %q twice", raw, e.Key)
			}
			keys[e.Key] = true
		}
	}
	if strings.Contains(raw, ";") {
		return // the standard library refuses these
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		t.Fatalf("%q: accepted, though %v", raw, err)
	}
	if got := values["domain"]; len(got) != 1 || got[0] != q.domain {
		t.Fatalf("%q: domain %q, want %q", raw, q.domain, got)
	}
}
