package rls_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	set := rules.MustParse("rules.yaml", `
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: {unit: second, requests_per_unit: 500}
    shadow_mode: true
    descriptors:
      - key: path
        rate_limit: {unit: WEEK, requests_per_unit: 3}
        quota_mode: true
  - {key: free, rate_limit: {unlimited: true}}
  - {key: inner, descriptors: [{key: "two\nlines", value: v*, rate_limit: {requests_per_unit: 0, unit: year}}]}
  - {key: own, rate_limit: {algorithm: gcra, requests_per_unit: 20, period: 30s, burst: 5}}
  - key: both
    rate_limits:
      - {algorithm: sliding_log, requests_per_unit: 1, unit: minute}
      - {algorithm: fixed_window, requests_per_unit: 9, unit: hour}
`)
	service := rls.New(rls.Options{Rules: func() *rules.Set { return set }, Taker: memengine.New(memengine.Options{})})
	answer := httptest.NewRecorder()
	service.Config().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/rlconfig", nil))
	want := `mongo_cps.database_users: unit=SECOND requests_per_unit=500, shadow_mode: true, quota_mode: false
mongo_cps.database_users.path: unit=WEEK requests_per_unit=3, shadow_mode: false, quota_mode: true
mongo_cps.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
mongo_cps.inner.two lines_v*: unit=YEAR requests_per_unit=0, shadow_mode: false, quota_mode: false
mongo_cps.own: unit=SECOND requests_per_unit=20, shadow_mode: false, quota_mode: false, algorithm: gcra, unit_multiplier: 30, burst: 5
mongo_cps.both: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, algorithm: sliding_log
mongo_cps.both: unit=HOUR requests_per_unit=9, shadow_mode: false, quota_mode: false, algorithm: fixed_window
`
	if diff := cmp.Diff(want, answer.Body.String()); diff != "" {
		t.Error(diff)
	}
	if got := answer.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
}
