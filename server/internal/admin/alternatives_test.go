package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const shared = `
domain: shop
x-limits: [&two {algorithm: gcra, unit: hour, requests_per_unit: 2}]
budgets: {pool: {requests_per_unit: 1000, unit: hour, algorithm: gcra}}
descriptors:
  - key: tenant
    rate_limits: [{<<: *two, name: own}]
    otherwise: [{rate_limits: [{budget: pool}]}]
  - {key: both, rate_limits: [{<<: *two, name: own}, {budget: pool}]}
  - {key: plain, rate_limit: {budget: pool}}
  - {key: single, rate_limit: *two}
  - {key: counted, rate_limit: {requests_per_unit: 2, unit: hour}}
  - {key: several, rate_limits: [{<<: *two, name: hour}, {name: day, requests_per_unit: 9, unit: day, algorithm: sliding_log}]}
  - {key: seat, rate_limit: {requests_per_unit: 2, period: 60s, algorithm: concurrency}}
  - key: user
    rate_limits: [{<<: *two, name: free}]
    otherwise:
      - rate_limits: [{name: day, requests_per_unit: 3, unit: day, algorithm: gcra}, {name: credits, requests_per_unit: 4, unit: hour, algorithm: gcra}]
  - key: watched
    shadow_mode: true
    rate_limits: [{<<: *two, name: first}]
    otherwise: [{rate_limits: [{<<: *two, name: second}]}]
    trial: {name: tried, requests_per_unit: 1, unit: day, algorithm: gcra}
  - key: room
    rate_limits: [{<<: *two, name: never}]
    otherwise: [{rate_limits: [{name: slots, requests_per_unit: 1, period: 60s, algorithm: concurrency}]}]
  - key: team
    shares: {requests_per_unit: 1000, unit: hour, burst: 200, headroom: 60, guarantee: {web: 300, ads: 500}}
`

// used returns what was charged to a budget.
func (d *desk) used(budget string) string {
	d.t.Helper()
	body := d.call(http.StatusOK, http.MethodGet, "/v1/key?domain=shop&entry=team=x&budget="+budget, "")
	_, text, _ := strings.Cut(body, `"used": `)
	text, _, _ = strings.Cut(text, ",")
	return text
}

// TestBudgetOfShares overrides, resets and shows the budget of all teams without naming one.
func TestBudgetOfShares(t *testing.T) {
	t.Parallel()
	d := openRules(t, shared)
	if !d.take("team=new", 140) || d.take("team=new", 100) {
		t.Fatal("140 and 100 of 152 units that are lent")
	}
	const budget = `{"domain":"shop","budget":"team"`
	d.call(http.StatusOK, http.MethodPost, "/v1/key/override", budget+`,"limit":"2000/h burst 400","for":"1h"}`)
	if body := d.call(http.StatusOK, http.MethodGet, "/v1/key?domain=shop&budget=team", ""); !strings.Contains(body, `"used": 140`) || !d.take("team=new", 101) {
		t.Errorf("overridden: %s", body)
	}
	d.call(http.StatusOK, http.MethodPost, "/v1/key/reset", budget+`}`)
	if used := d.used("team"); used != "0" {
		t.Errorf("%s used after a reset", used)
	}
}

