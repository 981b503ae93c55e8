package config_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/internal/config"
)

// TestInstead wants a pattern settled to the model of a row, and every model refused that would
// not be cheaper, or could not answer.
func TestInstead(t *testing.T) {
	t.Parallel()
	const prices = `domain: d
models:
  - {model: "dear*", input: 3, output: 15}
  - {model: cheap-1, input: 1, output: 5}
  - {model: half, input: 1, output: 15}
  - {model: "any-*", input: 0, output: 0}
  - {model: claude-opus-4, input: 15, output: 75}
  - {model: claude-haiku-4, input: 1, output: 5}
descriptors:
`
	const general = "  - {key: user, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 10, INSTEAD}}\n"
	const special = "  - {key: user, descriptors: [{key: model, value: MODEL, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 10, INSTEAD}}]}\n"
	of := func(model string) string { return strings.Replace(special, "MODEL", model, 1) }
	budget := func(dollars string) string {
		return "  - {key: user, rate_limit: {algorithm: fixed_window, unit: day, count: usd, dollars: " + dollars + ", INSTEAD}}\n"
	}
	for _, test := range []struct {
		rules, instead string
		model          string
		part           int64
		want           string
	}{
		{general, "instead: cheap-1", "cheap-1", 0, ""},
		{general, "instead: 'cheap-*'", "cheap-1", 0, ""},
		{general, "instead: any-thing, at: 90%", "any-thing", 1, ""},
		{general, "instead: cheap-1, at: 99%", "cheap-1", 0, ""},
		{of("dear-2"), "instead: cheap-1, at: 50%", "cheap-1", 5, ""},
		{of("'*'"), "instead: claude-haiku-4", "claude-haiku-4", 0, ""},
		{of("'claude-*'"), "instead: 'claude-haiku-*'", "claude-haiku-4", 0, ""},
		{of("'claude-opus*'"), "instead: 'claude-haiku-*'", "claude-haiku-4", 0, ""},
		{general, "instead: 'none-*'", "", 0, `f:10:90: instead is "none-*"; want a model, or a pattern that matches a row of the prices without a *`},
		{general, "instead: 'any-*'", "", 0, "a pattern that matches a row of the prices without a *"},
		{general, "instead: unknown", "", 0, "a model with a price: no row of the prices matches it"},
		{general, "instead: claude-opus-4", "", 0, "a model that is cheaper in input and in output than one of the limit: claude-opus-4 costs $15 and $75"},
		{of("cheap-1"), "instead: cheap-1", "", 0, "a model that is cheaper in input and in output than one of the limit"},
		{of("half"), "instead: cheap-1", "", 0, "a model that is cheaper in input and in output than one of the limit"},
		{of("dear"), "instead: claude-haiku-4", "", 0, `a model of the same form as "dear"`},
		{of("claude-opus-4"), "instead: cheap-1", "", 0, `a model of the same form as "claude-opus-4"`},
		{general, "instead: ''", "", 0, "instead is empty; want the name of a cheaper model"},
		{general, "instead: [a]", "", 0, "instead is a list"},
		{general, "at: 90%", "", 0, "at without instead; want instead: MODEL beside it"},
		{general, "instead: cheap-1, at: 0%", "", 0, `at is "0%"; want 1% … 99%`},
		{general, "instead: cheap-1, at: 100%", "", 0, `at is "100%"; want 1% … 99%`},
		{general, "instead: cheap-1, at: 0.9", "", 0, `at is "0.9"; want 0% … 100%`},
		{general, "instead: cheap-1, at: 90%, lease: true", "", 0, "at beside lease: true"},
		{strings.Replace(general, "gcra, unit: day", "concurrency, period: 30s", 1), "instead: cheap-1, at: 90%", "", 0, "at beside algorithm: concurrency"},
		{budget("20000"), "instead: cheap-1, at: 95%", "cheap-1", 1_000_000_000, ""},
		{budget("20000"), "instead: cheap-1, at: 90%", "cheap-1", 2_000_000_000, ""},
		{budget("999999999.999999"), "instead: cheap-1, at: 1%", "cheap-1", 989_999_999_999_999, ""},
		{general, "instead: cheap-1, block: 1m", "", 0, "instead beside block; want one of the two"},
		{strings.Replace(general, "algorithm: gcra, ", "", 1), "instead: cheap-1", "", 0, "instead without algorithm"},
	} {
		d, err := config.Parse("f", []byte(prices+strings.Replace(test.rules, "INSTEAD", test.instead, 1)))
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s %s: %v, want %s", test.rules, test.instead, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", test.rules, test.instead, err)
			continue
		}
		e := d.Descriptors[0]
		if len(e.Descriptors) > 0 {
			e = e.Descriptors[0]
		}
		if l := e.Limits[0]; l.Instead != test.model || l.Part != test.part {
			t.Errorf("%s %s: %q, %d", test.rules, test.instead, l.Instead, l.Part)
		}
	}
}
