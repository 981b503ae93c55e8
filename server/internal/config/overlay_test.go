package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

const overlaidRules = `
domain: default/eg/http
descriptors:
  - key: route
    value: a
    descriptors:
      - {key: rule-0-match-0, value: x, rate_limit: {unit: MINUTE, requests_per_unit: 100}}
      - {key: rule-1-match-0, value: x, rate_limit: {unit: month, requests_per_unit: 1000}}
      - {key: free, rate_limit: {unlimited: true}}
      - {key: ours, rate_limit: {unit: minute, requests_per_unit: 7, algorithm: sliding_log}}
  - {key: other, rate_limit: {unit: second, requests_per_unit: 5}}
`

// resource is a text of YAML as a domain that is in no file.
func resource(t *testing.T, text string) config.Resource {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return config.Resource{Name: "source", Root: document.Content[0], Path: func(line int) string { return "line " + string(rune('0'+line%10)) }}
}

func overlay(t *testing.T, text string) *config.Overlay {
	t.Helper()
	o, err := config.ParseOverlay("o.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOverlayChangesLimits(t *testing.T) {
	t.Parallel()
	o := overlay(t, `overlay:
  - {domain: "*/eg/*", path: "route=a,rule-*-match-*", unit: minute, algorithm: gcra, burst: 20, lease: true}
  - {domain: "*/eg/*", unit: month, algorithm: fixed_window, time_zone: Europe/Paris, anchor_day: 5, on_store_failure: deny}
  - {path: other, algorithm: sliding_log, period: 10s}
`)
	domains, err := config.Resources([]config.Resource{resource(t, overlaidRules)}, false, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Check(domains); err != nil {
		t.Error(err)
	}
	nested := domains[0].Descriptors[0].Descriptors
	got := []config.RateLimit{nested[0].Limits[0], nested[1].Limits[0], nested[2].Limits[0], nested[3].Limits[0], domains[0].Descriptors[1].Limits[0]}
	at := func(line int) config.Position { return config.Position{File: "o.yaml", Line: line, Column: 5} }
	want := []config.RateLimit{
		{Grouped: true, Lease: true, Unit: "minute", Overlay: at(2), Sent: "100 per minute", Limit: weir.Limit{Algorithm: weir.GCRA, Count: 100, Burst: 20, Period: time.Minute}},
		{
			Grouped: true, Unit: "month", OnStoreFailure: config.FailDeny, Overlay: at(3), Sent: "1000 per month",
			Limit: weir.Limit{Algorithm: weir.FixedWindow, Count: 1000, Period: 720 * time.Hour, TimeZone: "Europe/Paris", AnchorDay: 5},
		},
		{Unlimited: true},
		{Grouped: true, Unit: "minute", Limit: weir.Limit{Algorithm: weir.SlidingLog, Count: 7, Period: time.Minute}},
		{Grouped: true, Overlay: at(4), Sent: "5 per second", Limit: weir.Limit{Algorithm: weir.SlidingLog, Count: 5, Period: 10 * time.Second}},
	}
	for i := range got {
		got[i].At = config.Position{}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(weir.Limit{})); diff != "" {
		t.Error(diff)
	}
}

// TestOverlayCheck: a line that fits nothing is named, and one that a rule cannot have
// leaves the rule as it was sent.
func TestOverlayCheck(t *testing.T) {
	t.Parallel()
	o := overlay(t, `overlay:
  - {domain: nowhere, algorithm: gcra}
  - {unit: month, algorithm: sliding_log}
  - {path: "*-0=x", algorithm: fixed_window, time_zone: UTC}
  - {algorithm: gcra}
`)
	domains, err := config.Resources([]config.Resource{resource(t, overlaidRules)}, false, o)
	if err != nil {
		t.Fatal(err)
	}
	first := domains[0].Descriptors[0].Descriptors[0].Limits[0]
	if first.Grouped || first.Overlay != (config.Position{}) {
		t.Errorf("a wrong line changed %+v", first)
	}
	err = o.Check(domains)
	if err == nil {
		t.Fatal("no mistake was told")
	}
	want := `o.yaml:2:5: the line fits no rule; want the domain and path of a rule without algorithm
o.yaml:4:5: the rule route=a,rule-0-match-0=x of domain "default/eg/http", source line 7, cannot have this: unit is "MINUTE"; want day, week, month or year beside time_zone; o.yaml:4 has time_zone`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// TestOverlayOfFile: what a line and a rule disagree about stands in two files, which are
// both named.
func TestOverlayOfFile(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: hour\n      requests_per_unit: 5\n"
	if err := os.WriteFile(rules, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"{algorithm: gcra, keep: 7}":                "keep is 7; want less than 5, which is the requests_per_unit at " + rules + " line 6",
		"{algorithm: gcra, keep: 200000}":           "keep is 200000; want less than 5, which is the requests_per_unit at " + rules + " line 6",
		"{algorithm: fixed_window, time_zone: UTC}": `unit is "hour"; want day, week, month or year beside time_zone; o.yaml:1 has time_zone`,
		"{algorithm: gcra, burst: 900000000}":       "burst is 900000000; want a smaller burst, or a rounder count: this one cannot be counted exactly at 5/h; " + rules + " line 6 has requests_per_unit",
	} {
		o, err := config.ParseOverlay("o.yaml", []byte("overlay: ["+line+"]"))
		if err == nil {
			var domains []*config.Domain
			if domains, err = (config.Source{Paths: []string{rules}, Overlay: o}).Load(); err == nil {
				err = o.Check(domains)
			}
		}
		want = `o.yaml:1:11: the rule a of domain "d", ` + rules + ":5:7, cannot have this: " + want
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestOverlayMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "o.yaml:1:1: the file is empty",
		"overlays: []":                 `did you mean "overlay"?`,
		"overlay: [{domain: a}]":       "o.yaml:1:11: a line without algorithm",
		"overlay: [{algorithm: grca}]": `did you mean "gcra"?`,
		"overlay: [{algorithm: gcra, requests_per_unit: 5}]":                 `"requests_per_unit" stands in a line of the overlay`,
		"overlay: [{algorithm: sliding_log, burst: 2}]":                      "o.yaml:1:43: burst is 2",
		"overlay: [{algorithm: fixed_window, time_zone: Nowhere/At_All}]":    "time_zone is",
		"overlay: [{algorithm: fixed_window, time_zone: UTC, unit: minute}]": "o.yaml:1:11: unit is",
		"overlay: [{algorithm: gcra, burst: 1000000001}]":                    "o.yaml:1:36: burst is 1000000001; want 1 … 1000000000",
		"overlay: [{algorithm: gcra, unit: fortnight}]":                      `unit is "fortnight"`,
	} {
		if _, err := config.ParseOverlay("o.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestResourceProblems: the place of a mistake is that of the resource.
func TestResourceProblems(t *testing.T) {
	t.Parallel()
	_, err := config.Resources([]config.Resource{
		resource(t, "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n  - {key: a}\n"),
		resource(t, "domain: e\ndescriptors: [{key: a}]\n"),
		resource(t, "domain: e\n"),
	}, false, nil)
	want := `source line 4: key "a" without value again in the same list; want each pair once; source line 3 has it too
source line 3: unit is "fortnight"; want one of second, minute, hour, day, week, month, year
source line 1: domain "e" again; want one file a domain; source line 1 has it too`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v, want\n%s", err, want)
	}
}
