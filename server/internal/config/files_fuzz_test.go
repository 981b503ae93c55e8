package config

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// YAML takes more than most: a node for a byte or two, and what is said of it.
const yamlBytes, yamlFactor = 2 << 20, 8

// FuzzFolder: several files are domains with a name each, once, or their mistakes are
// told; and other texts have another fingerprint.
func FuzzFolder(f *testing.F) {
	const one, same, other = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]", "domain: a\ndescriptors: [{key: k}]", "domain: b"
	f.Add(one, same, true)
	f.Add(one, same, false)
	f.Add(one, other, true)
	f.Add("", "- &a [*a, *a]", true)
	f.Fuzz(func(t *testing.T, first, second string, merge bool) {
		read := func(first, second string) *Reading {
			return &Reading{&loader{
				source: Source{Paths: []string{"d"}, Merge: merge},
				files:  []file{{"d/1.yaml", "d/1.yaml"}, {"d/2.yaml", "d/2.yaml"}},
				texts:  []text{{content: first}, {content: second}},
			}}
		}
		r := read(first, second)
		if r.Fingerprint() != read(first, second).Fingerprint() || (first == second) != (r.Fingerprint() == read(second, first).Fingerprint()) {
			t.Fatal("the fingerprint is not that of the texts")
		}
		fuzztest.Within(t, yamlBytes, yamlFactor*(len(first)+len(second)), func() {
			domains, err := r.Domains()
			if problems := Problems(nil); err != nil && (!errors.As(err, &problems) || len(problems) == 0) {
				t.Fatalf("%T %v", err, err)
			}
			seen := map[string]bool{}
			for _, d := range domains {
				if seen[d.Name] || d.Name == "" {
					t.Fatalf("domain %q again", d.Name)
				}
				seen[d.Name] = true
			}
		})
	})
}
