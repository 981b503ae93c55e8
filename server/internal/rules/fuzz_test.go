package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/rules"
)

const fuzzed = `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 5}
    descriptors:
      - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}
      - {key: b, rate_limits: [{unit: hour, requests_per_unit: 5, algorithm: gcra, name: n}, {unit: day, requests_per_unit: 9, algorithm: sliding_log}]}
  - {key: b, value: "x*", rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: "w*", rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: c
    budgets: {m: {requests_per_unit: 10, unit: hour, algorithm: gcra}}
    descriptors:
      - {key: a, rate_limit: {budget: m}}
      - {key: b, rate_limit: {budget: m, keep: 3}}
      - key: c
        rate_limits: [{name: own, requests_per_unit: 5, unit: hour, algorithm: gcra}]
        otherwise: [{rate_limits: [{budget: m, keep: 2}]}, {rate_limits: [{name: credits, requests_per_unit: 50, unit: day, algorithm: gcra}]}]
  - {key: t, shares: {requests_per_unit: 100, unit: hour, guarantee: {web: 30, ads: 50}}}
`

// FuzzPlan: requests of different entries charge different keys, apart from budgets, which
// belong to the entries that they begin with, whatever the entries are made of. A key leads
// back to its entries.
func FuzzPlan(f *testing.F) {
	f.Add("a", "1", "", "", "a", "2", "", "")
	f.Add("a", "1,b=2", "", "", "a", "1", "b", "2")
	f.Add("a", "1", "a", "}{%", "w/x=", ";hour", "", "")
	f.Add("b", "x\x00", "", "", "b", "x\xff", "", "")
	f.Add("a", strings.Repeat("y", 1000), "b", strings.Repeat("z", 1000), "w", "", "", "")
	f.Add("c", "1", "a", "2", "c", "1", "b", "3")
	f.Add("c", "1", "c", "2", "c", "1", "c", "#budget;m")
	f.Add("c", "1", "c", "m", "c", "1#budget;m", "a", "")
	f.Add("t", "web", "", "", "t", "#shares", "", "")
	f.Add("t", "ads", "", "", "t", "web guaranteed", "", "")
	set, err := rules.Parse("rules", []byte(fuzzed))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, value, key2, value2, other, otherValue, other2, otherValue2 string) {
		one, two := pairs(key, value, key2, value2), pairs(other, otherValue, other2, otherValue2)
		fuzztest.Within(t, fuzztest.MostBytes, 8*len(key+value+key2+value2+other+otherValue+other2+otherValue2), func() {
			keys, others := charged(t, set, one), charged(t, set, two)
			for _, k := range keys {
				domain, entries, ok := rules.ParseKey(k)
				owner := one
				switch {
				case strings.HasSuffix(k, ";t#shares"):
					owner = nil
				case strings.HasSuffix(k, ";c#budget;m"):
					owner = one[:1]
				}
				if ok && (domain != "d" || !slices.Equal(entries, owner)) || !ok && !strings.HasPrefix(k, "sha256:") {
					t.Fatalf("%q leads back to %q %q, want %q", k, domain, entries, owner)
				}
				charges := slices.Contains(others, k)
				if same := slices.Equal(one, two); same && !charges || !same && charges && (len(owner) == len(one) || !slices.Equal(owner, two[:len(owner)])) {
					t.Fatalf("%q and %q: %q is in %q", one, two, k, others)
				}
			}
		})
	})
}

func pairs(key, value, key2, value2 string) []rules.Entry {
	list := []rules.Entry{{Key: key, Value: value}}
	if key2+value2 != "" {
		list = append(list, rules.Entry{Key: key2, Value: value2})
	}
	return list
}

// charged returns the keys that a request charges.
func charged(t *testing.T, set *rules.Set, entries []rules.Entry) []string {
	t.Helper()
	plan, err := set.Plan(&rules.Request{Domain: "d", Descriptors: [][]rules.Entry{entries}, Cost: 1})
	if err != nil {
		if !errors.Is(err, weir.ErrInvalid) {
			t.Fatalf("%T %v", err, err)
		}
		return nil
	}
	var keys []string
	for _, a := range plan.Acts {
		if acts.Check(a); a.Err != nil {
			t.Fatalf("%q: %v", entries, a.Err)
		}
		for i := range a.Charges {
			k := a.Charges[i].Key
			if len(k) > weir.MaxKeyBytes || strings.ContainsAny(k, "{}\x00\r\n ") {
				t.Fatalf("%q has the key %q", entries, k)
			}
			keys = append(keys, k)
		}
	}
	return keys
}
