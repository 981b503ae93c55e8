package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const rollout = `
domain: shop
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1}]
descriptors:
  - {key: user, rate_limit: {<<: *one, requests_per_unit: 3, name: now}, trial: {<<: *one, name: next}}
  - {key: none, rate_limit: *one, enforce: 0%}
  - {key: most, rate_limit: *one, enforce: 99.99%}
`

// TestTrialIsLookedAt: it is told beside what refuses, and does not speak for it.
func TestTrialIsLookedAt(t *testing.T) {
	t.Parallel()
	d := openRules(t, rollout)
	d.take("user=1", 1)
	answer := d.get("user=1", 1)
	if !answer.Passes || len(answer.Limits) != 2 {
		t.Fatalf("%+v", answer)
	}
	live, trial := answer.Limits[0], answer.Limits[1]
	if live.Trial || live.Shadow || !live.State.Passes || live.Explanation != "shop/user (shop.yaml:5:5): 3/day; 1 used, 2 remain, all free in 8h; a cost of 1 fits now" {
		t.Errorf("live: %+v", live)
	}
	if !trial.Trial || trial.State.Passes || trial.Name != "next" || !strings.HasSuffix(trial.Explanation, "1 used, 0 remain, all free in 24h; a cost of 1 fits in 24h; on trial: it never refuses") {
		t.Errorf("trial: %+v", trial)
	}
}

// TestTrialIsNotOverridden: a block is for what refuses; a reset is for all that was
// counted.
func TestTrialIsNotOverridden(t *testing.T) {
	t.Parallel()
	d := openRules(t, rollout)
	d.take("user=1", 1)
	if got := d.change(http.StatusOK, "block", "user=1", ""); strings.Contains(got, "next") {
		t.Errorf("blocked: %s", got)
	}
	if got := d.change(http.StatusOK, "reset", "user=1", ""); !strings.Contains(got, `"next"`) || !strings.Contains(got, `"now"`) {
		t.Errorf("reset: %s", got)
	}
}

func TestEnforceIsTold(t *testing.T) {
	t.Parallel()
	d := openRules(t, rollout)
	for range 2 {
		d.take("none=1", 1)
		d.take("most=1", 1)
	}
	none, most := d.get("none=1", 1), d.get("most=1", 1)
	if l := none.Limits[0]; !none.Passes || !l.Shadow || l.Enforce != "0%" || !strings.HasSuffix(l.Explanation, "; shadowed (enforce: 0% of the keys, not this one): it never refuses") {
		t.Errorf("none: %+v", l)
	}
	if l := most.Limits[0]; most.Passes || l.Shadow || l.Enforce != "99.99%" || !strings.HasSuffix(l.Explanation, "; enforced (enforce: 99.99% of the keys, this one too)") {
		t.Errorf("most: %+v", l)
	}
	var answer rulesAnswer
	if err := json.Unmarshal([]byte(d.call(http.StatusOK, http.MethodGet, "/v1/rules", "")), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Rules) != 3 || answer.Rules[0].Trial == nil || answer.Rules[0].Trial.Name != "next" || answer.Rules[1].Enforce != "0%" || answer.Rules[2].Trial != nil {
		t.Errorf("rules: %+v", answer.Rules)
	}
}
