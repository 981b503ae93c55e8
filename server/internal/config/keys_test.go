package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
)

// mistakes reads a file around one key of a scope and returns what is said of it.
func mistakes(s *scope, k property, value, others string) string {
	line := k.name + ": " + value + "\n"
	switch s {
	case inDescriptor:
		line = "domain: d\ndescriptors: [{" + others + ", " + strings.TrimSpace(line) + "}]\n"
	case inLimit:
		line = "domain: d\ndescriptors: [{key: a, rate_limit: {" + others + ", " + strings.TrimSpace(line) + "}}]\n"
	case inBudget:
		if !strings.Contains(others, "algorithm") && k.name != "algorithm" {
			others = "algorithm: gcra, " + others
		}
		line = "domain: d\nbudgets: {m: {" + others + ", " + strings.TrimSpace(line) + "}}\ndescriptors: [{key: a, rate_limit: {budget: m}}]\n"
	case inSharing:
		others = strings.ReplaceAll(others, "algorithm: gcra, ", "")
		if k.name != "guarantee" {
			others += ", guarantee: {x: 1}"
		}
		line = "domain: d\ndescriptors: [{key: a, shares: {" + others + ", " + strings.TrimSpace(line) + "}}]\n"
	case inAlternative:
		line = "domain: d\ndescriptors: [{key: a, rate_limit: {algorithm: gcra, requests_per_unit: 1, unit: day}, otherwise: [{" + strings.TrimSpace(line) + "}]}]\n"
	case inModel:
		line = "domain: d\nmodels: [{" + others + ", " + strings.TrimSpace(line) + "}]\ndescriptors: []\n"
	case inPrices:
		if err := CheckPrices("f", []byte("{"+strings.TrimSpace(line)+"}")); err != nil {
			return err.Error()
		}
		return ""
	case inCalls:
		line = "domain: d\ncalls: {" + strings.TrimSpace(line) + "}\n"
	case inNamed:
		if !strings.Contains(others, "algorithm") && k.name != "algorithm" {
			others = "algorithm: gcra, " + others
		}
		line = "domain: d\ncalls: {names: {n: {" + others + ", " + strings.TrimSpace(line) + "}}}\n"
	case inReplaces:
		line = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, replaces: [{" + strings.TrimSpace(line) + "}]}}]\n"
	}
	if _, err := Parse("f", []byte(line)); err != nil {
		return err.Error()
	}
	return ""
}

// beside is what must stand beside a key so that nothing but its value can be wrong.
func (k property) beside() string {
	switch {
	case k.name == "algorithm":
		return "requests_per_unit: 1, period: 1s"
	case k.name == "unit":
		return "requests_per_unit: 1"
	case k.name == "requests_per_unit":
		return "unit: day, algorithm: fixed_window"
	case k.name == "anchor_day":
		return "algorithm: fixed_window, unit: month, time_zone: UTC, requests_per_unit: 1"
	case k.name == "period":
		return "algorithm: gcra, requests_per_unit: 1"
	case k.name == "dollars":
		return "algorithm: gcra, unit: second, count: usd"
	case k.name == "count" || k.name == "show" || k.name == "instead" || k.name == "at" || k.name == "on_store_failure" || k.name == "max_keys":
		return "algorithm: gcra, unit: second, requests_per_unit: 1"
	case k.name == "alert":
		return "algorithm: fixed_window, unit: day, requests_per_unit: 1"
	case k.name == "was":
		return "algorithm: gcra, unit: second, requests_per_unit: 1, name: new"
	case k.name == "keep_dollars":
		return "algorithm: fixed_window, unit: month, count: usd, dollars: 1000"
	case k.name == "keep":
		return "algorithm: fixed_window, unit: month, requests_per_unit: 999999999999999"
	case k.name == "quota":
		return "algorithm: gcra, unit: second, requests_per_unit: 2"
	case k.ours:
		return "algorithm: " + k.algorithms[0] + ", unit: second, requests_per_unit: 1"
	default:
		return "unit: day"
	}
}

