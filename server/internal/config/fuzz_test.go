package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/internal/fuzztest"
	"github.com/weirlimit/weir/server/internal/config"
)

// YAML takes more than most: a node for a byte or two, and what is said of it.
const yamlBytes, yamlFactor = 1 << 20, 8

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

// check wants of accepted descriptors what their users rely on.
func check(t *testing.T, list []*config.Descriptor, depth int) {
	if len(list) > 0 && depth > config.MaxDepth {
		t.Fatal("too deep")
	}
	for _, d := range list {
		if d.Key == "" {
			t.Error("no key")
		}
		for _, l := range d.Limits {
			if l.Grouped != d.Limits[0].Grouped || l.Unlimited && len(d.Limits) > 1 {
				t.Errorf("limits of two kinds: %+v", d.Limits)
			}
			if _, err := l.Limit.Compile(); err != nil && !l.Unlimited {
				t.Error(err)
			}
		}
		check(t, d.Descriptors, depth+1)
	}
}
