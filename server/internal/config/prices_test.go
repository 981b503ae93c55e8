package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/config"
)

// TestPriceFile wants the rows of a price file in place of models, and the file, which may lie
// beside the rules in their folder, taken for no rules file.
func TestPriceFile(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"llm.yaml":           "domain: llm\nprices: prices.yaml\n",
		"prices.yaml":        "as_of: 2026-11-01\nmodels:\n  - {model: a, input: 0, output: 0.000001}\n",
		"other/shop.yaml":    "domain: shop\nprices: ../prices.yaml\n",
		"other/quoted.yaml":  "{domain: quoted, prices: 'prices.yml'}",
		"other/prices.yml":   `{as_of: "2026-11-02", models: [{model: b, input: 1, output: 2, cache_read: 0.5, reasoning: true}]}`,
		"other/unnamed.yaml": "domain: unnamed # has no prices\n",
	})
	reading := config.Source{Paths: []string{dir}}.Read()
	domains, err := reading.Domains()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range domains {
		for _, m := range d.Models {
			got[d.Name] += fmt.Sprint(d.AsOf.Format(time.DateOnly), " ", filepath.Base(m.At.File), ":", m.At.Line, " ", m.Name, " ", m.Input, " ", m.Output, " ", m.CacheRead, " ", m.Reasoning)
		}
	}
	want := map[string]string{
		"llm": "2026-11-01 prices.yaml:3 a 0 1 0 false", "shop": "2026-11-01 prices.yaml:3 a 0 1 0 false",
		"quoted": "2026-11-02 prices.yml:1 b 1000000 2000000 500000 true",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(domains) != 4 {
		t.Errorf("%d domains %s", len(domains), diff)
	}
	prices := reading.Prices()
	if diff := cmp.Diff([]string{filepath.Join(dir, "other/prices.yml"), filepath.Join(dir, "prices.yaml")}, prices); diff != "" {
		t.Error(diff)
	}
	// A change of the file shows, without a change of the rules.
	source := config.Source{Paths: []string{dir}}
	before := source.State(prices...)
	if err := os.WriteFile(filepath.Join(dir, "other/prices.yml"), []byte("as_of: 2026-11-03\nmodels: [{model: b, input: 1, output: 2}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if source.State(prices...).Same(before) || source.Read().Fingerprint() == reading.Fingerprint() {
		t.Error("a change of a price file does not show")
	}
}

// TestPriceMistakes wants mistakes in a price file listed with its name and their position.
func TestPriceMistakes(t *testing.T) {
	t.Parallel()
	const rules = "domain: llm\nprices: p\n"
	for text, wanted := range map[string]string{
		"":              "p:1:1: the file is empty; want as_of and models",
		"- a":           "p:1:1: a list where a map belongs",
		"models: [":     "p:1:1: not YAML",
		"as_of: monday": `p:1:8: as_of is "monday"; want the day on which the prices were right, such as 2026-11-01`,
		"as_of: 2999-01-01\nmodels: [{model: m, input: 1, output: 1}]": `p:1:8: as_of is "2999-01-01"; want a day that has come`,
		"models: [{model: m, input: 1, output: 1}]":                    "p:1:1: as_of is missing",
		"as_of: 2026-11-01":                                             "p:1:1: models is missing",
		"as_of: 2026-11-01\nmodels:":                                    "p:2:1: models is missing",
		"as_of: 2026-11-01\nmodels: [{model: m, input: 1}]":             "p:2:10: output is missing; want dollars per million tokens; 0 for none",
		"as_of: 2026-11-01\nmodels: [{model: m, input: , output: 1}]":   "p:2:21: input is missing; want dollars per million tokens; 0 for none",
		"as_of: 2026-11-01\nmodels: [{model: m, input: -1, output: 1}]": `p:2:28: input is "-1"; want dollars, 0 … 100000`,
		"as_of: 2026-11-01\nmodel: [{model: m, input: 1, output: 1}]":   `p:2:1: "model" stands in a price file; want it in models`,
	} {
		dir := put(t, map[string]string{"r.yaml": rules, "p": text})
		_, err := load(filepath.Join(dir, "r.yaml"))
		if err == nil || !strings.Contains(err.Error(), wanted) || !strings.Contains(err.Error(), filepath.Join(dir, "p")) {
			t.Errorf("%q: %v, want %s", text, err, wanted)
		}
		if err := config.CheckPrices("p", []byte(text)); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: %v, want %s", text, err, wanted)
		}
	}
	for text, wanted := range map[string]string{
		"domain: llm\nprices: gone\n":                         `r.yaml:2:9: prices is "gone": no such file or directory; want a price file that can be read`,
		"domain: llm\nprices: ''\n":                           "r.yaml:2:1: prices is empty; want the path of a price file",
		"domain: llm\nprices: [p]\n":                          "r.yaml:2:9: prices is a list; want text",
		"domain: llm\nprice: p\n":                             `r.yaml:2:1: unknown key "price"`,
		rules + "models: [{model: m, input: 1, output: 1}]\n": "r.yaml:3:1: models beside prices; want one of the two; line 2 has prices",
	} {
		dir := put(t, map[string]string{"r.yaml": text})
		if _, err := load(dir); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: %v, want %s", text, err, wanted)
		}
	}
	if _, err := config.Parse("r", []byte(rules)); err == nil || !strings.Contains(err.Error(), `r:2:1: prices is "p"; want models: these rules are in no file`) {
		t.Errorf("rules in no file: %v", err)
	}
}

// TestMergePrices wants the prices of a domain of several files kept, wherever they stand.
func TestMergePrices(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"1.yaml": "domain: d\ndescriptors: [{key: a}]", "2.yaml": "domain: d\nmodels: [{model: m, input: 1, output: 1}]",
	})
	source := config.Source{Paths: []string{dir}, Merge: true}
	if domains, err := source.Load(); err != nil || len(domains[0].Models) != 1 {
		t.Errorf("%v, %v", domains, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "3.yaml"), []byte("domain: d\nmodels: [{model: n, input: 1, output: 1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Load(); err == nil || !strings.Contains(err.Error(), "3.yaml:2:10: prices again in the same domain; want prices once") {
		t.Error(err)
	}
}
