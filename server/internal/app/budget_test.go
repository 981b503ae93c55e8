package app

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/rls"
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

// inEachStore tests two instances with one rules file on a Redis and on a cluster, and one
// instance, as both, in memory.
func inEachStore(t *testing.T, o Options, rules string, test func(t *testing.T, one, other *App)) {
	t.Helper()
	file := rulesFor(t, rules)
	for name, url := range map[string]string{
		"memory": "memory", "redis": testserver.StartRedis(t).URL(), "cluster": testserver.StartCluster(t, 3).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := o
			o.Store, o.Config = url, file
			one := start(t, o)
			other := one
			if url != "memory" {
				other = start(t, o)
			}
			test(t, one, other)
		})
	}
}

// TestBudgets has two instances and three classes share the budget of a model, in each
// store: a class never takes what it keeps for others, and the last one gets the rest.
func TestBudgets(t *testing.T) {
	t.Parallel()
	inEachStore(t, Options{}, budgetRules, func(t *testing.T, one, other *App) {
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

const waterfallRules = `domain: llm
budgets: {pool: {algorithm: gcra, requests_per_unit: 4, unit: day}}
descriptors:
  - key: tenant
    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 2, unit: day}]
    otherwise:
      - rate_limits: [{budget: pool, keep: 1, name: shared}]
`

// TestAlternatives has two instances spend tenants' own limits first and then what a pool
// has beyond what is kept, in each store. Answers name the alternative.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	inEachStore(t, Options{RLS: rls.Mode{Metadata: true}}, waterfallRules, func(t *testing.T, one, other *App) {
		for i, c := range []struct {
			tenant, want string
			status       int
		}{
			{"a", "1", 204},
			{"a", "1", 204},
			{"a", "2", 204},
			{"b", "1", 204},
			{"a", "2", 204},
			{"b", "1", 204},
			{"b", "2", 204},
			{"c", "1", 204},
			// A unit of the pool comes back every quarter of a day, but its last one is kept;
			// the next own unit comes after half a day.
			{"b", "2", 429},
			{"c", "1", 204},
			{"c", "2", 429},
		} {
			app := []*App{one, other}[i%2]
			resp, _ := send(t, app, "http", "GET", "/v1/auth?domain=llm&tenant="+c.tenant, "")
			if got := resp.Header.Get("X-Weir-Alternative"); resp.StatusCode != c.status || got != c.want {
				t.Errorf("call %d: %d by alternative %q, want %d by %q", i, resp.StatusCode, got, c.status, c.want)
			}
		}
		ask := `{"domain":"llm","descriptors":[{"entries":[{"key":"tenant","value":"d"}]}],"cost":1,"id":"x"}`
		status, body := posted(t, other, "/v1/take", ask)
		for _, want := range []string{`"granted":1,"id":"x"`, `"name":"own"`, `"alternative":1,"chosen":true`, `"name":"shared"`, `"source":"none","budget":"pool","keep":1,"alternative":2}`} {
			if status != 200 || !strings.Contains(body, want) {
				t.Errorf("%d %s, want %s", status, body, want)
			}
		}
		if status, body := posted(t, one, "/v1/refund", ask); status != 200 || !strings.Contains(body, `"granted":1`) {
			t.Errorf("refund: %d %s", status, body)
		}
		status, body = posted(t, one, "/json", `{"domain":"llm","descriptors":[{"entries":[{"key":"tenant","value":"a"}]}]}`)
		body = strings.ReplaceAll(body, ", ", ",") // protojson has spaces in some builds
		if status != 429 || !strings.Contains(body, `"name":"shared"`) || !strings.Contains(body, `"alternatives":[{"alternative":2,"descriptor":0,"limit":"shared"}]`) {
			t.Errorf("Envoy's service: %d %s", status, body)
		}
	})
}

const shareRules = `domain: llm
descriptors:
  - key: team
    shares: {requests_per_unit: 100, unit: day, burst: 40, headroom: 16, guarantee: {search: 30, ads: 50}}
`

// TestShares has a team without a guarantee flood two instances in each store: the teams
// that return get what is guaranteed to them at once, and nobody gets more than the budget.
func TestShares(t *testing.T) {
	t.Parallel()
	inEachStore(t, Options{}, shareRules, func(t *testing.T, one, other *App) {
		// 30 and 50 of 100 have 5 and 8 units of the headroom.
		for _, c := range []struct {
			team        string
			calls, want int
		}{{"flood", 40, 27}, {"search", 9, 5}, {"flood", 2, 0}, {"ads", 9, 8}, {"search", 2, 0}} {
			var granted atomic.Int64
			var clients sync.WaitGroup
			for i := range c.calls {
				clients.Go(func() {
					if status, _ := get(t, []*App{one, other}[i%2], "/v1/auth?domain=llm&team="+c.team); status == 204 {
						granted.Add(1)
					}
				})
			}
			clients.Wait()
			if int(granted.Load()) != c.want {
				t.Errorf("%s: %d of %d granted, want %d", c.team, granted.Load(), c.calls, c.want)
			}
		}
	})
}
