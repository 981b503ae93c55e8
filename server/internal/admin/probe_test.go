package admin

import (
	"testing"

	"github.com/weirlimit/weir/internal/layer/denycache"
)

// TestLooksBehindADenyCache asks several times about a key: what is remembered of one
// answer must not be the next one.
func TestLooksBehindADenyCache(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *Options) { o.Taker = denycache.Wrap(o.Taker, denycache.Options{}) })
	if !d.take("user=42", 8) {
		t.Fatal("refused")
	}
	for _, cost := range []int64{1, 2, 3, 1, 10, 2} {
		answer := d.get("user=42", cost)
		state := answer.Limits[0].State
		if want := cost <= 2; answer.Passes != want || state.Passes != want || (*state.RetryAfterMS == 0) != want {
			t.Errorf("a cost of %d, 2 remain: passes %v, %+v", cost, answer.Passes, *state)
		}
	}
}
