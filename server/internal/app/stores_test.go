package app

import (
	"encoding/json"
	"fmt"
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

// TestInEachStore tests two instances with one rules file on a Redis and on a cluster, and one
// instance, as both, in memory.
func TestInEachStore(t *testing.T) {
	t.Parallel()
	stores := map[string]string{"memory": "memory", "redis": testserver.StartRedis(t).URL(), "cluster": testserver.StartCluster(t, 3).URL()}
	for name, c := range map[string]struct {
		options Options
		rules   string
		test    func(t *testing.T, one, other *App)
	}{
		"budgets":      {Options{}, budgetRules, testBudgets},
		"alternatives": {Options{RLS: rls.Mode{Metadata: true}}, waterfallRules, testAlternatives},
		"shares":       {Options{}, shareRules, testShares},
		"holds":        {Options{}, seedRules, testHoldThenSettle},
		"back to back": {Options{}, seedRules, testBackToBack},
	} {
		for store, url := range stores {
			t.Run(name+"/"+store, func(t *testing.T) {
				t.Parallel()
				o := c.options
				o.Store, o.Config, o.StorePrefix = url, rulesFor(t, c.rules), strings.ReplaceAll(name, " ", "-")+":"
				one := start(t, o)
				other := one
				if store != "memory" {
					other = start(t, o)
				}
				c.test(t, one, other)
			})
		}
	}
}

// testBudgets has two instances and three classes share the budget of a model, in each
// store: a class never takes what it keeps for others, and the last one gets the rest.
func testBudgets(t *testing.T, one, other *App) {
	t.Helper()
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
}

const waterfallRules = `domain: llm
budgets: {pool: {algorithm: gcra, requests_per_unit: 4, unit: day}}
descriptors:
  - key: tenant
    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 2, unit: day}]
    otherwise:
      - rate_limits: [{budget: pool, keep: 1, name: shared}]
`

// testAlternatives has two instances spend tenants' own limits first and then what a pool
// has beyond what is kept, in each store. Answers name the alternative.
func testAlternatives(t *testing.T, one, other *App) {
	t.Helper()
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
}

const shareRules = `domain: llm
descriptors:
  - key: team
    shares: {requests_per_unit: 100, unit: day, burst: 40, headroom: 16, guarantee: {search: 30, ads: 50}}
`

// testShares has a team without a guarantee flood two instances in each store: the teams
// that return get what is guaranteed to them at once, and nobody gets more than the budget.
func testShares(t *testing.T, one, other *App) {
	t.Helper()
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
}

const seedRules = `domain: seeds
descriptors:
  - {key: log, rate_limit: {algorithm: sliding_log, requests_per_unit: 5, period: 60s}}
  - {key: rolling, rate_limit: {algorithm: rolling_window, requests_per_unit: 10, unit: hour, buckets: 60}}
  - key: model # tokens a year, so that none come back meanwhile, and calls at a time
    rate_limits:
      - {algorithm: gcra, requests_per_unit: 1000, unit: year}
      - {algorithm: concurrency, requests_per_unit: 1, unit: hour}
`

// A reply is what a call was answered, be it a decision or a problem.
type reply struct {
	ID, Code string
	Granted  int64
	Limits   []struct {
		Remaining int64
		Retry     int64 `json:"retry_after_ms"`
	}
}

// asked calls with one entry and more fields of the body. The text has the status, and what was
// granted and remains, or a problem's code.
func asked(t *testing.T, app *App, call, key, more string) (*reply, string) {
	t.Helper()
	status, body := posted(t, app, "/v1/"+call, `{"domain":"seeds","descriptors":[{"entries":[{"key":"`+key+`","value":"42"}]}]`+more+`}`)
	r := new(reply)
	if err := json.Unmarshal([]byte(body), r); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	if r.Code != "" {
		return r, fmt.Sprint(status, " ", r.Code)
	}
	text := fmt.Sprint(status, " ", r.Granted)
	for _, l := range r.Limits {
		text += fmt.Sprint(" | ", l.Remaining)
	}
	return r, text
}

// testHoldThenSettle walks a call of a model through two hosts of a service: one estimates and
// holds, another settles, and repeats of either change nothing.
func testHoldThenSettle(t *testing.T, first, second *App) {
	t.Helper()
	made := ""
	for i, step := range []struct {
		host             *App
		call, rest, want string
	}{
		{first, "take", `,"cost":100,"id":"a","hold_ms":600000`, "200 100 | 900 | 0"},
		{first, "take", `,"cost":100,"id":"a","hold_ms":600000`, "200 100 | 900 | 0"},
		{first, "take", `,"cost":50,"id":"b","hold_ms":600000`, "429 0 | 900 | 0"},
		{second, "renew", `,"id":"a"`, "200 0 | 900 | 0"},
		{second, "settle", `,"cost":40,"id":"a"`, "200 40 | 960 | 1"},
		{second, "settle", `,"cost":40,"id":"a"`, "200 40 | 960 | 1"},
		{first, "settle", `,"cost":41,"id":"a"`, "409 settled"},
		{first, "take", `,"cost":7,"id":"a","hold_ms":600000`, "409 id_reused"},
		{first, "take", `,"cost":60,"hold_ms":600000`, "200 60 | 900 | 0"},
		{second, "release", `,"id":"MADE"`, "200 60 | 960 | 1"},
		{first, "settle", `,"cost":1,"id":"MADE"`, "409 released"},
		{first, "refund", `,"cost":1,"id":"nobody's"`, "404 unknown_id"},
	} {
		r, got := asked(t, step.host, step.call, "model", strings.Replace(step.rest, "MADE", made, 1))
		if r.ID != "" {
			made = r.ID
		}
		if got != step.want {
			t.Errorf("%d %s%s: %s, want %s", i, step.call, step.rest, got, step.want)
		}
	}
}

// testBackToBack asks in close succession, where an implementation that names its entries after
// milliseconds, or that charges before it decides, goes wrong.
func testBackToBack(t *testing.T, one, other *App) {
	t.Helper()
	for i := range 15 {
		want := "200 1 | " + fmt.Sprint(4-i)
		if i >= 5 {
			want = "429 0 | 0"
		}
		if r, got := asked(t, []*App{one, other}[i%2], "take", "log", ""); got != want || (r.Limits[0].Retry > 0) != (i >= 5) {
			t.Errorf("take %d: %s, want %s; %+v", i, got, want, r)
		}
	}
	for _, want := range []string{"200 7 | 3", "200 3 | 0", "429 0 | 0"} {
		if _, got := asked(t, one, "take", "rolling", `,"cost":7,"mode":"up_to"`); got != want {
			t.Errorf("up to 7: %s, want %s", got, want)
		}
	}
}
