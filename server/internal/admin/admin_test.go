package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rules"
)

const text = `
domain: shop
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 10, unit: hour, algorithm: gcra}
  - key: old
    rate_limit: {requests_per_unit: 3, unit: hour}
  - key: two
    rate_limits:
      - {name: short, requests_per_unit: 2, unit: second, algorithm: gcra}
      - {name: long, requests_per_unit: 100, unit: day, algorithm: sliding_log}
  - key: free
    rate_limit: {unlimited: true}
  - key: seat
    rate_limit: {requests_per_unit: 1, period: 60s, algorithm: concurrency}
  - key: watched
    rate_limit: {requests_per_unit: 1, unit: hour, algorithm: fixed_window}
    shadow_mode: true
`

// desk is the interface over a memory store, and what is behind it. The interface asks
// through a deny cache: what that remembers of one answer must not be the next one.
type desk struct {
	t *testing.T
	http.Handler
	taker *override.Layer
	clock *storetest.Clock
	set   *rules.Set
	log   bytes.Buffer
}

func open(t *testing.T, change func(*Options)) *desk {
	t.Helper()
	set := rules.MustParse("shop.yaml", text)
	clock := storetest.NewClock()
	d := &desk{t: t, clock: clock, set: set}
	d.taker = override.Wrap(memengine.New(memengine.Options{Now: clock.Now}), override.Options{Now: clock.Now, Max: 3})
	o := Options{
		Rules: func() *rules.Set { return set }, Taker: denycache.Wrap(d.taker, denycache.Options{}), Overrides: d.taker, Now: clock.Now, Loopback: true,
		ThrottleKey: func(key string) string { return "cl.throttle;" + key },
		Logger:      slog.New(slog.NewJSONHandler(&d.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	d.Handler = New(o)
	return d
}

// openRules is open with other rules.
func openRules(t *testing.T, text string) *desk {
	t.Helper()
	set := rules.MustParse("shop.yaml", text)
	d := open(t, func(o *Options) { o.Rules = func() *rules.Set { return set } })
	d.set = set
	return d
}

// call makes a call and demands a status.
func (d *desk) call(status int, method, path, body string) string {
	d.t.Helper()
	req := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, req)
	if answer.Code != status {
		d.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, answer.Code, answer.Body, status)
	}
	return answer.Body.String()
}

func (d *desk) change(status int, action, entry, more string) string {
	d.t.Helper()
	key, value, _ := strings.Cut(entry, "=")
	return d.call(status, http.MethodPost, "/v1/key/"+action, fmt.Sprintf(`{"domain":"shop","entries":[{"key":%q,"value":%q}]%s}`, key, value, more))
}

func (d *desk) get(entry string, cost int64) keyAnswer {
	d.t.Helper()
	var answer keyAnswer
	if err := json.Unmarshal([]byte(d.call(http.StatusOK, http.MethodGet, fmt.Sprintf("/v1/key?domain=shop&entry=%s&cost=%d", entry, cost), "")), &answer); err != nil {
		d.t.Fatal(err)
	}
	return answer
}

// take charges a key as a front-end does, and returns whether it passed.
func (d *desk) take(entry string, cost int64) bool {
	d.t.Helper()
	key, value, _ := strings.Cut(entry, "=")
	plan, err := d.set.Plan(&rules.Request{Domain: "shop", Descriptors: [][]rules.Entry{{{Key: key, Value: value}}}, Cost: cost, ID: fmt.Sprint(d.clock.Now(), cost)})
	if err != nil {
		d.t.Fatal(err)
	}
	plan.Take(context.Background(), d.taker)
	if err := plan.Err(); err != nil {
		d.t.Fatal(err)
	}
	for i := range plan.Applied {
		if decision := plan.Applied[i].Decision(); plan.Applied[i].Chosen() && !decision.Allowed() {
			return false
		}
	}
	return true
}

// TestGet compares what is said of a key with what a charge is told then, and
// demands that asking changes nothing.
func TestGet(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.take("user=1", 7)
	for range 3 {
		s := d.get("user=1", 4).Limits[0].State
		if s.Used != 7 || s.Remaining != 3 || s.Passes || *s.RetryAfterMS != 360_000 || s.ResetAfterMS != 7*360_000 {
			t.Fatalf("%+v, retry after %d", s, *s.RetryAfterMS)
		}
	}
	if answer := d.get("user=1", 3); !answer.Passes || *answer.Limits[0].State.RetryAfterMS != 0 {
		t.Errorf("%+v", answer)
	}
	if answer := d.get("user=1", 11); answer.Passes || *answer.Limits[0].State.RetryAfterMS != -1 || !strings.Contains(answer.Limits[0].Explanation, "never fits") {
		t.Errorf("%+v", answer)
	}
	d.clock.Advance(360 * time.Second)
	if !d.take("user=1", 4) {
		t.Error("refused after the time that was told")
	}
	// Refused hits count under rules without an algorithm.
	d.take("old=1", 5)
	for range 3 {
		s := d.get("old=1", 1).Limits[0].State
		if s.Used != 5 || s.Remaining != 0 || s.Passes || *s.RetryAfterMS <= 0 {
			t.Errorf("%+v", s)
		}
	}
	if answer := d.get("two=1", 1); len(answer.Limits) != 2 || answer.Limits[0].Name != "short" || answer.Limits[1].Algorithm != "sliding_log" || !strings.HasPrefix(answer.Limits[1].Explanation, "shop/two long (shop.yaml:") {
		t.Errorf("%+v", answer)
	}
	if l := d.get("free=1", 1).Limits[0]; !l.Unlimited || l.State != nil || !strings.Contains(l.Explanation, "unlimited") {
		t.Errorf("%+v", l)
	}
	d.take("seat=1", 1)
	if s := d.get("seat=1", 1).Limits[0].State; s.Used != 1 || s.Passes || s.RetryAfterMS != nil {
		t.Errorf("%+v", s)
	}
	d.take("watched=1", 1)
	if answer := d.get("watched=1", 1); !answer.Passes || answer.Limits[0].State.Passes || !strings.Contains(answer.Limits[0].Explanation, "shadow_mode") {
		t.Errorf("%+v", answer)
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.take("user=1", 7)
	d.change(http.StatusOK, "override", "user=1", `,"limit":"100/min burst 20","until":"`+d.clock.Now().Add(time.Hour).Format(time.RFC3339)+`"`)
	l := d.get("user=1", 1).Limits[0]
	if l.State.Used != 7 || l.State.Remaining != 13 || l.Override.Limit != "100/min burst 20" || !strings.Contains(l.Explanation, "instead of 10/h") {
		t.Errorf("%+v, %+v", l, l.State)
	}
	d.change(http.StatusOK, "override", "two=1", `,"limit":"5/day","name":"long"`)
	if l := d.get("two=1", 1).Limits; l[0].Override != nil || l[1].Override.Limit != "5/day sliding_log" {
		t.Errorf("%+v", l)
	}
	d.take("old=1", 2)
	d.change(http.StatusOK, "override", "old=1", `,"limit":"9/h"`)
	if l := d.get("old=1", 7).Limits[0]; l.State.Used != 2 || l.State.Remaining != 7 || !l.State.Passes {
		t.Errorf("%+v", l.State)
	}
	var list struct{ Overrides []overrideAnswer }
	if err := json.Unmarshal([]byte(d.call(http.StatusOK, http.MethodGet, "/v1/overrides", "")), &list); err != nil || len(list.Overrides) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if body := d.change(http.StatusConflict, "block", "user=2", ""); !strings.Contains(body, `"code":"full"`) {
		t.Errorf("full: %s", body)
	}
	// Of two limits there is room for one: neither is blocked.
	d.change(http.StatusOK, "clear", "user=1", "")
	d.change(http.StatusConflict, "block", "two=2", "")
	if n := len(d.taker.List()); n != 2 {
		t.Errorf("%d in force, want 2", n)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const user = `"domain":"shop","entries":[{"key":"user","value":"1"}]`
	for _, c := range []struct {
		status             int
		action, body, want string
	}{
		{404, "block", `{"domain":"shoop","entries":[{"key":"user","value":"1"}]}`, "want one of shop"},
		{404, "block", `{"domain":"shop","entries":[{"key":"none","value":"1"}]}`, "no_rule"},
		{404, "block", `{"domain":"shop","entries":[{"key":"user","value":"1"},{"key":"user","value":"1"}]}`, "no_rule"},
		{409, "block", `{"domain":"shop","entries":[{"key":"free","value":"1"}]}`, "unlimited"},
		{400, "block", `{"domain":"shop"}`, `"field":"entries"`},
		{400, "block", `{"entries":[{"key":"user","value":"1"}]}`, `"field":"domain"`},
		{400, "block", `{"domain":"shop","entries":[{"key":"user"}]}`, `"field":"entries[0]"`},
		{400, "block", `{` + user + `,"for":"0s"}`, `"field":"for"`},
		{400, "block", `{` + user + `,"for":"721h"}`, `"field":"for"`},
		{400, "block", `{` + user + `,"for":"-1h"}`, `"field":"for"`},
		{400, "block", `{` + user + `,"until":"tomorrow"}`, `"field":"until"`},
		{400, "block", `{` + user + `,"until":"1999-01-01T00:00:00Z"}`, `"field":"until"`},
		{400, "block", `{` + user + `,"for":"1h","until":"2999-01-01T00:00:00Z"}`, `"field":"until"`},
		{400, "block", `{` + user + `,"limit":"1/s"}`, `"field":"limit"`},
		{400, "reset", `{` + user + `,"for":"1h"}`, `"field":"for"`},
		{400, "clear", `{` + user + `,"for":"1h"}`, `"field":"for"`},
		{400, "block", `{` + user + `,"name":"other"}`, `"field":"name"`},
		{400, "block", `{` + user + `,"colour":"red"}`, `"field":"colour"`},
		{400, "block", `{` + user + `}{}`, `"field":"body"`},
		{400, "block", `[]`, `"field":"body"`},
		{400, "block", `{"domain":7}`, `"field":"domain"`},
		{400, "override", `{` + user + `}`, `"field":"limit"`},
		{400, "override", `{` + user + `,"limit":"many"}`, `"field":"limit"`},
		{400, "override", `{` + user + `,"limit":"1/s fixed_window"}`, "keeps the rule's"},
		{400, "override", `{"domain":"shop","entries":[{"key":"two","value":"1"}],"limit":"1/s"}`, `"field":"name"`},
		{400, "override", `{"domain":"shop","entries":[{"key":"old","value":"1"}],"limit":"1/s burst 3"}`, "no burst"},
		{400, "override", `{"domain":"shop","entries":[{"key":"two","value":"1"}],"limit":"900000/s","name":"long"}`, `"field":"count"`},
		{400, "block", `{"domain":"cl.throttle","entries":[{"key":"user","value":"1"}]}`, `"field":"entries"`},
		{413, "block", `{"domain":"` + strings.Repeat("x", maxBody) + `"}`, `"field":"body"`},
	} {
		if body := d.call(c.status, http.MethodPost, "/v1/key/"+c.action, c.body); !strings.Contains(body, c.want) {
			t.Errorf("%s %.100s: %s, want %s", c.action, c.body, body, c.want)
		}
	}
	for query, want := range map[string]string{
		"":                                     "domain",
		"domain=shop":                          "entries",
		"domain=shop&entry=user":               "entry",
		"domain=shop&entry=user=1&cost=0":      "cost",
		"domain=shop&entry=user=1&cost=x":      "cost",
		"domain=shop&domain=x&entry=user=1":    "domain",
		"domain=shop&entry=user=1&user=2":      "user",
		"domain=shop&entry=user=1&name=none":   "name",
		"domain=shop&entry=user=%zz":           "query",
		"domain=shop&entry=user=1&cost=1&%01=": "\\u0001",
	} {
		if body := d.call(http.StatusBadRequest, http.MethodGet, "/v1/key?"+query, ""); !strings.Contains(body, `"field":"`+want+`"`) {
			t.Errorf("%q: %s", query, body)
		}
	}
	if n := len(d.taker.List()); n > 0 {
		t.Errorf("%d overrides were made by mistake", n)
	}
}

// TestGuard sends what a web page can be tricked into sending.
func TestGuard(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for _, c := range []struct {
		host, contentType string
		status            int
	}{
		{"[::1]:6070", "application/json", http.StatusOK},
		{"evil.example:6070", "application/json", http.StatusMisdirectedRequest},
		{"localhost", "", http.StatusUnsupportedMediaType},
		{"localhost", "text/plain", http.StatusUnsupportedMediaType},
		{"localhost", "application/x-www-form-urlencoded", http.StatusUnsupportedMediaType},
		{"localhost", "multipart/form-data; boundary=x", http.StatusUnsupportedMediaType},
		{"localhost", "text/plain; application/json", http.StatusUnsupportedMediaType},
	} {
		req := httptest.NewRequest(http.MethodPost, "http://"+c.host+"/v1/key/reset", strings.NewReader(`{"domain":"shop","entries":[{"key":"user","value":"1"}]}`))
		req.Header.Set("Content-Type", c.contentType)
		answer := httptest.NewRecorder()
		if d.ServeHTTP(answer, req); answer.Code != c.status || answer.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("host %s, content type %q: %d, %v", c.host, c.contentType, answer.Code, answer.Header())
		}
	}
	d.call(http.StatusMethodNotAllowed, http.MethodGet, "/v1/key/reset", "")
}

// TestAudit: each change leaves a line, with what came of it, and without the key.
func TestAudit(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.change(http.StatusOK, "block", "user=the customer", "")
	d.change(http.StatusConflict, "block", "free=the customer", "")
	d.change(http.StatusOK, "override", "user=the customer", `,"limit":"9/s"`)
	log := d.log.String()
	for _, want := range []string{`"audit":"key block"`, `"by":"anybody on this machine"`, `"remote":"192.0.2.1`, `"result":"done"`, `"result":"failed"`, `"until":"`, `"limit":"9/s"`, `"keys":["`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	if strings.Count(log, "\n") != 3 || strings.Contains(log, "customer") {
		t.Errorf("%s", log)
	}
}

// away is an Announcer that reaches nobody, and one that has no room.
type away struct{ err error }

func (a away) Announce(context.Context, override.Change) error { return a.err }

func TestAnnounce(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{nil: `"spread": "all"`, io.ErrClosedPipe: io.ErrClosedPipe.Error()} {
		d := open(t, func(o *Options) { o.Announcer = away{err} })
		if body := d.change(http.StatusOK, "block", "user=1", ""); !strings.Contains(body, want) || len(d.taker.List()) != 1 {
			t.Errorf("%v: %s", err, body)
		}
	}
	d := open(t, func(o *Options) { o.Announcer = away{override.ErrFull} })
	if body := d.change(http.StatusConflict, "block", "user=1", ""); !strings.Contains(body, `"code":"full"`) || len(d.taker.List()) != 0 {
		t.Errorf("full: %s, %v", body, d.taker.List())
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *Options) {
		o.Loaded = func() Loaded {
			return Loaded{Path: "shop.yaml", Revision: "abc", At: time.Unix(0, 0), Err: errors.New("line 7")}
		}
	})
	body := d.call(http.StatusOK, http.MethodGet, "/v1/rules", "")
	for _, want := range []string{`"revision": "abc"`, `"reload_error": "line 7"`, `"loaded_at": "1970-01-01T00:00:00Z"`, `"path": "shop/two"`, `"at": "shop.yaml:4:5"`, `"limit": "2/s"`, `"unlimited": true`, `"shadow": true`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if body := d.call(http.StatusOK, http.MethodGet, "/debug/pprof/cmdline", ""); body != os.Args[0] {
		t.Errorf("more is told than the program's name: %q", body)
	}
	if body := d.call(http.StatusOK, http.MethodGet, "/debug/pprof/", ""); !strings.Contains(body, "goroutine") {
		t.Errorf("pprof: %s", body)
	}
}

// FuzzParse: whatever is sent, a request is whole and within its bounds, or an error
// names a field.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"domain":"shop","entries":[{"key":"user","value":"1"}],"for":"1h","limit":"1/s burst 2"}`), "domain=shop&entry=user=1&cost=2")
	f.Add([]byte(`{"domain":"shop","entries":[{"key":"","value":""}],"until":"2030-01-01T00:00:00Z","name":"x"}`), "entry==&name=&domain=%00")
	f.Add([]byte(`{"domain":"\ud800"}{`), "cost=9999999999999999999")
	f.Add([]byte(`{"domain":"llm","budget":"tokens","for":"1h","limit":"1/s burst 2"}`), "domain=llm&entry=model%3Dlarge&budget=tokens")
	f.Add([]byte(`{"domain":"llm","entries":[{"key":"user","value":"1"}],"by":"$50","until":"month-end","note":"demo"}`), "entry=%00=1")
	f.Add([]byte(`{"domain":"llm","budget":"b","name":"n","entries":[]}`), "domain=llm&budget=tokens&cost=3")
	now := time.Date(2029, 12, 31, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte, query string) {
		var changed, asked *request
		var changeErr, askErr error
		fuzztest.Within(t, fuzztest.MostBytes, len(body), func() { changed, changeErr = parseChange(body, "raise", now) })
		fuzztest.Within(t, fuzztest.MostBytes, len(query), func() { asked, askErr = parseQuery(query) })
		for _, got := range []struct {
			req *request
			err error
		}{{changed, changeErr}, {asked, askErr}} {
			if got.err != nil {
				if e := new(weir.InvalidError); !errors.As(got.err, &e) || e.Field == "" && e.Value == "" {
					t.Fatalf("%v (%v)", got.err, reflect.TypeOf(got.err))
				}
				continue
			}
			if got.req.domain == "" || len(got.req.entries) == 0 && got.req.budget == "" || got.req.cost < 1 || got.req.cost > weir.MaxCost {
				t.Fatalf("%+v", got.req)
			}
		}
		if changeErr == nil && (!now.Before(changed.until) || changed.until.Sub(now) > MaxRaise) {
			t.Fatalf("until %v", changed.until)
		}
	})
}
