package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/storetest"
)

const everyAlgorithm = `
domain: shop
descriptors:
  - key: leaky                 # 1 every 6 s, a queue of 4
    rate_limit: {name: leaky, algorithm: leaky_bucket, requests_per_unit: 10, unit: minute, burst: 4}
  - key: places
    rate_limit: {name: places, algorithm: concurrency, requests_per_unit: 2, period: 30s}
  - key: counter
    rate_limit: {name: counter, algorithm: sliding_counter, requests_per_unit: 4, unit: minute}
  - key: month                 # begins on the 15th, at midnight in Paris
    rate_limit: {name: month, algorithm: fixed_window, requests_per_unit: 2, unit: month, time_zone: Europe/Paris, anchor_day: 15}
  - key: tokens
    rate_limit: {name: tokens, algorithm: gcra, requests_per_unit: 1000, unit: hour}
  - key: model                 # tokens, and calls at a time
    rate_limits:
      - {name: model-tokens, algorithm: gcra, requests_per_unit: 1000, unit: hour}
      - {name: model-calls, algorithm: concurrency, requests_per_unit: 1, period: 60s}
  - key: log
    rate_limit: {name: log, algorithm: sliding_log, requests_per_unit: 3, unit: minute}
  - key: bucket
    rate_limit: {name: bucket, algorithm: token_bucket, requests_per_unit: 2, period: 10s, burst: 2}
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
	want  string // see told
}

// told is what steps compare: the status, what was granted, then of each limit
// what remains and, if there are any, the waits in ms; or the status, the code and
// the field of a problem.
func told(t *testing.T, w *httptest.ResponseRecorder) string {
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
	h := handlerOf(t, everyAlgorithm, Options{Taker: memstore.New(memstore.Options{Now: clock.Now})})
	var want, got []string
	for i, s := range steps {
		clock.Advance(s.after)
		w := post(h, s.call, s.body)
		want = append(want, fmt.Sprint(i, " ", s.call, ": ", s.want))
		got = append(got, fmt.Sprint(i, " ", s.call, ": ", told(t, w)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"leaky bucket, no waiting": {
			{0, "take", takeOf(``, "leaky=1"), "200 1 | 0"},
			{0, "take", takeOf(``, "leaky=1"), "429 0 | 0 retry 6000"},
			{5999 * time.Millisecond, "take", takeOf(``, "leaky=1"), "429 0 | 0 retry 1"},
			{time.Millisecond, "take", takeOf(``, "leaky=1"), "200 1 | 0"},
			{time.Minute, "take", takeOf(`,"cost":0`, "leaky=1"), "200 0 | 4"},
			{0, "take", takeOf(`,"cost":5`, "leaky=1"), "429 0 | 4 retry -1"},
		},
		"leaky bucket, waiting": {
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":12000`, "leaky=1"), "200 1 | 3"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":12000`, "leaky=1"), "200 1 | 2 delay 6000"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":12000`, "leaky=1"), "200 1 | 1 delay 12000"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":12000`, "leaky=1"), "429 0 | 1 retry 6000"},
			{6 * time.Second, "take", takeOf(`,"mode":"reserve","max_wait_ms":12000`, "leaky=1"), "200 1 | 1 delay 12000"},
		},
		"sliding counter": {
			{0, "take", takeOf(`,"cost":4`, "counter=1"), "200 4 | 0"},
			{0, "take", takeOf(``, "counter=1"), "429 0 | 0 retry 75000"},
			{75 * time.Second, "take", takeOf(``, "counter=1"), "200 1 | 0"},
		},
		"calendar months": {
			// Noon of 15 June UTC is 14:00 in Paris: 29 days and 10 hours to go.
			{0, "take", takeOf(`,"cost":2`, "month=1"), "200 2 | 0"},
			{0, "take", takeOf(``, "month=1"), "429 0 | 0 retry 2541600000"},
			{2541600 * time.Second, "take", takeOf(``, "month=1"), "200 1 | 1"},
		},
		"a booking of gcra": {
			{0, "take", takeOf(`,"cost":1000,"mode":"reserve","max_wait_ms":1`, "tokens=1"), "200 1000 | 0"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":3599`, "tokens=1"), "429 0 | 0 retry 1"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":3600`, "tokens=1"), "200 1 | 0 delay 3600"},
		},
		"a booking of a token bucket": {
			{0, "take", takeOf(`,"cost":2`, "bucket=1"), "200 2 | 0"},
			{0, "take", takeOf(`,"cost":2,"mode":"reserve","max_wait_ms":60000`, "bucket=1"), "200 2 | 0 delay 10000"},
			{0, "take", takeOf(`,"cost":3,"mode":"reserve","max_wait_ms":60000`, "bucket=1"), "429 0 | 0 retry -1"},
		},
		"a booking of a window charges nothing": {
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":60000`, "tokens=1", "log=1"), "400 max_wait_ms"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":60000`, "tokens=1", "plain=1"), "400 max_wait_ms"},
			{0, "take", takeOf(`,"mode":"reserve","max_wait_ms":60000`, "tokens=1", "places=1"), "400 max_wait_ms"},
			{0, "take", takeOf(`,"cost":0`, "tokens=1", "log=1", "plain=1"), "200 0 | 1000 | 3 | 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walk(t, steps)
		})
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"a repeat gets the first answer": {
			{0, "take", takeOf(`,"cost":400,"id":"a"`, "tokens=1"), "200 400 | 600"},
			{0, "take", takeOf(`,"cost":500`, "tokens=1"), "200 500 | 100"},
			{0, "take", takeOf(`,"cost":400,"id":"a"`, "tokens=1"), "200 400 | 600"},
			{0, "take", takeOf(`,"cost":400,"id":"b"`, "tokens=1"), "429 0 | 100 retry 1080000"},
			{5 * time.Second, "take", takeOf(`,"cost":400,"id":"b"`, "tokens=1"), "429 0 | 100 retry 1080000"},
			{0, "take", takeOf(`,"cost":399,"id":"a"`, "tokens=1"), "409 id_reused id"},
			{0, "take", takeOf(`,"cost":400,"id":"a"`, "tokens=2"), "200 400 | 600"},
			{0, "settle", takeOf(`,"cost":3,"id":"b"`, "tokens=1"), "404 unknown_id id"},
		},
		"acts of one request": {
			{0, "take", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 999 | 4 | 3"},
			{0, "take", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 999 | 4 | 3"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=1", "plain=1", "plain=1"), "200 1 | 1000 | 4 | 5"},
		},
		"refund": {
			{0, "take", takeOf(`,"cost":10,"id":"a"`, "tokens=1"), "200 10 | 990"},
			{0, "refund", takeOf(`,"cost":11,"id":"a"`, "tokens=1"), "422 over_refund cost"},
			{0, "refund", takeOf(`,"cost":4,"id":"x"`, "tokens=1"), "404 unknown_id id"},
			{0, "refund", takeOf(`,"cost":4,"id":"a"`, "tokens=1"), "200 4 | 994"},
			{0, "refund", takeOf(`,"cost":4,"id":"a"`, "tokens=1"), "200 4 | 994"},
			{0, "refund", takeOf(`,"cost":5,"id":"a"`, "tokens=1"), "409 settled id"},
		},
		"hold and settle": {
			{0, "take", takeOf(`,"cost":100,"id":"a","hold_ms":60000`, "tokens=1"), "200 100 | 900"},
			{0, "settle", takeOf(`,"cost":40,"id":"a"`, "tokens=1"), "200 40 | 960"},
			{0, "settle", takeOf(`,"cost":40,"id":"a"`, "tokens=1"), "200 40 | 960"},
			{0, "settle", takeOf(`,"cost":41,"id":"a"`, "tokens=1"), "409 settled id"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=1"), "409 settled id"},
		},
		"settle for more": {
			{0, "take", takeOf(`,"cost":900,"id":"a","hold_ms":60000`, "tokens=1"), "200 900 | 100"},
			{0, "settle", takeOf(`,"cost":1500,"id":"a"`, "tokens=1"), "200 1500 | 0"},
			{0, "take", takeOf(``, "tokens=1"), "429 0 | 0 retry 1803600"},
		},
		"hold and release": {
			{0, "take", takeOf(`,"cost":100,"id":"a","hold_ms":60000`, "tokens=1"), "200 100 | 900"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=2"), "404 unknown_id id"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=1"), "200 100 | 1000"},
			{0, "settle", takeOf(`,"cost":1,"id":"a"`, "tokens=1"), "409 released id"},
			{0, "take", takeOf(`,"cost":100,"id":"a","hold_ms":60000`, "tokens=1"), "409 released id"},
		},
		"nothing matches": {
			{0, "take", takeOf(`,"cost":7,"id":"a"`, "nobody=1"), "200 7"},
			{0, "settle", takeOf(`,"cost":3,"id":"a"`, "nobody=1"), "200 3"},
			{0, "release", takeOf(`,"id":"a"`, "nobody=1"), "200 0"},
		},
		"refused in part": {
			{0, "take", takeOf(`,"cost":6,"id":"a"`, "tokens=1", "plain=1"), "429 0 | 994 | 0 retry -1"},
			{0, "release", takeOf(`,"id":"a"`, "tokens=1", "plain=1"), "200 6 | 1000 | 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walk(t, steps)
		})
	}
}

