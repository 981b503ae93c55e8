package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fuzztest"
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
`

// FuzzPlan: no two requests of different entries charge the same key, whatever the
// entries are made of, and a key leads back to its entries.
func FuzzPlan(f *testing.F) {
	f.Add("a", "1", "", "", "a", "2", "", "")
	f.Add("a", "1,b=2", "", "", "a", "1", "b", "2")
	f.Add("a", "1", "a", "}{%", "w/x=", ";hour", "", "")
	f.Add("b", "x\x00", "", "", "b", "x\xff", "", "")
	f.Add("a", strings.Repeat("y", 1000), "b", strings.Repeat("z", 1000), "w", "", "", "")
	set, err := rules.Parse("rules", []byte(fuzzed))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, value, key2, value2, other, otherValue, other2, otherValue2 string) {
		one, two := pairs(key, value, key2, value2), pairs(other, otherValue, other2, otherValue2)
		fuzztest.Within(t, fuzztest.MostBytes, 8*len(key+value+key2+value2+other+otherValue+other2+otherValue2), func() {
			keys, others := charged(t, set, one), charged(t, set, two)
			for _, k := range keys {
				if slices.Contains(others, k) != slices.Equal(one, two) {
					t.Fatalf("%q and %q: %q is in %q", one, two, k, others)
				}
				if domain, entries, ok := rules.ParseKey(k); ok && (domain != "d" || !slices.Equal(entries, one)) || !ok && !strings.HasPrefix(k, "sha256:") {
					t.Fatalf("%q leads back to %q %q", k, domain, entries)
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
