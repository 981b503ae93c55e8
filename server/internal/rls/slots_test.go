package rls_test

import (
	"testing"

	"github.com/weirlimit/weir/server/internal/rls"
)

const pairs = `
domain: d
descriptors:
  - {key: seats, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: concurrency}}
  - {key: one, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: gcra}}
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 100, algorithm: sliding_log}}
  - {key: theirs, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: concurrency}}
  - key: both
    rate_limits:
      - {unit: minute, requests_per_unit: 1, algorithm: concurrency, name: slots}
      - {unit: hour, requests_per_unit: 3, algorithm: gcra, name: rate}
`

// TestPairs: hits and negative hits, as Envoy sends them at the begin and the end of a
// request.
func TestPairs(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"slots": `
			seats=1 => OK | OK 2/MINUTE seats 1 1m0s
			wait 1s
			seats=1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s
			seats=1 +0 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 1 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 2 0s
			seats=1 -1 => OK | OK 2/MINUTE seats 2 0s
			seats=1 +2 => OK | OK 2/MINUTE seats 0 1m0s
			seats=2 +3 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 596523h14m7s`,
		"lost ends": `
			seats=1 +2 => OK | OK 2/MINUTE seats 0 1m0s
			wait 59999ms
			seats=1 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s
			wait 1ms
			seats=1 => OK | OK 2/MINUTE seats 1 1m0s`,
		"a request that another limit refuses has a slot until its end": `
			seats=1; one=1 => OK | OK 2/MINUTE seats 1 1m0s | OK 1/HOUR one 0 1h0m0s
			seats=1; one=1 => OVER_LIMIT | OK 2/MINUTE seats 0 1m0s | OVER_LIMIT 1/HOUR one 0 1h0m0s
			seats=1; one=2 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s | OK 1/HOUR one 1 0s
			seats=1 -1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 1 1m0s
			seats=1; one=2 => OK | OK 2/MINUTE seats 0 1m0s | OK 1/HOUR one 0 1h0m0s`,
		"slots and a rate of one rule": `
			both=1 => OK | OK 1/MINUTE slots 0 1m0s
			both=1 => OVER_LIMIT | OVER_LIMIT 1/MINUTE slots 0 1s
			both=1 -1 => OK | OK 1/MINUTE slots 0 1m0s
			both=1 -1 => OK | OK 1/MINUTE slots 1 0s`,
		"watched slots": `
			watched=1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 => OK | OK 1/MINUTE watched 0 1s
			watched=1 -1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 -1 => OK | OK 1/MINUTE watched 1 0s`,
		"an estimate that was too high": `
			tokens=1 +60 => OK | OK 100/HOUR tokens 40 1h0m0s
			wait 3s
			tokens=1 +30 => OK | OK 100/HOUR tokens 10 1h0m0s
			wait 3s
			tokens=1,weir=settle -50 => OK | OK 100/HOUR tokens 60 59m54s
			tokens=1 -500 => OK | OK 100/HOUR tokens 100 0s`,
		"an estimate that was too low": `
			tokens=1 +60 => OK | OK 100/HOUR tokens 40 1h0m0s
			tokens=1,weir=settle +90 => OK | OK 100/HOUR tokens 0 1h0m0s
			tokens=1 => OVER_LIMIT | OVER_LIMIT 100/HOUR tokens 0 1h0m0s
			tokens=1 -49 => OK | OK 100/HOUR tokens 0 1h0m0s
			tokens=1 -2 => OK | OK 100/HOUR tokens 1 1h0m0s
			tokens=2,weir=settle +18446744073709551615 => OK | OK 100/HOUR tokens 0 1h0m0s`,
		"an estimate under a rule without algorithm": `
			theirs=1 +60 => OK | OK 100/HOUR 40 59m56s
			theirs=1,weir=settle +90 => OK | OK 100/HOUR 0 59m56s
			theirs=1 => OVER_LIMIT | OVER_LIMIT 100/HOUR 0 59m56s
			theirs=1,weir=settle -52 => OK | OK 100/HOUR 1 59m56s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, pairs, rls.Mode{}).wants(lines)
		})
	}
}