func TestHolders(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"release": {
			{0, "take", takeOf(`,"id":"a"`, "places=1"), "200 1 | 1"},
			{0, "take", takeOf(`,"id":"b"`, "places=1"), "200 1 | 0"},
			{time.Second, "take", takeOf(`,"id":"c"`, "places=1"), "429 0 | 0 retry 1000"},
			{0, "release", takeOf(`,"id":"a"`, "places=1"), "200 1 | 1"},
			{0, "take", takeOf(`,"id":"d"`, "places=1"), "200 1 | 0"},
			{0, "take", takeOf(`,"id":"a"`, "places=1"), "409 released id"},
		},
		"the end of a lease": {
			{0, "take", takeOf(`,"id":"a"`, "places=1"), "200 1 | 1"},
			{29 * time.Second, "renew", takeOf(`,"id":"a"`, "places=1"), "200 1 | 1"},
			{29 * time.Second, "renew", takeOf(`,"id":"a","hold_ms":5000`, "places=1"), "200 1 | 1"},
			{4999 * time.Millisecond, "take", takeOf(`,"cost":0`, "places=1"), "200 0 | 1"},
			{time.Millisecond, "take", takeOf(`,"cost":0`, "places=1"), "200 0 | 2"},
			{0, "renew", takeOf(`,"id":"a"`, "places=1"), "404 unknown_id id"},
		},
		"a request takes one place whatever it costs": {
			{0, "take", takeOf(`,"cost":100,"id":"a","hold_ms":60000`, "model=1"), "200 100 | 900 | 0"},
			{0, "take", takeOf(`,"cost":50,"id":"b","hold_ms":60000`, "model=1"), "429 0 | 900 | 0 retry 1000"},
			{0, "settle", takeOf(`,"cost":40,"id":"a"`, "model=1"), "200 40 | 960 | 1"},
			{0, "take", takeOf(`,"cost":50,"id":"c","hold_ms":60000`, "model=1"), "200 50 | 910 | 0"},
			{0, "release", takeOf(`,"id":"c"`, "model=1"), "200 50 | 960 | 1"},
		},
		"a place is not to be had in part, nor twice": {
			{0, "take", takeOf(`,"cost":5,"mode":"up_to"`, "model=1"), "400 mode"},
			{0, "take", takeOf(``, "tokens=1", "places=1", "places=1"), "400 descriptors[2]"},
			{0, "take", takeOf(`,"cost":0`, "tokens=1", "model=1", "places=1"), "200 0 | 1000 | 1000 | 1 | 2"},
		},
		"watched": {
			{0, "take", takeOf(`,"id":"a"`, "watched=1", "tokens=1"), "200 1 | 0 | 999"},
			{0, "take", takeOf(`,"id":"b"`, "watched=1", "tokens=1"), "200 1 | 0 | 998"},
			{0, "release", takeOf(`,"id":"b"`, "watched=1", "tokens=1"), "200 1 | 0 | 999"},
			{0, "release", takeOf(`,"id":"a"`, "watched=1", "tokens=1"), "200 1 | 1 | 1000"},
			{0, "release", takeOf(`,"id":"x"`, "watched=1", "tokens=1"), "404 unknown_id id"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walk(t, steps)
		})
	}
}

