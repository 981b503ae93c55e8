package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

const moveRules = `
domain: shop
descriptors:
  - key: team
    rate_limits:
      - {name: month, count: usd, dollars: 30000, unit: month, algorithm: fixed_window, time_zone: UTC}
      - {name: rate, requests_per_unit: 60, unit: hour, algorithm: gcra}
      - {name: open, requests_per_unit: 3, period: 30s, algorithm: concurrency}
  - {key: other, rate_limit: {name: month, requests_per_unit: 5, unit: day, algorithm: gcra}}
  - {key: shop, rate_limit: {unlimited: true}}
`

// TestMove wants all that a key has used charged to the key that it is moved to, once, and nothing
// moved to a key that has used something.
func TestMove(t *testing.T) {
	t.Parallel()
	d := openRules(t, moveRules)
	move := func(status int, from, to string) string {
		key, value, _ := strings.Cut(to, "=")
		return d.change(status, "move", from, fmt.Sprintf(`,"to":[{"key":%q,"value":%q}]`, key, value))
	}
	used := func(entry string) (all [2]int64) {
		for i, l := range d.get(entry, 1).Limits[:2] {
			// What was used beyond the limit, too.
			n, err := (&api{Options{Taker: d.taker}}).used(t.Context(), &target{rule: d.set.Rules()[0], limit: limitNamed(d, i), key: l.Key})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = n
		}
		return all
	}
	record := func(entry string, cents ...int64) {
		for i, l := range d.get(entry, 1).Limits[:2] {
			a := newAct(acts.KindRecord, weir.Charge{Key: l.Key, Limit: limitNamed(d, i), Cost: cents[i]})
			if d.taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	// More than the limit, and more than one charge can have.
	for range 31 {
		record("team=web", weir.MaxCost, 1)
	}
	record("team=taken", 0, 1)
	if text := move(http.StatusConflict, "team=web", "team=taken"); !strings.Contains(text, `"code":"used"`) {
		t.Error(text)
	}
	if got := used("team=web"); got != [2]int64{30_000_000_000 + 1_000_000_000, 31} {
		t.Errorf("web has used %v", got)
	}
	for _, c := range []struct{ from, to, want string }{
		{"team=web", "team=web", "another one"},
		{"team=web", "other=x", "a key with a limit"},
		{"team=web", "shop=x", "unlimited"},
	} {
		status := http.StatusBadRequest
		if c.to == "shop=x" {
			status = http.StatusConflict
		}
		if text := move(status, c.from, c.to); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s", c.to, text)
		}
	}
	text := move(http.StatusOK, "team=web", "team=platform")
	if !strings.Contains(text, `"action": "move"`) || !strings.Contains(text, "team=platform") {
		t.Error(text)
	}
	if from, to := used("team=web"), used("team=platform"); from != [2]int64{} || to != [2]int64{30_000_000_000 + 1_000_000_000, 31} {
		t.Errorf("web has used %v, platform %v", from, to)
	}
	if !strings.Contains(d.log.String(), `"audit":"key move"`) {
		t.Error(d.log.String())
	}
	d.change(http.StatusBadRequest, "move", "team=web", "")
	d.change(http.StatusBadRequest, "reset", "team=web", `,"to":[{"key":"team","value":"x"}]`)
}

// limitNamed returns the i-th limit of the first rule.
func limitNamed(d *desk, i int) *weir.Limit { return d.set.Rules()[0].Limits[i].Limit }
