package rls_test

import (
	"fmt"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rls"
)

const quotas = `
domain: d
x-limits: [&year {algorithm: fixed_window, unit: year, requests_per_unit: 5}]
descriptors:
  - {key: five, quota_mode: true, rate_limit: *year}
  - {key: twenty, quota_mode: true, rate_limit: {<<: *year, requests_per_unit: 20}}
  - {key: none, quota_mode: true, rate_limit: {<<: *year, requests_per_unit: 0}}
  - {key: watched, quota_mode: true, shadow_mode: true, rate_limit: *year}
  - {key: plain, rate_limit: {<<: *year, requests_per_unit: 50}}
  - {key: three, rate_limit: {<<: *year, requests_per_unit: 3}}
  - {key: theirs, rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: theirs-quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: two
    quota_mode: true
    rate_limits: [{<<: *year, requests_per_unit: 9, name: nine}, {<<: *year, requests_per_unit: 4, name: four}]
`

// TestQuotaWithAlgorithm counts how many of 300 requests pass and what they leave:
// descriptors in quota mode refuse only together, and only what passes is charged.
func TestQuotaWithAlgorithm(t *testing.T) {
	t.Parallel()
	all := rls.Mode{Quota: true}
	for name, c := range map[string]struct {
		mode              rls.Mode
		descriptors, left string
		passed            int
	}{
		"one":                        {rls.Mode{}, "five=1", "five 0", 5},
		"the larger one decides":     {rls.Mode{}, "five=1; twenty=1", "five 0, twenty 0", 20},
		"in any order":               {rls.Mode{}, "twenty=1; five=1", "five 0, twenty 0", 20},
		"a limit beside is charged":  {rls.Mode{}, "five=1; plain=1; twenty=1", "five 0, twenty 0, plain 30", 20},
		"a limit beside refuses":     {rls.Mode{}, "five=1; three=1; twenty=1", "five 2, twenty 17, three 0", 3},
		"one that is always spent":   {rls.Mode{}, "none=1; five=1", "five 0", 5},
		"costs that do not fit":      {rls.Mode{}, "five=1 +6; twenty=1 +3", "five 5, twenty 2", 6},
		"costs that can never fit":   {rls.Mode{}, "five=1 +1000000001; twenty=1; plain=1", "five 5, twenty 0, plain 30", 20},
		"two limits of a descriptor": {rls.Mode{}, "two=1; twenty=1", "two 0, twenty 0", 20},
		"a shadow passes":            {rls.Mode{}, "five=1; watched=1", "five 0", 300},
		"a look passes":              {rls.Mode{}, "five=1; twenty=1 +0", "five 0, twenty 20", 300},
		"one by itself passes":       {rls.Mode{}, "five=1; theirs-quota=1; plain=1", "five 0, theirs-quota 0, plain 43", 7},
		"one by itself is spent":     {rls.Mode{}, "twenty=1; theirs-quota=1; plain=1", "twenty 0, theirs-quota 0, plain 30", 20},
		"one by itself refuses":      {rls.Mode{}, "five=1; twenty=1; theirs=1", "five 0, twenty 13, theirs 0", 7},
		"unlimited has no say":       {rls.Mode{}, "five=1; free=1", "five 0", 5},
		"all: no two refuse":         {all, "three=1; plain=1", "three 0, plain 0", 50},
		"all: with two limits":       {all, "two=1; three=1; plain=1", "two 0, three 0, plain 0", 50},
		"all: unmatched passes":      {all, "three=1; nobody=1", "three 0", 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, quotas, c.mode)
			passed := 0
			for range 300 {
				m, err := b.call(ask(t, c.descriptors))
				if err != nil {
					t.Fatal(err)
				}
				if m.GetOverallCode().String() == "OK" {
					passed++
				}
			}
			if left := b.left(c.left); passed != c.passed || left != c.left {
				t.Errorf("%d passed and left %s, want %d and %s", passed, left, c.passed, c.left)
			}
		})
	}
}

