package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testserver"
)

const budgetRules = `domain: llm
descriptors:
  - key: model
    budgets: {m: {algorithm: gcra, requests_per_unit: 10, unit: day}}
    descriptors:
      - {key: class, value: live, rate_limit: {budget: m}}
      - {key: class, value: batch, rate_limit: {budget: m, keep: 4}}
      - key: class
        value: both
        hash_tag: [model]
        rate_limits: [{algorithm: gcra, requests_per_unit: 3, unit: day}, {budget: m, keep: 1}]
`

// TestBudgets has two instances and three classes share the budget of a model, in each
// store: a class never takes what it keeps for others, and the last one gets the rest.
func TestBudgets(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(budgetRules), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"memory": "memory", "redis": testserver.StartRedis(t).URL(), "cluster": testserver.StartCluster(t, 3).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Store: url, Config: rules}
			one := start(t, o)
			other := one
			if url != "memory" {
				other = start(t, o)
			}
			for _, c := range []struct {
				class       string
				calls, want int
			}{{"both", 5, 3}, {"batch", 6, 3}, {"live", 2, 2}, {"batch", 2, 0}, {"live", 4, 2}} {
				granted := 0
				for i := range c.calls {
					app := []*App{one, other}[i%2]
					switch status, body := get(t, app, "/v1/auth?domain=llm&model=x&class="+c.class); status {
					case 204:
						granted++
					case 429:
					default:
						t.Fatalf("%s: %d %s", c.class, status, body)
					}
				}
				if granted != c.want {
					t.Errorf("%s: %d of %d granted, want %d", c.class, granted, c.calls, c.want)
				}
			}
			status, body := posted(t, one, "/v1/take", `{"domain":"llm","descriptors":[{"entries":[{"key":"model","value":"y"},{"key":"class","value":"batch"}]}],"cost":6}`)
			if want := `"remaining":0,"retry_after_ms":0`; status != 200 || !strings.Contains(body, want) || !strings.Contains(body, `"name":"model,class=batch"`) || !strings.Contains(body, `"budget":"model#m","keep":4`) {
				t.Errorf("%d %s, want %s and the budget", status, body, want)
			}
			if status, body := posted(t, other, "/v1/take", `{"domain":"llm","descriptors":[{"entries":[{"key":"model","value":"y"},{"key":"class","value":"batch"}]}]}`); status != 429 || !strings.Contains(body, `"retry_after_ms":86`) {
				t.Errorf("one more: %d %s, want a retry after a tenth of a day", status, body)
			}
			status, body = posted(t, one, "/json", `{"domain":"llm","descriptors":[{"entries":[{"key":"model","value":"y"},{"key":"class","value":"live"}]}]}`)
			if status != 200 || !strings.Contains(body, `"limitRemaining":3`) {
				t.Errorf("Envoy's service: %d %s, want 3 of the 4 that batch kept", status, body)
			}
		})
	}
}