// TestMistakesChargeNothing looks at every limit after a row of mistakes.
func TestMistakesChargeNothing(t *testing.T) {
	t.Parallel()
	all := []string{"leaky=1", "places=1", "counter=1", "month=1", "tokens=1", "model=1", "log=1", "bucket=1", "plain=1"}
	var steps []step
	for rest, want := range map[string]string{
		`,"mode":"reserve"`:                        "400 max_wait_ms",
		`,"mode":"reserve","max_wait_ms":1`:        "400 max_wait_ms",
		`,"mode":"reserve","max_wait_ms":-1`:       "400 max_wait_ms",
		`,"max_wait_ms":5`:                         "400 max_wait_ms",
		`,"mode":"some"`:                           "400 mode",
		`,"mode":"up_to","cost":2`:                 "400 mode",
		`,"hold_ms":-1`:                            "400 hold_ms",
		`,"hold_ms":86400001`:                      "400 hold_ms",
		`,"cost":-1`:                               "400 cost",
		`,"cost":1000000001`:                       "400 cost",
		`,"id":"` + strings.Repeat("x", 129) + `"`: "400 id",
		`,"id":5`:                                  "400 id",
		`,"lease_ms":5`:                            "400 lease_ms",
	} {
		steps = append(steps, step{0, "take", takeOf(rest, all...), want})
	}
	for _, kind := range []string{"refund", "settle", "release", "renew"} {
		rest := `,"id":"nobody's"`
		if kind == "refund" || kind == "settle" {
			rest += `,"cost":1`
		}
		steps = append(steps, step{0, kind, takeOf(rest, all...), "404 unknown_id id"}, step{0, kind, takeOf(``, all...), "400 id"})
	}
	steps = append(steps, step{0, "take", takeOf(`,"cost":0`, all...), "200 0 | 4 | 2 | 4 | 2 | 1000 | 1000 | 1 | 3 | 2 | 5"})
	walk(t, steps)
}