// TestChanges blocks and allows callers: a block leaves no limit and no alternative open, an
// allowance has no budget refuse or be charged, and neither touches what other callers have.
// Rules with alternatives or budgets are changed as a whole.
func TestChanges(t *testing.T) {
	t.Parallel()
	for caller, c := range map[string]struct {
		other string
		whole bool
	}{
		"tenant=evil": {"tenant=good", true}, "both=evil": {"both=good", true}, "plain=evil": {"plain=good", true},
		"user=evil": {"user=good", true}, "team=ads": {"team=web", true}, "team=new": {"team=other", true},
		"single=evil": {"single=good", false}, "counted=evil": {"counted=good", false},
		"several=evil": {"several=good", false}, "seat=evil": {"seat=good", false},
	} {
		d := openRules(t, shared)
		if !d.take(caller, 1) {
			t.Fatalf("%s: refused at first", caller)
		}
		body := d.change(http.StatusOK, "block", caller, `,"for":"10m"`)
		answer := d.get(caller, 1)
		changed := len(answer.Limits)
		if c.whole {
			changed = 1
		}
		if d.take(caller, 1) || answer.Passes || strings.Count(body, `"blocked": true`) != changed || strings.Contains(body, ";#rule") != c.whole {
			t.Errorf("%s: not blocked: %s, %+v", caller, body, answer)
		}
		for _, l := range answer.Limits {
			if *l.State.RetryAfterMS != 600_000 || !strings.Contains(l.Explanation, "blocked for another 10m,") {
				t.Errorf("%s: blocked: %+v", caller, l)
			}
		}
		if !d.take(c.other, 1) || !d.get(c.other, 1).Passes {
			t.Errorf("%s is blocked with %s", c.other, caller)
		}
		d.change(http.StatusOK, "allow", caller, "")
		if answer := d.get(caller, 5000); !answer.Passes || !strings.Contains(answer.Limits[0].Explanation, "no limit for another 1h,") {
			t.Errorf("%s: allowed: %+v", caller, answer)
		}
		before := d.used("pool") + " and " + d.used("team")
		for i := range 5 {
			if !d.take(caller, int64(1000+i)) {
				t.Errorf("%s: refused while allowed", caller)
			}
		}
		if after := d.used("pool") + " and " + d.used("team"); after != before {
			t.Errorf("%s: %s used of the budgets while allowed, %s before", caller, after, before)
		}
		d.change(http.StatusOK, "clear", caller, "")
		if list := d.taker.List(); len(list) > 0 || c.whole && d.take(caller, 2000) {
			t.Errorf("%s: in force after clear: %v", caller, list)
		}
		if c.whole {
			continue // a reset of a budget names it
		}
		d.change(http.StatusOK, "reset", caller, "")
		if s := d.get(caller, 1).Limits[0].State; s.Used != 0 {
			t.Errorf("%s: after reset: %+v", caller, s)
		}
	}
}

// TestOneAlternative: a change of a named limit is of that alone, and the answer says so; it
// is refused if it would change nothing.
func TestOneAlternative(t *testing.T) {
	t.Parallel()
	d := openRules(t, shared)
	if body := d.change(http.StatusOK, "block", "user=1", `,"name":"free"`); !strings.Contains(body, `"alternative": 1`) || !d.take("user=1", 1) {
		t.Errorf("the first is blocked: %s", body)
	}
	if answer := d.get("user=1", 1); !answer.Passes || answer.Alternative != 2 || answer.Limits[0].State.Passes {
		t.Errorf("the first is blocked: %+v", answer)
	}
	d.change(http.StatusOK, "block", "user=1", "")
	for action, more := range map[string]string{"block": "", "allow": "", "override": `,"limit":"9/h"`} {
		if body := d.change(http.StatusConflict, action, "user=1", `,"name":"credits"`+more); !strings.Contains(body, `"covered"`) || !strings.Contains(body, "shop/user") {
			t.Errorf("%s of one limit while all are blocked: %s", action, body)
		}
	}
	d.change(http.StatusOK, "clear", "user=1", "")
	if len(d.taker.List()) > 0 || !d.take("user=1", 2) {
		t.Errorf("in force after clear: %v", d.taker.List())
	}
	if body := d.change(http.StatusConflict, "override", "plain=1", `,"limit":"9/h"`); !strings.Contains(body, `"shared"`) {
		t.Errorf("a budget was changed: %s", body)
	}
}

