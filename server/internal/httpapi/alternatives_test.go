package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestRemainingOfAlternatives: a client that sees a number can take so many units at once.
func TestRemainingOfAlternatives(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, `domain: d
budgets: {pool: {algorithm: gcra, unit: day, requests_per_unit: 1000}}
descriptors:
  - {key: others, rate_limit: {budget: pool}}
  - key: tenant
    rate_limits: [{name: own, algorithm: gcra, unit: day, requests_per_unit: 10}]
    otherwise: [{rate_limits: [{name: shared, budget: pool, keep: 1}]}]
  - key: two
    rate_limits: [{name: own, algorithm: gcra, unit: day, requests_per_unit: 10}, {name: shared, budget: pool}]
    otherwise: [{rate_limits: [{name: last, algorithm: gcra, unit: day, requests_per_unit: 6}]}]
`, Options{Taker: frozen()})
	for _, c := range []struct{ entry, cost, limit, remaining, alternative string }{
		{"others", "800", "1000", "200", ""},
		{"two", "5", "10", "5", "1"},
		{"two", "0", "6", "6", "2"},
		{"tenant", "5", "10", "5", "1"},
		{"tenant", "0", "1000", "194", "2"},
		{"tenant", "191", "1000", "3", "2"},
		{"tenant", "0", "10", "5", "1"},
		{"two", "0", "6", "6", "2"},
	} {
		w := take(h, `{"domain":"d","descriptors":[{"entries":[{"key":"`+c.entry+`","value":"a"}]}],"cost":`+c.cost+`}`)
		wantStatus(t, w, http.StatusOK)
		wantHeaders(t, w, map[string]string{"X-Ratelimit-Limit": c.limit, "X-Ratelimit-Remaining": c.remaining, "Weir-Alternative": c.alternative})
		if got := fmt.Sprint(decode[actAnswer](t, w).Granted); got != c.cost {
			t.Errorf("%s: granted %s of %s", c.entry, got, c.cost)
		}
	}
	w := take(h, `{"domain":"d","descriptors":[{"entries":[{"key":"tenant","value":"b"}]}]}`)
	for _, want := range []string{`"source":"store","alternative":1,"chosen":true}`, `"source":"none","budget":"pool","keep":1,"alternative":2}`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s, want %s", w.Body, want)
		}
	}
}
