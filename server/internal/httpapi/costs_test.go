package httpapi

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/problem"
)

const costRules = `
domain: shop
descriptors:
  - key: key
    rate_limits:
      - {name: rpm, requests_per_unit: 60, unit: minute, algorithm: gcra}
      - {name: in, count: input, requests_per_unit: 1000, unit: minute, algorithm: gcra}
      - {name: out, count: output, requests_per_unit: 500, unit: minute, algorithm: gcra}
      - {name: day, count: usd, dollars: 0.01, unit: day, algorithm: fixed_window}
      - {name: open, requests_per_unit: 2, period: 15m, algorithm: concurrency}
`

func TestCosts(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, costRules, Options{Taker: frozen()})
	left := func(kind, rest string, status int) []int64 {
		t.Helper()
		w := post(h, kind, takeOf(rest, "key=a"))
		wantStatus(t, w, status)
		var left []int64
		for _, l := range decode[actAnswer](t, w).Limits {
			left = append(left, l.Remaining)
		}
		return left
	}
	for _, c := range []struct {
		kind, rest string
		status     int
		want       []int64
	}{
		{"take", `,"id":"a","hold_ms":60000,"costs":{"input":900,"output":400,"usd":9000,"other":1}`, 200, []int64{59, 100, 100, 1000, 1}},
		// One of the numbers does not fit: none is charged.
		{"take", `,"id":"b","hold_ms":60000,"costs":{"input":1,"output":101,"usd":1}`, 429, []int64{59, 100, 100, 1000, 1}},
		{"settle", `,"id":"a","costs":{"input":950,"output":0,"usd":20000}`, 200, []int64{59, 50, 500, 0, 2}},
		{"settle", `,"id":"a","costs":{"input":950,"output":0,"usd":20000}`, 200, []int64{59, 50, 500, 0, 2}},
		// A settlement whose hold has ended charges without one, even what does not fit.
		{"settle", `,"record":true,"costs":{"requests":2,"input":60,"output":1,"usd":1}`, 200, []int64{57, 0, 499, 0}},
	} {
		if diff := cmp.Diff(c.want, left(c.kind, c.rest, c.status)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.kind, c.rest, diff)
		}
	}
	wantStatus(t, post(h, "settle", takeOf(`,"id":"a","costs":{"input":951,"output":0,"usd":20000}`, "key=a")), http.StatusConflict)
	wantStatus(t, post(h, "settle", takeOf(`,"id":"c","costs":{"input":951,"output":0,"usd":20000}`, "key=a")), http.StatusNotFound)
}

func TestCostsAnswer(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, costRules, Options{Taker: frozen()})
	w := take(h, takeOf(`,"costs":{"input":9,"output":0,"usd":0,"requests":3}`, "key=a"))
	wantStatus(t, w, http.StatusOK)
	answer := decode[actAnswer](t, w)
	if answer.Granted != 3 || answer.ID == "" || answer.Limits[0].Count != "" || answer.Limits[1].Count != "input" || answer.Limits[1].Granted != 9 {
		t.Errorf("%+v", answer)
	}
}

func TestCostsRefused(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, costRules, Options{Taker: frozen()})
	const all = `"input":1,"output":1,"usd":1`
	for _, c := range []struct{ kind, rest, field string }{
		{"take", `,"cost":1,"costs":{` + all + `}`, "costs"},
		{"take", `,"costs":{"input":1,"usd":1}`, "costs"},
		{"take", `,"costs":{}`, "costs"},
		{"take", `,"costs":{"input":1,"output":-1,"usd":1}`, "costs"},
		{"take", `,"costs":{"input":1,"output":1000000001,"usd":1}`, "costs"},
		{"take", `,"costs":{"input":null,"output":1,"usd":1}`, "costs"},
		{"take", `,"mode":"up_to","costs":{` + all + `}`, "mode"},
		{"take", `,"record":true,"costs":{` + all + `}`, "record"},
		{"refund", `,"id":"a","costs":{` + all + `}`, "costs"},
		{"settle", `,"costs":{` + all + `}`, "id"},
		{"settle", `,"id":"a","record":true,"costs":{` + all + `}`, "id"},
		{"settle", `,"id":"a","cost":1,"costs":{` + all + `}`, "costs"},
	} {
		w := post(h, c.kind, takeOf(c.rest, "key=a"))
		wantStatus(t, w, http.StatusBadRequest)
		if p := decode[problem.Document](t, w); p.Field != c.field {
			t.Errorf("%s %s: field %q, want %q", c.kind, c.rest, p.Field, c.field)
		}
	}
	if w := take(h, takeOf(`,"costs":{"input":1000,"output":500,"usd":10000}`, "key=a")); w.Code != http.StatusOK {
		t.Errorf("a refused call was charged: %s", w.Body)
	}
}
