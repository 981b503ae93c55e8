package rls_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/rls"
)

// TestBlock: a blocked key is refused until the block ends, and the status and the headers say
// when that is.
func TestBlock(t *testing.T) {
	t.Parallel()
	b := newBench(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 1, block: 15m}}
`, rls.Mode{Headers: &rls.DefaultHeaders})
	for _, want := range []struct {
		after time.Duration
		code  string
		reset time.Duration
	}{
		{0, "OK", time.Second},
		{0, "OVER_LIMIT", 15 * time.Minute},
		{5 * time.Minute, "OVER_LIMIT", 10 * time.Minute},
		{10 * time.Minute, "OK", time.Second},
	} {
		b.clock.Advance(want.after)
		m, err := b.call(ask(t, "user=1"))
		if err != nil {
			t.Fatal(err)
		}
		s := m.GetStatuses()[0]
		if got := m.GetOverallCode().String(); got != want.code || s.GetCode().String() != want.code || s.GetDurationUntilReset().AsDuration() != want.reset {
			t.Errorf("%s, %v; want %s until %v", got, s, want.code, want.reset)
		}
		if got, reset := m.GetResponseHeadersToAdd()[2], want.reset.Seconds(); got.GetKey() != "RateLimit-Reset" || got.GetValue() != strconv.Itoa(int(reset)) {
			t.Errorf("%v, want %v s", got, reset)
		}
	}
}
