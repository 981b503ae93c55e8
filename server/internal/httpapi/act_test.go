package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

const actRules = `
domain: shop
descriptors:
  - key: leaky                 # 1 every 6 s, a queue of 4
    rate_limit: {name: leaky, algorithm: leaky_bucket, requests_per_unit: 10, unit: minute, burst: 4}
  - key: places
    rate_limit: {name: places, algorithm: concurrency, requests_per_unit: 2, period: 30s}
  - key: tokens
    rate_limit: {name: tokens, algorithm: gcra, requests_per_unit: 1000, unit: hour}
  - key: model                 # tokens, and calls at a time
    rate_limits:
      - {name: model-tokens, algorithm: gcra, requests_per_unit: 1000, unit: hour}
      - {name: model-calls, algorithm: concurrency, requests_per_unit: 1, period: 60s}
  - key: plain
    rate_limit: {requests_per_unit: 5, unit: hour}
  - key: watched
    shadow_mode: true
    rate_limit: {name: watched, algorithm: concurrency, requests_per_unit: 1, period: 60s}
`

// A step is one call and what it has to answer.
type step struct {
	after time.Duration // the clock advances before the call
	call  string        // the last part of the path
	body  string
	want  string // see shown
}

// shown is what steps compare: the status, what was granted, then of each limit
// what remains and, if there are any, the waits in ms; or the status, the code and
// the field of a problem.
func shown(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Header().Get("Content-Type") == "application/problem+json" {
		p := decode[problem.Document](t, w)
		return strings.Join(strings.Fields(fmt.Sprint(p.Status, " ", p.Code, " ", p.Field)), " ")
	}
	answer := decode[actAnswer](t, w)
	if answer.Allowed != (w.Code == http.StatusOK) {
		t.Errorf("status %d with %+v", w.Code, answer)
	}
	text := fmt.Sprintf("%d %d", w.Code, answer.Granted)
	for _, l := range answer.Limits {
		text += fmt.Sprintf(" | %d", l.Remaining)
		if l.RetryAfterMS != 0 {
			text += fmt.Sprintf(" retry %d", l.RetryAfterMS)
		}
		if l.DelayMS != 0 {
			text += fmt.Sprintf(" delay %d", l.DelayMS)
		}
	}
	return text
}

