package rls_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/rls"
)

const modes = `
domain: d
descriptors:
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: p, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: sq, quota_mode: true, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: n, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: big, rate_limit: {unit: hour, requests_per_unit: 5, name: b, replaces: [{name: small}, {name: nobody}]}}
  - {key: small, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
  - {key: tiny, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
  - key: alt
    rate_limit: {name: first, algorithm: gcra, unit: hour, requests_per_unit: 1}
    otherwise: [{rate_limit: {name: second, algorithm: gcra, unit: hour, requests_per_unit: 20}}]
`

// codes are the answers without their limits: the whole, then each descriptor.
func (b *bench) codes(want, descriptors string, changes ...change) {
	b.t.Helper()
	m, err := b.call(ask(b.t, descriptors, changes...))
	if err != nil {
		b.t.Fatal(err)
	}
	words := []string{m.GetOverallCode().String()}
	for _, s := range m.GetStatuses() {
		words = append(words, s.GetCode().String())
	}
	if got := strings.ReplaceAll(strings.Join(words, " "), "OVER_LIMIT", "OVER"); got != want {
		b.t.Errorf("%s: got %s, want %s", descriptors, got, want)
	}
}

// TestQuota: descriptors of quota rules refuse only together.
func TestQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode        rls.Mode
		want        string
		descriptors string // after one that has spent q, sq and n
	}{
		"one of two":               {rls.Mode{}, "OK OVER OK", "q=1; p=1"},
		"others cannot rescue":     {rls.Mode{}, "OVER OVER OK", "q=1; n=2"},
		"unmatched has no say":     {rls.Mode{}, "OVER OVER OK", "q=1; none=1"},
		"unlimited has no say":     {rls.Mode{}, "OVER OVER OK", "q=1; free=1"},
		"replaced has no say":      {rls.Mode{}, "OVER OVER OK OK", "q=1; tiny=1; big=1"},
		"an override is no quota":  {rls.Mode{}, "OVER OK OVER", "p=1; q=1 @1/MINUTE"},
		"all: one of two":          {rls.Mode{Quota: true}, "OK OVER OK", "n=1; p=1"},
		"all: unlimited no say":    {rls.Mode{Quota: true}, "OVER OVER OK", "n=1; free=1"},
		"all: an override counts":  {rls.Mode{Quota: true}, "OK OVER OK", "n=1; p=1 @5/MINUTE"},
		"all: nothing else":        {rls.Mode{Quota: true}, "OK OK", "free=1"},
		"shadow: the whole passes": {rls.Mode{Shadow: true}, "OK OVER OVER", "n=1; q=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, modes, c.mode)
			b.codes("OK OK OK OK", "q=1; sq=1; n=1")
			b.codes(c.want, c.descriptors)
		})
	}
}

