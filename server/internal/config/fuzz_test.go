package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// YAML takes more than most: a node for a byte or two, and what is said of it. The line of
// a syntax error is found by halves, with a decoder for each.
const yamlBytes, yamlFactor = 2 << 20, 8

// FuzzParse wants any text to be read or refused with a place for each mistake.
func FuzzParse(f *testing.F) {
	for _, v := range verdicts {
		f.Add([]byte(v.text))
	}
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var domain *config.Domain
		var err error
		fuzztest.Within(t, yamlBytes, yamlFactor*len(text), func() { domain, err = config.Parse("f", text) })
		if err == nil {
			check(t, domain.Descriptors, 1)
			set, err := rules.Parse("f", text)
			if err != nil {
				t.Fatalf("the file is accepted, its rules are not: %v", err)
			}
			plan(t, set, domain.Name, nil, domain.Descriptors)
			return
		}
		var problems config.Problems
		if !errors.As(err, &problems) || len(problems) == 0 || len(problems) > config.MaxProblems+1 {
			t.Fatalf("%T %v", err, err)
		}
		for _, p := range problems {
			if p.What == "" || p.File != "f" {
				t.Errorf("%+v", p)
			}
		}
	})
}

// plan wants requests that match accepted descriptors to become valid acts.
func plan(t *testing.T, set *rules.Set, domain string, above []rules.Entry, list []*config.Descriptor) {
	for _, d := range list {
		entries := append(slices.Clip(above), rules.Entry{Key: strings.ReplaceAll(d.Key, "*", "x"), Value: strings.ReplaceAll(d.Value, "*", "x")})
		p, err := set.Plan(&rules.Request{Domain: domain, Descriptors: [][]rules.Entry{entries}, Cost: 1, ID: "id"})
		if err != nil && !errors.Is(err, weir.ErrInvalid) {
			t.Fatalf("%q: %T %v", entries, err, err)
		}
		for i := 0; err == nil && i < len(p.Acts); i++ {
			if acts.Check(p.Acts[i]); p.Acts[i].Err != nil {
				t.Fatalf("%q: %v", entries, p.Acts[i].Err)
			}
		}
		plan(t, set, domain, entries, d.Descriptors)
	}
}

// check wants of accepted descriptors what their users rely on.
func check(t *testing.T, list []*config.Descriptor, depth int) {
	if len(list) > 0 && depth > config.MaxDepth {
		t.Fatal("too deep")
	}
	for _, d := range list {
		if d.Key == "" {
			t.Error("no key")
		}
		for i, l := range d.Limits {
			if i > 0 && (l.Alternative < d.Limits[i-1].Alternative || l.Alternative > d.Limits[i-1].Alternative+1) || i == 0 && l.Alternative > 0 {
				t.Errorf("alternatives out of order: %+v", d.Limits)
			}
			if l.Grouped != d.Limits[0].Grouped || l.Unlimited && len(d.Limits) > 1 {
				t.Errorf("limits of two kinds: %+v", d.Limits)
			}
			if compiled, err := l.Limit.Compile(); err != nil && !l.Unlimited {
				t.Error(err)
			} else if err == nil && (l.Keep < 0 || l.Keep > 0 && l.Keep >= compiled.Capacity()) {
				t.Errorf("%+v keeps %d", l.Limit, l.Keep)
			}
		}
		check(t, d.Descriptors, depth+1)
	}
}