// TestKeysAreRead wants every known key to be looked at: nothing reads a map of
// lists without a word about it.
func TestKeysAreRead(t *testing.T) {
	t.Parallel()
	for _, s := range scopes {
		for _, k := range s.keys {
			others := k.beside()
			if s == inDescriptor || s == inModel {
				others = "x-nothing: ~"
			}
			wrong := "[[{}]]"
			if got := mistakes(s, k, wrong, others); !strings.Contains(got, k.name+" is a list") && !strings.Contains(got, "a list where a map belongs") &&
				!strings.Contains(got, "in "+k.name) {
				t.Errorf("%s %s: %q", k.name, s.name, got)
			}
		}
	}
}

// TestWords wants the reader to take the words of the table and no others.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, k := range inLimit.keys {
		for _, w := range k.words {
			others := k.beside()
			if w == MeterUSD {
				others = "algorithm: gcra, unit: second, dollars: 1"
			}
			if got := mistakes(inLimit, k, w, others); got != "" {
				t.Errorf("%s: %s: %s", k.name, w, got)
			}
		}
		if len(k.words) > 0 {
			if got := mistakes(inLimit, k, "nonsense", k.beside()); !strings.Contains(got, oneOf(k.words)) {
				t.Errorf("%s: nonsense: %q, want %s", k.name, got, oneOf(k.words))
			}
		}
	}
}

// TestBoundsOfNumbers wants the reader to take the numbers of the table and no others.
func TestBoundsOfNumbers(t *testing.T) {
	t.Parallel()
	for _, k := range inLimit.keys {
		if k.form != asNumber {
			continue
		}
		for value, good := range map[int64]bool{k.least: true, k.most: true, k.least - 1: false, k.most + 1: false} {
			if got := mistakes(inLimit, k, fmt.Sprint(value), k.beside()); (got == "") != good {
				t.Errorf("%s: %d: %q", k.name, value, got)
			}
		}
	}
}

// TestLargestCounts wants the counts that depend on an algorithm to be those that
// the library takes.
func TestLargestCounts(t *testing.T) {
	t.Parallel()
	count := property{name: "requests_per_unit"}
	for _, name := range algorithms() {
		most := int64(mostUnits)
		if name == weir.SlidingLog.String() {
			most = mostLogged
		}
		if name == weir.FixedWindow.String() {
			most = mostWindow
		}
		for value, good := range map[int64]bool{most: true, most + 1: false} {
			if got := mistakes(inLimit, count, fmt.Sprint(value), "period: 1s, algorithm: "+name); (got == "") != good {
				t.Errorf("%s: %d: %q", name, value, got)
			}
		}
	}
	for value, good := range map[int64]bool{mostCounted: true, mostCounted + 1: false} {
		if got := mistakes(inLimit, count, fmt.Sprint(value), "period: 1s, charge_refused: true, algorithm: "+weir.FixedWindow.String()); (got == "") != good {
			t.Errorf("charge_refused: %d: %q", value, got)
		}
	}
}

// TestAlgorithmsOfKeys wants each key taken beside the algorithms of the table only.
func TestAlgorithmsOfKeys(t *testing.T) {
	t.Parallel()
	values := map[string]string{"burst": "1", "buckets": "2", "anchor": "first", "time_zone": "UTC", "charge_refused": "true"}
	for _, k := range inLimit.keys {
		if k.algorithms == nil || values[k.name] == "" {
			continue
		}
		var taken []string
		for _, name := range algorithms() {
			if mistakes(inLimit, k, values[k.name], "requests_per_unit: 1, unit: day, algorithm: "+name) == "" {
				taken = append(taken, name)
			}
		}
		if diff := cmp.Diff(k.algorithms, taken, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%s: %s", k.name, diff)
		}
	}
}
