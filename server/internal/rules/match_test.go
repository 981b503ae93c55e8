package rules_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/internal/rules"
)

const matching = `
domain: d
descriptors:
  - {key: a, rate_limit: &limit {unit: hour, requests_per_unit: 1}}
  - {key: a, value: exact, rate_limit: *limit}
  - {key: a, value: "x*", rate_limit: *limit}
  - {key: a, value: "x*y", rate_limit: *limit}
  - {key: a, value: "ab*ba", rate_limit: *limit}
  - {key: a, value: "*one*two*", rate_limit: *limit}
  - {key: a, value: xavier, rate_limit: *limit}
  - {key: a, value: exempt}
  - key: n
    value: hiding
  - key: n
    value: "hid*"
    descriptors: [{key: m, rate_limit: *limit}]
  - key: n
    rate_limit: *limit
    descriptors:
      - key: m
        descriptors: [{key: o, value: z, rate_limit: *limit}]
      - {key: m, value: v, rate_limit: *limit}
  - {key: "w*", rate_limit: *limit}
  - {key: wild, value: "x*", rate_limit: *limit}
  - {key: wild, rate_limit: *limit}
  - {key: any, value: "*", rate_limit: *limit}
  - {key: any, rate_limit: *limit}
  - {key: k_, rate_limit: *limit}
  - {key: j, value: b_c, rate_limit: *limit}
  - {key: s, value: "a*", rate_limit: *limit}
`

// TestMatch has a row for each statement about the selection of rules: entries,
// and the path of the rule for them.
func TestMatch(t *testing.T) {
	t.Parallel()
	set := parse(t, matching)
	for entries, want := range map[string]string{
		"a=exact":         "d/a=exact",
		"a=other":         "d/a",
		"a=":              "d/a",
		"a=Exact":         "d/a",
		"a=x":             "d/a=x*",
		"a=xyy":           "d/a=x*",     // The first in the file, not the most specific.
		"a=xavier":        "d/a=xavier", // Exact wins wherever it stands.
		"a=x*y":           "d/a=x*y",    // Stars in requests are ordinary.
		"a=abba":          "d/a=ab*ba",
		"a=ab--ba":        "d/a=ab*ba",
		"a=aba":           "d/a", // Prefix and suffix do not overlap.
		"a=one two":       "d/a=*one*two*",
		"a=-one-two-":     "d/a=*one*two*",
		"a=two one":       "d/a",
		"a=exempt":        "",
		"A=exact":         "",
		"a=exact,b=c":     "", // Deeper than the rules.
		"n=hiding,m=1":    "", // The exact entry hides the wildcard that has a child.
		"n=hidden,m=1":    "d/n=hid*,m",
		"n=1":             "d/n",
		"n=1,m=1":         "",
		"n=1,m=v":         "d/n,m=v",
		"n=1,m=1,o=z":     "d/n,m,o=z",
		"n=1,m=v,o=z":     "", // Nor does a default help.
		"n=1,m=1,o=y":     "",
		"n=1,m=1,o=z,p=1": "",
		"wild=xy":         "d/w*",
		"w=":              "d/w*",
		"any=":            "d/any=*",
		"any=1":           "d/any=*",
		"k=":              "", // Keys and values do not run together.
		"k_=":             "d/k_",
		"j_b=c":           "",
		"s_a=1":           "",
		"":                "",
		"m=1":             "",
	} {
		plan, err := set.Plan(&rules.Request{Domain: "d", Descriptors: [][]rules.Entry{entriesOf(entries)}, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(plan.Applied) > 0 {
			got = plan.Applied[0].Rule.Path
		}
		if got != want {
			t.Errorf("%s is for %q, want %q", entries, got, want)
		}
	}
}

// entriesOf reads "key=value,key=value".
func entriesOf(text string) []rules.Entry {
	var entries []rules.Entry
	for part := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			entries = append(entries, rules.Entry{Key: key, Value: value})
		}
	}
	return entries
}

func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}
