package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const blocking = `
domain: shop
descriptors:
  - {key: user, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 3, block: 15m}}
`

// TestBlockedKey: a peek shows a block and begins none, a reset and an override without a limit
// end it.
func TestBlockedKey(t *testing.T) {
	t.Parallel()
	d := openRules(t, blocking)
	for range 3 {
		d.clock.Advance(time.Second)
		d.take("user=1", 1)
	}
	if s := d.get("user=1", 1).Limits[0].State; s.Used != 3 || s.Passes || *s.RetryAfterMS != 58_000 {
		t.Errorf("used up: %+v", s)
	}
	d.clock.Advance(time.Minute)
	if !d.take("user=1", 1) {
		t.Error("a look has blocked the key")
	}
	d.take("user=1", 3)
	d.clock.Advance(5 * time.Minute)
	l := d.get("user=1", 1).Limits[0]
	if s := l.State; !s.Blocked || s.Used != 0 || s.Remaining != 0 || s.Passes || *s.RetryAfterMS != 600_000 || s.ResetAfterMS != 600_000 {
		t.Errorf("blocked: %+v", s)
	}
	if !strings.HasSuffix(l.Explanation, "; the limit has blocked the key, and a cost of 1 fits in 10m") {
		t.Error(l.Explanation)
	}
	d.change(http.StatusOK, "allow", "user=1", `,"for":"1m"`)
	if !d.take("user=1", 1) {
		t.Error("blocked although it has no limit")
	}
	d.clock.Advance(time.Minute)
	if d.take("user=1", 1) {
		t.Error("not blocked once it has a limit again")
	}
	d.change(http.StatusOK, "reset", "user=1", "")
	if s := d.get("user=1", 1).Limits[0].State; s.Remaining != 3 || !s.Passes || !d.take("user=1", 3) {
		t.Errorf("after a reset: %+v", s)
	}
}
