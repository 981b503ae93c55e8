package weir_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestStrictest(t *testing.T) {
	t.Parallel()
	limit := func(count int64) *weir.Limit { return weir.PerDay(count).MustCompile() }
	granted := func(left int64) weir.Decision { return weir.Decision{Outcome: weir.Granted, Remaining: left} }
	refused := func(wait time.Duration) weir.Decision {
		return weir.Decision{Outcome: weir.Refused, RetryAfter: wait}
	}
	for name, c := range map[string]struct {
		counts    []int64
		decisions []weir.Decision
		want      int
	}{
		"none":                        {nil, nil, -1},
		"one":                         {[]int64{5}, []weir.Decision{granted(5)}, 0},
		"least share left":            {[]int64{10, 1000}, []weir.Decision{granted(5), granted(400)}, 1},
		"first on a tie":              {[]int64{10, 100}, []weir.Decision{granted(5), granted(50)}, 0},
		"refusal before grant":        {[]int64{10, 10}, []weir.Decision{granted(0), refused(1)}, 1},
		"longest wait":                {[]int64{10, 10, 10}, []weir.Decision{refused(1), refused(3), refused(2)}, 1},
		"never is longest":            {[]int64{10, 10}, []weir.Decision{refused(time.Hour), refused(weir.Never)}, 1},
		"first of equal waits":        {[]int64{10, 10}, []weir.Decision{refused(7), refused(7)}, 0},
		"large counts":                {[]int64{1e9, 1e9}, []weir.Decision{granted(999_999_999), granted(999_999_998)}, 1},
		"not charged does not refuse": {[]int64{10, 10}, []weir.Decision{{Outcome: weir.NotCharged}, refused(1)}, 1},
	} {
		charges := make([]weir.Charge, len(c.counts))
		for i, n := range c.counts {
			charges[i].Limit = limit(n)
		}
		if got := weir.Strictest(charges, c.decisions); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestNamesInAnswers(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		weir.Granted.String(): "granted", weir.Refused.String(): "refused", weir.NotCharged.String(): "not_charged",
		weir.NotEvaluated.String(): "not_evaluated", weir.Outcome(77).String(): "unknown",
		weir.SourceStore.String(): "store", weir.SourceShadow.String(): "shadow", weir.SourceLimit.String(): "limit",
		weir.SourceDenyCache.String(): "deny_cache", weir.SourceLease.String(): "lease", weir.SourceFallback.String(): "fallback",
		weir.SourceFailOpen.String(): "fail_open", weir.SourceFailClosed.String(): "fail_closed",
		weir.SourceNone.String(): "none", weir.Source(77).String(): "unknown",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
