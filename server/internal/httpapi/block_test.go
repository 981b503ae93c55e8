package httpapi

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir/internal/problem"
)

// TestBlock: Retry-After is the rest of the block, and the problem says why.
func TestBlock(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, `
domain: shop
descriptors:
  - key: user
    rate_limits:
      - {algorithm: fixed_window, unit: second, requests_per_unit: 2, name: short, block: 15m}
      - {algorithm: gcra, unit: hour, requests_per_unit: 100, name: long}
`, Options{Taker: frozen()})
	for range 2 {
		wantStatus(t, take(h, takeOf("", "user=1")), http.StatusOK)
	}
	w := take(h, takeOf("", "user=1"))
	wantStatus(t, w, http.StatusTooManyRequests)
	wantHeaders(t, w, map[string]string{"Retry-After": "900"})
	if l := decode[actAnswer](t, w).Limits; l[0].RetryAfterMS != 900_000 || !l[0].Blocked || l[1].Blocked {
		t.Errorf("%+v", l)
	}
	got := decode[problem.Document](t, auth(h, "domain=shop&user=1")).Detail
	if want := `limit "short" (2/s fixed_window block 15m0s) has blocked the key, which it refused before; retry in 900 s`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	wantStatus(t, take(h, takeOf("", "user=2")), http.StatusOK)
}
