package rls_test

import (
	"testing"

	"github.com/weirlimit/weir/server/internal/rls"
)

const theirs = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3, name: three}}
  - {key: a, value: exempt}
  - {key: s, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: h, rate_limit: {unit: hour, requests_per_unit: 8}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: w, rate_limit: {unit: WEEK, requests_per_unit: 2}}
  - {key: mo, rate_limit: {unit: month, requests_per_unit: 2}}
  - {key: y, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: most, rate_limit: {unit: minute, requests_per_unit: 4294967295}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - key: outer
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - {key: inner, rate_limit: {unit: minute, requests_per_unit: 7}}
`

// TestCounting: units, limits and hits that TestModel does not draw.
func TestCounting(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"units": `
			s=1 => OK | OK 1/SECOND 0 1s
			h=1 => OK | OK 8/HOUR 7 59m56s
			day=1 => OK | OK 2/DAY 1 11h59m56s
			w=1 => OK | OK 2/WEEK 1 155h59m56s
			mo=1 => OK | OK 2/MONTH 1 131h59m56s
			y=1 => OK | OK 2/YEAR 1 8411h59m56s`,
		"the largest limit": `
			most=1 +4294967294 => OK | OK 4294967295/MINUTE 1 56s
			most=1 => OK | OK 4294967295/MINUTE 0 56s
			most=1 => OVER_LIMIT | OVER_LIMIT 4294967295/MINUTE 0 56s`,
		"more hits than are counted": `
			h=3 +9007199254740992 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s
			h=3 +18446744073709551610 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s
			h=3 => OK | OK 8/HOUR 7 59m56s
			h=4 +9007199254740991 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s
			h=4 +9007199254740991 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s
			h=4 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s`,
		"no limit": `
			none=1 => OK | OK 0
			a=exempt => OK | OK 0
			a=1,b=2 => OK | OK 0
			free=1 => OK | OK 4294967295
			none=1; a=1 => OK | OK 0 | OK 3/MINUTE three 2 56s`,
		"shadow": `
			watched=1 => OK | OK 1/MINUTE 0 56s
			watched=1 => OK | OK 1/MINUTE 0 56s
			watched=1 +0 => OK | OK 1/MINUTE 0 56s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, theirs, rls.Mode{}).wants(lines)
		})
	}
}

// TestRefund: negative hits give back, never beyond the limit.
func TestRefund(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"a part": `
			h=1 +5 => OK | OK 8/HOUR 3 59m56s
			h=1 -2 => OK | OK 8/HOUR 5 59m56s
			h=1 +6 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s
			h=1 -3 => OK | OK 8/HOUR 2 59m56s`,
		"never beyond": `
			h=1 +2 => OK | OK 8/HOUR 6 59m56s
			h=1 -100 => OK | OK 8/HOUR 8 59m56s
			h=1 +8 => OK | OK 8/HOUR 0 59m56s
			h=1 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s`,
		"an untouched one": `
			h=1 -100 => OK | OK 8/HOUR 8 59m56s
			h=1 +9 => OVER_LIMIT | OVER_LIMIT 8/HOUR 0 59m56s`,
		"nothing": `
			h=1 +1 => OK | OK 8/HOUR 7 59m56s
			h=1 -0 => OK | OK 8/HOUR 7 59m56s`,
		"one beside a charge": `
			h=1 +5; a=1 => OK | OK 8/HOUR 3 59m56s | OK 3/MINUTE three 2 56s
			h=1 -5; a=1 => OK | OK 8/HOUR 8 59m56s | OK 3/MINUTE three 1 56s`,
		"this window's only": `
			a=1 +3 => OK | OK 3/MINUTE three 0 56s
			wait 1m
			a=1 -3 => OK | OK 3/MINUTE three 3 56s
			a=1 +2 => OK | OK 3/MINUTE three 1 56s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, theirs, rls.Mode{}).wants(lines)
		})
	}
	b := newBench(t, theirs, rls.Mode{})
	b.want("OK | OK 8/HOUR 4 59m56s", "h=1", hits(4))
	m := ask(t, "h=1", hits(3))
	m.Descriptors[0].IsNegativeHits = true
	if got, err := b.call(m); err != nil || show(got) != "OK | OK 8/HOUR 7 59m56s" {
		t.Errorf("the request's hits, negative: %v %v", got, err)
	}
}