// TestGuaranteesAreNotRaised: a guarantee can be lowered and blocked; more would be at the
// cost of the others.
func TestGuaranteesAreNotRaised(t *testing.T) {
	t.Parallel()
	d := openRules(t, shared)
	const named = `,"name":"team=ads guaranteed"`
	for _, limit := range []string{"5000/hour burst 190", "501/hour burst 30", "500/hour burst 31", "500/hour", "9/min burst 9"} {
		if body := d.change(http.StatusConflict, "override", "team=ads", `,"limit":"`+limit+`"`); !strings.Contains(body, `"guaranteed"`) || !strings.Contains(body, "want at most 500/h burst 30") {
			t.Errorf("%s: %s", limit, body)
		}
	}
	if body := d.change(http.StatusConflict, "allow", "team=ads", named); !strings.Contains(body, `"guaranteed"`) {
		t.Errorf("without a limit: %s", body)
	}
	for _, limit := range []string{"500/hour burst 30", "8/min burst 9", "1/day"} {
		d.change(http.StatusOK, "override", "team=ads", `,"limit":"`+limit+`"`)
	}
	d.change(http.StatusOK, "block", "team=ads", named)
	if d.take("team=ads", 150); !d.take("team=web", 18) {
		t.Error("web is refused what is guaranteed to it")
	}
}

// TestGetAlternatives compares what is said of rules with alternatives with what a take is
// answered then.
func TestGetAlternatives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before      []string // entries and costs that are taken
		entry       string
		cost        int64
		alternative int // that grants, or would be soonest
		passes      bool
	}{
		{nil, "tenant=a", 2, 1, true},
		{nil, "tenant=a", 3, 2, true},
		{[]string{"tenant=a 2"}, "tenant=a", 1, 2, true},
		{[]string{"tenant=a 2", "plain=a 1000"}, "tenant=a", 1, 2, false}, // in 4 s
		{[]string{"plain=a 1000"}, "tenant=a", 1, 1, true},
		{nil, "tenant=a", 1001, 0, false},
		{nil, "user=a", 3, 2, true},
		{nil, "user=a", 4, 0, false},
		{[]string{"user=a 2", "user=a 3"}, "user=a", 1, 1, false},
		{[]string{"user=a 3"}, "user=a", 1, 1, true},
		{nil, "both=a", 2, 0, true},
		{[]string{"plain=a 1000"}, "both=a", 1, 0, false},
		{nil, "watched=a", 9, 0, true},
		{[]string{"watched=a 2"}, "watched=a", 1, 2, true},
		{[]string{"watched=a 2", "watched=a 1"}, "watched=a", 2, 2, true},
		{[]string{"room=a 2", "room=a 1"}, "room=a", 1, 1, false},
		{[]string{"room=a 2", "room=a 1"}, "room=a", 3, 2, false},
		{nil, "team=ads", 30, 1, true},
		{nil, "team=ads", 152, 2, true},
		{nil, "team=ads", 153, 0, false},
		{[]string{"team=new 152", "team=ads 30"}, "team=ads", 1, 1, false},
		{[]string{"team=new 152"}, "team=ads", 1, 1, true},
		{[]string{"team=new 152"}, "team=other", 1, 0, false},
	} {
		d := openRules(t, shared)
		for _, taken := range c.before {
			var entry string
			var cost int64
			if _, err := fmt.Sscan(taken, &entry, &cost); err != nil {
				t.Fatal(err)
			}
			if !d.take(entry, cost) {
				t.Errorf("%v: %s is refused", c, taken)
			}
			d.clock.Advance(time.Microsecond)
		}
		answer := d.get(c.entry, c.cost)
		if answer.Passes != c.passes || answer.Alternative != c.alternative {
			t.Errorf("%v: %v, alternative %d: %+v", c, answer.Passes, answer.Alternative, answer.Limits)
		}
		if took := d.take(c.entry, c.cost); took != answer.Passes {
			t.Errorf("%v: a take is granted: %v", c, took)
		}
	}
	d := openRules(t, shared)
	if got := d.get("user=a", 1).Limits[1].Explanation; !strings.HasPrefix(got, "shop/user day, alternative 2 (shop.yaml:") {
		t.Error(got)
	}
}