// walk makes the calls of a history and compares each answer.
func walk(t *testing.T, steps []step) {
	t.Helper()
	clock := storetest.NewClock()
	h := handlerOf(t, actRules, Options{Taker: memengine.New(memengine.Options{Now: clock.Now})})
	var want, got []string
	for i, s := range steps {
		clock.Advance(s.after)
		w := post(h, s.call, s.body)
		want = append(want, fmt.Sprint(i, " ", s.call, ": ", s.want))
		got = append(got, fmt.Sprint(i, " ", s.call, ": ", shown(t, w)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestActs: answers say what all limits granted, and what remains of each.
func TestActs(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"a booking": {
			{0, "take", takeOf(`,"cost":1000,"mode":"reserve","max_wait_ms":1`, "tokens=1"), "200 1000 | 0"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":3599`, "tokens=1"), "429 0 | 0 retry 1"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":3600`, "tokens=1"), "200 1 | 0 delay 3600"},
		},
		"as many as fit": {
			{0, "take", takeOf(`,"cost":700,"mode":"up_to"`, "tokens=1"), "200 700 | 300"},
			{0, "take", takeOf(`,"cost":700,"mode":"up_to"`, "tokens=1", "nobody=1"), "200 300 | 0"},
			{0, "take", takeOf(`,"cost":700,"mode":"up_to"`, "tokens=1"), "429 0 | 0 retry 3600"},
		},
		"mistakes that only the rules know": {
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":60000`, "tokens=1", "plain=1"), "400 max_wait_ms"},
			{0, "take", takeOf(`,"cost":5,"mode":"up_to"`, "model=1"), "400 mode"},
			{0, "take", takeOf(``, "tokens=1", "places=1", "places=1"), "400 descriptors[2]"},
			{0, "take", takeOf(`,"cost":0`, "tokens=1", "model=1", "places=1"), "200 0 | 1000 | 1000 | 1 | 2"},
		},
		"acts of one request": {
			{0, "take", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 999 | 4 | 3"},
			{0, "take", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 999 | 4 | 3"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 1000 | 4 | 5"},
			{0, "take", takeOf(`,"id":"b"`, "plain=2", "plain=3"), "200 1 | 4 | 4"},
			{0, "release", takeOf(`,"id":"b"`, "plain=2", "plain=4"), "200 1 | 5 | 0"},
		},
		"a hold": {
			{0, "take", takeOf(`,"cost":900,"id":"a","hold_ms":60000`, "tokens=1"), "200 900 | 100"},
			{0, "refund", takeOf(`,"cost":100,"id":"x"`, "tokens=1"), "404 unknown_id id"},
			{0, "settle", takeOf(`,"cost":1500,"id":"a"`, "tokens=1"), "200 1500 | 0"},
			{0, "settle", takeOf(`,"cost":40,"id":"a"`, "tokens=1"), "409 settled id"},
		},
		"nothing matches": {
			{0, "take", takeOf(`,"cost":7,"id":"a"`, "nobody=1"), "200 7"},
			{0, "settle", takeOf(`,"cost":3,"id":"a"`, "nobody=1"), "200 3"},
			{0, "release", takeOf(`,"id":"a"`, "nobody=1"), "200 0"},
		},
		"refused in part": {
			{0, "take", takeOf(`,"cost":6,"id":"a"`, "tokens=1", "plain=1"), "429 0 | 994 | 0 retry -1"},
			{0, "refund", takeOf(`,"cost":4,"id":"a"`, "tokens=1", "plain=1"), "200 4 | 998 | 0"},
		},
		"the end of a lease": {
			{0, "take", takeOf(`,"id":"a"`, "places=1"), "200 1 | 1"},
			{29 * time.Second, "renew", takeOf(`,"id":"a","hold_ms":5000`, "places=1"), "200 1 | 1"},
			{5 * time.Second, "renew", takeOf(`,"id":"a"`, "places=1"), "404 unknown_id id"},
		},
		"a request takes one place whatever it costs": {
			{0, "take", takeOf(`,"cost":100,"id":"a","hold_ms":60000`, "model=1"), "200 100 | 900 | 0"},
			{0, "take", takeOf(`,"cost":50,"id":"b","hold_ms":60000`, "model=1"), "429 0 | 900 | 0 retry 1000"},
			{0, "settle", takeOf(`,"cost":40,"id":"a"`, "model=1"), "200 40 | 960 | 1"},
			{0, "take", takeOf(`,"cost":50,"id":"c","hold_ms":60000`, "model=1"), "200 50 | 910 | 0"},
			{0, "release", takeOf(`,"id":"c"`, "model=1"), "200 50 | 960 | 1"},
			{0, "take", takeOf(`,"cost":9,"id":"d"`, "places=1"), "200 9 | 1"},
			{0, "settle", takeOf(`,"cost":3,"id":"d"`, "places=1"), "200 3 | 2"},
			{0, "take", takeOf(`,"id":"e"`, "places=1"), "200 1 | 1"},
			{0, "release", takeOf(`,"id":"e"`, "places=1"), "200 1 | 2"},
		},
		"watched": {
			{0, "take", takeOf(`,"id":"a"`, "watched=1", "tokens=1"), "200 1 | 0 | 999"},
			{0, "take", takeOf(`,"id":"b"`, "watched=1", "tokens=1"), "200 1 | 0 | 998"},
			{0, "release", takeOf(`,"id":"a"`, "watched=1", "tokens=1"), "200 1 | 1 | 999"},
			{0, "release", takeOf(`,"id":"x"`, "watched=1", "tokens=1"), "404 unknown_id id"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walk(t, steps)
		})
	}
}
