package rls_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/server/internal/rls"
)

const overridden = `
domain: d
descriptors:
  - {key: m, quota_mode: true, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5, name: five}}
  - {key: ours, rate_limit: {unit: minute, requests_per_unit: 5, algorithm: gcra}}
`

// TestOverride: a limit in the descriptor holds instead of the rules.
func TestOverride(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"instead of a rule, on its count": `
			m=1 => OK | OK 5/MINUTE five 4 56s
			m=1 @2/MINUTE => OK | OK 2/MINUTE 0 56s
			m=1 @2/MINUTE => OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 56s
			m=1 => OK | OK 5/MINUTE five 1 56s`,
		"beside a rule with an algorithm": `
			ours=1 @1/MINUTE => OK | OK 1/MINUTE 0 56s
			ours=1 => OK | OK 5/MINUTE ours 4 12s`,
		"units": `
			x=1 @9/SECOND => OK | OK 9/SECOND 8 1s
			x=1 @9/MINUTE => OK | OK 9/MINUTE 8 56s
			x=1 @9/HOUR => OK | OK 9/HOUR 8 59m56s
			x=1 @9/DAY => OK | OK 9/DAY 8 11h59m56s
			x=1 @9/MONTH => OK | OK 9/MONTH 8 131h59m56s
			x=1 @9/YEAR => OK | OK 9/YEAR 8 8411h59m56s
			x=1 @9/7 => OK | OK 9/WEEK 8 155h59m56s`,
		"a second and a minute do not meet": `
			wait 56s
			x=1 @2/MINUTE +2 => OK | OK 2/MINUTE 0 1m0s
			x=1 @2/SECOND +2 => OK | OK 2/SECOND 0 1s`,
		"looks and refunds": `
			x=1 @2/MINUTE +3 => OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 56s
			x=1 @2/MINUTE +0 => OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 56s
			x=1 @3/MINUTE +0 => OK | OK 3/MINUTE 0 56s
			x=1 @2/MINUTE -2 => OK | OK 2/MINUTE 1 56s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, overridden, rls.Mode{}).wants(lines)
		})
	}
	newBench(t, overridden, rls.Mode{}).want("OK | OK 0", "x=1 @0/MINUTE", in("unknown"))
}

// TestOverrideByAlgorithm: the file says how limits in descriptors count.
func TestOverrideByAlgorithm(t *testing.T) {
	t.Parallel()
	const file = `
domain: d
calls: {rls_algorithm: gcra}
descriptors:
  - key: ours
    rate_limit: {algorithm: gcra, requests_per_unit: 5, unit: minute, name: ours}
`
	b := newBench(t, file, rls.Mode{})
	b.wants(`
		x=1 @2/MINUTE => OK | OK 2/MINUTE 1 30s
		x=1 @2/MINUTE => OK | OK 2/MINUTE 0 1m0s
		x=1 @2/MINUTE => OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 30s
		wait 30s
		x=1 @2/MINUTE => OK | OK 2/MINUTE 0 1m0s
		x=1 @3/MINUTE +0 => OK | OK 3/MINUTE 1 40s`)
	// A refusal charges no other limit with an algorithm.
	b.wants(`
		x=1 @2/MINUTE; ours=1 => OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 30s | OK 5/MINUTE ours 5 0s`)
}

// TestManyOverrides brings more limits along than are remembered.
func TestManyOverrides(t *testing.T) {
	t.Parallel()
	b := newBench(t, overridden, rls.Mode{})
	for i := range 1100 {
		b.want(fmt.Sprintf("OK | OK %d/HOUR %d 59m56s", 2000+i, 1999), fmt.Sprintf("x=1 @%d/HOUR", 2000+i))
	}
	b.want("OK | OK 2000/HOUR 899 59m56s", "x=1 @2000/HOUR")
}