// left looks at what remains for the keys that a text like its result names.
func (b *bench) left(of string) string {
	b.t.Helper()
	var left []string
	for part := range strings.SplitSeq(of, ", ") {
		key, _, _ := strings.Cut(part, " ")
		m, err := b.call(ask(b.t, key+"=1 +0"))
		if err != nil {
			b.t.Fatal(err)
		}
		left = append(left, fmt.Sprint(key, " ", m.GetStatuses()[0].GetLimitRemaining()))
	}
	return strings.Join(left, ", ")
}

// TestQuotaStatuses: each descriptor is told its own, whichever act decided it.
func TestQuotaStatuses(t *testing.T) {
	t.Parallel()
	newBench(t, quotas, rls.Mode{}).wants(`
		five=1 +5 => OK | OK 5/YEAR five 0 8411h59m56s
		five=1; plain=1; twenty=1 +20 => OK | OVER_LIMIT 5/YEAR five 0 8411h59m56s | OK 50/YEAR plain 49 8411h59m56s | OK 20/YEAR twenty 0 8411h59m56s
		five=1; plain=1; twenty=1 => OVER_LIMIT | OVER_LIMIT 5/YEAR five 0 8411h59m56s | OK 50/YEAR plain 49 8411h59m56s | OVER_LIMIT 20/YEAR twenty 0 8411h59m56s`)
}

// TestLooksBesideCharges: a look says what there was before the request charged.
func TestLooksBesideCharges(t *testing.T) {
	t.Parallel()
	newBench(t, quotas, rls.Mode{}).wants(`
		three=1 +3; three=1 +0 => OK | OK 3/YEAR three 0 8411h59m56s | OK 3/YEAR three 3 0s
		three=1 +0; plain=1 +2 => OVER_LIMIT | OVER_LIMIT 3/YEAR three 0 8411h59m56s | OK 50/YEAR plain 50 0s
		three=2 +0; plain=1 +2 => OK | OK 3/YEAR three 3 0s | OK 50/YEAR plain 48 8411h59m56s
		three=2 +0; plain=1 +49 => OVER_LIMIT | OK 3/YEAR three 3 0s | OVER_LIMIT 50/YEAR plain 0 8411h59m56s`)
}

// TestChargedIfAndOnlyIfPassed draws requests of limits with an algorithm and wants
// a refused one to charge nothing, and one that passes each descriptor that is
// within its limits, whichever other limits refuse or grant beside them.
func TestChargedIfAndOnlyIfPassed(t *testing.T) {
	t.Parallel()
	keys := []string{"five", "twenty", "none", "plain", "three"}
	all := append([]string{"theirs", "theirs-quota", "two", "part", "x"}, keys...)
	rapid.Check(t, func(r *rapid.T) {
		b := newBench(t, quotas+"  - {key: part, enforce: 99.99%, rate_limit: *year}\n", rls.Mode{Quota: rapid.Bool().Draw(r, "all quota")})
		used := map[string]uint64{}
		for range rapid.IntRange(1, 20).Draw(r, "calls") {
			req := &rlsv3.RateLimitRequest{Domain: "d"}
			for _, key := range rapid.Permutation(all).Draw(r, "keys")[:rapid.IntRange(1, 5).Draw(r, "descriptors")] {
				cost := rapid.SampledFrom([]uint64{0, 1, 1, 1, 2, 6, weir.MaxCost + 1}).Draw(r, "cost")
				text := fmt.Sprintf("%s=1 +%d", key, cost)
				if key == "x" {
					text += " @1/YEAR"
				}
				req.Descriptors = append(req.Descriptors, descriptor(t, text))
			}
			answer, err := b.call(req)
			if err != nil {
				r.Fatal(err)
			}
			for i, d := range req.GetDescriptors() {
				if answer.GetOverallCode() == rlsv3.RateLimitResponse_OK && answer.GetStatuses()[i].GetCode() == rlsv3.RateLimitResponse_OK {
					used[d.GetEntries()[0].GetKey()] += d.GetHitsAddend().GetValue()
				}
			}
			for _, key := range keys {
				answer, err := b.call(ask(t, key+"=1 +0"))
				if err != nil {
					r.Fatal(err)
				}
				s := answer.GetStatuses()[0]
				if got := uint64(s.GetCurrentLimit().GetRequestsPerUnit() - s.GetLimitRemaining()); got != used[key] {
					r.Fatalf("%s: %d are charged after %v, want %d", key, got, req, used[key])
				}
			}
		}
	})
}
