package httpapi

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const rolloutRules = `
domain: shop
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1}]
descriptors:
  - {key: user, rate_limit: {<<: *one, requests_per_unit: 2, name: now}, trial: {<<: *one, name: next}}
  - {key: none, rate_limit: *one, enforce: 0%}
`

// marks are what the list of limits says of each: its name, source and marks.
func marks(answer actAnswer) []string {
	var all []string
	for _, l := range answer.Limits {
		all = append(all, fmt.Sprintf("%s %s shadow %t trial %t", l.Name, l.Source, l.Shadow, l.Trial))
	}
	return all
}

func TestTakeMarksWhatOnlyWatches(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, rolloutRules, Options{Taker: frozen()})
	take(h, takeOf("", "user=1", "none=1"))
	w := take(h, takeOf("", "user=1", "none=1"))
	wantStatus(t, w, http.StatusOK)
	wantHeaders(t, w, map[string]string{"RateLimit": `"now";r=0;t=86400`, "RateLimit-Policy": `"now";q=2;w=86400`})
	want := []string{"now store shadow false trial false", "next shadow shadow true trial true", "none shadow shadow true trial false"}
	if diff := cmp.Diff(want, marks(decode[actAnswer](t, w))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w = take(h, takeOf("", "user=1"))
	wantStatus(t, w, http.StatusTooManyRequests)
}