// TestHeaders: the descriptor with the least remaining, or the last that is over.
func TestHeaders(t *testing.T) {
	t.Parallel()
	other := rls.HeaderNames{Limit: "X-Limit", Remaining: "X-Left", Reset: "X-Reset"}
	for name, c := range map[string]struct {
		mode        rls.Mode
		descriptors string
		want        []string
	}{
		"off":            {rls.Mode{}, "p=1", nil},
		"one":            {rls.Mode{Headers: &rls.DefaultHeaders}, "p=1", []string{"RateLimit-Limit: 9", "RateLimit-Remaining: 8", "RateLimit-Reset: 56"}},
		"other names":    {rls.Mode{Headers: &other}, "p=1", []string{"X-Limit: 9", "X-Left: 8", "X-Reset: 56"}},
		"least left":     {rls.Mode{Headers: &other}, "p=1; big=1; p=2", []string{"X-Limit: 5", "X-Left: 4", "X-Reset: 3596"}},
		"first of a tie": {rls.Mode{Headers: &other}, "x=1 @5/HOUR; x=2 @5/MINUTE", []string{"X-Limit: 5", "X-Left: 4", "X-Reset: 3596"}},
		"last that is over": {
			rls.Mode{Headers: &other}, "x=1 @0/MINUTE; x=2 @0/HOUR; x=3 @1/DAY", []string{"X-Limit: 0", "X-Left: 0", "X-Reset: 3596"},
		},
		"a quota has no precedence": {
			rls.Mode{Headers: &other}, "x=1 @1/MINUTE; q=1 +2; p=1", []string{"X-Limit: 1", "X-Left: 0", "X-Reset: 56"},
		},
		"no limit":  {rls.Mode{Headers: &other}, "none=1", []string{"weir-unmatched: rule"}},
		"unlimited": {rls.Mode{Headers: &other}, "free=1", nil},
		"alternatives": {
			rls.Mode{Headers: &other}, "alt=1 +2; p=1; alt=2", []string{"X-Limit: 1", "X-Left: 0", "X-Reset: 3600", "weir-alternative: 2, 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, modes, c.mode)
			m, err := b.call(ask(t, c.descriptors))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range m.GetResponseHeadersToAdd() {
				got = append(got, h.GetKey()+": "+h.GetValue())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const metadata = `
domain: d
descriptors:
  - key: a
    value_to_metric: true
    metadata: {team: one, nested: {x: 1, list: [1, two, {y: true}]}, none: ~}
    rate_limit: {unit: minute, requests_per_unit: 9}
  - {key: b, detailed_metric: true, metadata: {team: two, nested: {x: 2, z: 3}}, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: full, metadata: {team: three}, rate_limit: {unit: minute, requests_per_unit: 0}}
  - key: alt
    rate_limits: [{name: own, algorithm: gcra, unit: day, requests_per_unit: 9}]
    otherwise: [{rate_limits: [{name: last, algorithm: gcra, unit: day, requests_per_unit: 9}]}]
`

// TestMetadata: the request, and what the rules say that let it pass.
func TestMetadata(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	list := func(of ...any) []any { return of }
	a := object{"team": "one", "nested": object{"x": 1.0, "list": list(1.0, "two", object{"y": true})}, "none": nil}
	merged := object{"team": "one", "none": nil, "nested": object{"x": 1.0, "z": 3.0, "list": list(1.0, "two", object{"y": true})}}
	entries := func(of ...any) object { return object{"entries": of} }
	for name, c := range map[string]struct {
		descriptors string
		changes     []change
		want        object
	}{
		"one":     {"a=1", nil, object{"domain": "d", "descriptors": list(entries("a=1")), "metadata": a}},
		"merged":  {"a=1; b=1", nil, object{"domain": "d", "descriptors": list(entries("a=1"), entries("b=1")), "metadata": merged}},
		"refused": {"full=1; a=1", nil, object{"domain": "d", "descriptors": list(entries("full=1"), entries("a=1")), "metadata": a}},
		"alternatives": {"x=1; alt=1", nil, object{"domain": "d", "descriptors": list(entries("x=1"), entries("alt=1")), "alternatives": list(
			object{"descriptor": 1.0, "alternative": 1.0, "limit": "own"})}},
		"none": {"x=1,y=2", nil, object{"domain": "d", "descriptors": list(entries("x=1", "y=2"))}},
		"hits": {"x=1 +0; x=2 +3", []change{hits(2)}, object{"domain": "d", "hitsAddend": 2.0, "descriptors": list(
			object{"entries": list("x=1"), "hitsAddend": 0.0}, object{"entries": list("x=2"), "hitsAddend": 3.0})}},
		"overrides": {"x=1 @5/HOUR; x=2 @5/HOUR*2", nil, object{"domain": "d", "descriptors": list(
			object{"entries": list("x=1"), "limit": "requests_per_unit:5 unit:HOUR"},
			object{"entries": list("x=2"), "limit": "requests_per_unit:5 unit:HOUR unit_multiplier:{value:2}"})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metadata, rls.Mode{Metadata: true})
			// What was merged once must not stay in the rules.
			for range 2 {
				m, err := b.call(ask(t, c.descriptors, c.changes...))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, m.GetDynamicMetadata().AsMap()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	m, err := newBench(t, metadata, rls.Mode{}).call(ask(t, "a=1"))
	if err != nil || m.GetDynamicMetadata() != nil {
		t.Errorf("unasked: %v, %v", m, err)
	}
}
