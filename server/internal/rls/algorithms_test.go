package rls_test

import (
	"testing"

	"github.com/weirlimit/weir/server/internal/rls"
)

const ours = `
domain: d
descriptors:
  - {key: g, rate_limit: {unit: minute, requests_per_unit: 6, burst: 3, algorithm: gcra}}
  - {key: g, value: named, rate_limit: {unit: minute, requests_per_unit: 6, algorithm: gcra, name: n}}
  - {key: log, rate_limit: {period: 30s, requests_per_unit: 3, algorithm: sliding_log}}
  - {key: half, rate_limit: {period: 500ms, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: odd, rate_limit: {period: 1250ms, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: fort, rate_limit: {period: 336h, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: leaky, rate_limit: {unit: minute, requests_per_unit: 6, burst: 5, algorithm: leaky_bucket}}
  - {key: seats, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: concurrency}}
  - {key: zero, rate_limit: {unit: minute, requests_per_unit: 0, algorithm: gcra}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: gcra}}
  - {key: cell, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: rolling_window}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
  - key: two
    rate_limits:
      - {unit: second, requests_per_unit: 2, algorithm: fixed_window, name: quick}
      - {unit: hour, requests_per_unit: 4, algorithm: fixed_window, name: slow}
`

// TestAlgorithms: rules of Weir's own, asked by Envoy.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"a grant says when all is new, a refusal when to return": `
			g=1 => OK | OK 6/MINUTE g 2 10s
			g=1 +2 => OK | OK 6/MINUTE g 0 30s
			g=1 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 10s
			g=1 +2 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 20s
			wait 9999ms
			g=1 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 1s
			wait 1ms
			g=1 => OK | OK 6/MINUTE g 0 30s`,
		"a refusal is not charged": `
			g=1 +4 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 596523h14m7s
			g=1 +3 => OK | OK 6/MINUTE g 0 30s`,
		"the file's name": `
			g=named => OK | OK 6/MINUTE n 5 10s`,
		"periods": `
			log=1 => OK | OK 3/SECOND*30 log 2 30s
			half=1 => OK | OK 6/SECOND half 2 1s
			odd=1 => OK | OK 4/SECOND*2 odd 2 1s
			week=1 => OK | OK 3/WEEK week 2 155h59m56s
			fort=1 => OK | OK 3/WEEK*2 fort 2 323h59m56s`,
		"looks": `
			g=1 +0 => OK | OK 6/MINUTE g 3 0s
			g=1 +3 => OK | OK 6/MINUTE g 0 30s
			g=1 +0 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 30s
			wait 10s
			g=1 +0 => OK | OK 6/MINUTE g 1 20s
			seats=1 +0 => OK | OK 2/MINUTE seats 2 0s
			zero=1 +0 => OVER_LIMIT | OVER_LIMIT 0/MINUTE zero 0 596523h14m7s`,
		"what would have to wait is refused": `
			leaky=1 +2 => OK | OK 6/MINUTE leaky 0 20s
			leaky=1 +0 => OVER_LIMIT | OVER_LIMIT 6/MINUTE leaky 0 20s
			leaky=1 => OVER_LIMIT | OVER_LIMIT 6/MINUTE leaky 0 20s
			wait 20s
			leaky=1 +0 => OK | OK 6/MINUTE leaky 5 0s
			leaky=1 => OK | OK 6/MINUTE leaky 0 10s`,
		"shadow": `
			watched=1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 +0 => OK | OK 1/MINUTE watched 0 1m0s`,
		"several limits, the strictest speaks": `
			two=1 => OK | OK 2/SECOND quick 1 1s
			two=1 => OK | OK 2/SECOND quick 0 1s
			two=1 => OVER_LIMIT | OVER_LIMIT 2/SECOND quick 0 1s
			wait 1s
			two=1 +2 => OK | OK 2/SECOND quick 0 1s
			wait 1s
			two=1 => OVER_LIMIT | OVER_LIMIT 4/HOUR slow 0 59m54s`,
		"all or nothing, over descriptors": `
			g=1 +3 => OK | OK 6/MINUTE g 0 30s
			g=1; cell=1 => OVER_LIMIT | OVER_LIMIT 6/MINUTE g 0 10s | OK 3/MINUTE cell 3 0s
			cell=1; g=2 +2 => OK | OK 3/MINUTE cell 2 1m1s | OK 6/MINUTE g 1 20s
			plain=1; g=1 => OVER_LIMIT | OK 3/MINUTE 2 56s | OVER_LIMIT 6/MINUTE g 0 10s`,
		"more than can be asked": `
			cell=1; g=1 +1000000001 => OVER_LIMIT | OK 3/MINUTE cell 3 0s | OVER_LIMIT 6/MINUTE g 0 596523h14m7s
			cell=1; g=1 +18446744073709551615 => OVER_LIMIT | OK 3/MINUTE cell 3 0s | OVER_LIMIT 6/MINUTE g 0 596523h14m7s
			g=1 +0; cell=1 +4 => OVER_LIMIT | OK 6/MINUTE g 3 0s | OVER_LIMIT 3/MINUTE cell 0 596523h14m7s`,
		"refunds": `
			g=1 +3 => OK | OK 6/MINUTE g 0 30s
			g=1 -2 => OK | OK 6/MINUTE g 2 10s
			g=1 -2 => OK | OK 6/MINUTE g 3 0s
			two=1 +2 => OK | OK 2/SECOND quick 0 1s
			two=1 -1; g=1 => OK | OK 2/SECOND quick 1 1s | OK 6/MINUTE g 2 10s
			two=1 +0 => OK | OK 2/SECOND quick 1 1s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, ours, rls.Mode{}).wants(lines)
		})
	}
}

// TestAlternatives: what remains of a rule with alternatives is the most that one charge
// could take.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	newBench(t, `
domain: d
budgets: {pool: {algorithm: gcra, unit: day, requests_per_unit: 1000}}
descriptors:
  - {key: others, rate_limit: {budget: pool}}
  - key: t
    rate_limits: [{name: own, algorithm: gcra, unit: day, requests_per_unit: 10}]
    otherwise: [{rate_limits: [{name: shared, budget: pool}]}]
  - key: two
    rate_limits: [{name: own, algorithm: gcra, unit: day, requests_per_unit: 10}, {name: shared, budget: pool}]
    otherwise: [{rate_limits: [{name: last, algorithm: gcra, unit: day, requests_per_unit: 6}]}]
`, rls.Mode{}).wants(`
		others=1 +800 => OK | OK 1000/DAY others 200 19h12m0s
		two=1 +5 => OK | OK 10/DAY own 5 12h0m0s
		two=1 +0 => OK | OK 6/DAY last 6 0s
		t=1 +5 => OK | OK 10/DAY own 5 12h0m0s
		t=1 +0 => OK | OK 1000/DAY shared 195 19h19m12s
		t=1 +150 => OK | OK 1000/DAY shared 45 22h55m12s
		t=1 +41 => OK | OK 1000/DAY shared 4 23h54m15s
		t=1 +0 => OK | OK 10/DAY own 5 12h0m0s
		two=1 +0 => OK | OK 6/DAY last 6 0s`)
}
