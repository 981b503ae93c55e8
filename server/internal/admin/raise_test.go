package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const raiseRules = `
domain: shop
budgets: {pool: {requests_per_unit: 1000, unit: hour, algorithm: fixed_window}}
descriptors:
  - key: user
    rate_limits:
      - {name: user, count: usd, dollars: 200, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}
      - {name: open, requests_per_unit: 8, period: 30s, algorithm: concurrency}
      - {name: quick, requests_per_unit: 9, unit: hour, algorithm: gcra}
  - key: plain
    rate_limit: {requests_per_unit: 3, unit: hour, algorithm: fixed_window}
  - key: counted
    rate_limit: {requests_per_unit: 3, unit: hour}
  - {key: pooled, rate_limit: {budget: pool}}
`

// raised makes a raise and returns its ID.
func (d *desk) raised(entry, more string) string {
	d.t.Helper()
	var answer changeAnswer
	if err := json.Unmarshal([]byte(d.change(http.StatusOK, "raise", entry, more)), &answer); err != nil || len(answer.Keys) != 1 || answer.Keys[0].Raise == nil {
		d.t.Fatalf("%+v, %v", answer, err)
	}
	return answer.Keys[0].Raise.ID
}

// TestRaise wants raises in dollars and in units that add up, are shown, end by themselves and by
// their ID, and are logged.
func TestRaise(t *testing.T) {
	t.Parallel()
	d := openRules(t, raiseRules)
	take := func() bool {
		d.clock.Advance(time.Millisecond)
		return d.take("plain=1", 1)
	}
	for range 3 {
		take()
	}
	if take() {
		t.Error("4 of 3 are granted")
	}
	first := d.raised("plain=1", `,"by":"2","for":"30m"`)
	if got := [3]bool{take(), take(), take()}; got != [3]bool{true, true, false} {
		t.Errorf("%v, want 5 of 3 and 2 more", got)
	}
	d.raised("plain=1", `,"by":"1","for":"8784h"`)
	if l := d.get("plain=1", 1).Limits[0]; !l.State.Passes || l.State.Used != 5 || l.State.Remaining != 1 || len(l.Raises) != 2 || l.Limit != "3/h fixed_window" || l.State.Limit != "6/h fixed_window" {
		t.Errorf("%+v %+v", l, l.State)
	}
	if text := d.change(http.StatusNotFound, "clear", "plain=1", `,"raise":"none"`); !strings.Contains(text, `"no_raise"`) {
		t.Error(text)
	}
	d.change(http.StatusOK, "clear", "plain=1", "")
	if l := d.get("plain=1", 1).Limits[0]; len(l.Raises) != 2 {
		t.Errorf("clear ended raises: %+v", l.Raises)
	}
	d.change(http.StatusOK, "clear", "plain=1", fmt.Sprintf(`,"raise":%q`, first))
	if l := d.get("plain=1", 1).Limits[0]; l.State.Passes || len(l.Raises) != 1 || l.State.Limit != "4/h fixed_window" {
		t.Errorf("%+v %+v", l, l.State)
	}
	if log := d.log.String(); !strings.Contains(log, `"audit":"key raise"`) || !strings.Contains(log, `"adds":"2","raise":"`+first) {
		t.Error(log)
	}
}

// TestRaiseOfDollars wants a raise of a month's dollars until the month ends where the limit says
// it does, beside an override.
func TestRaiseOfDollars(t *testing.T) {
	t.Parallel()
	d := openRules(t, raiseRules)
	id := d.raised("user=ann", `,"name":"user","by":"$50","until":"month-end","note":"demo, approved by Bo"`)
	l := d.get("user=ann&name=user", 1).Limits[0]
	end := l.Raises[0].Until
	at, err := time.Parse(time.RFC3339, end)
	berlin, zoneErr := time.LoadLocation("Europe/Berlin")
	if err != nil || zoneErr != nil {
		t.Fatal(err, zoneErr)
	}
	if at = at.In(berlin); at.Day() != 1 || at.Hour() != 0 || !d.clock.Now().Before(at) || at.Sub(d.clock.Now()) > 31*24*time.Hour {
		t.Errorf("month-end is %v at %v", at, d.clock.Now())
	}
	want := "$50 more until " + end + " (raise " + id + ": demo, approved by Bo), $250/month fixed_window time_zone Europe/Berlin in all, instead of $200/month fixed_window time_zone Europe/Berlin; $0 used, $250 remains"
	if !strings.Contains(l.Explanation, want) {
		t.Errorf("%s\nwant %s", l.Explanation, want)
	}
	d.change(http.StatusOK, "override", "user=ann", `,"name":"user","limit":"$300/month","for":"1h"`)
	if l := d.get("user=ann&name=user", 1).Limits[0]; l.State.Remaining != 350_000_000 || !strings.Contains(l.Explanation, "$300/month fixed_window time_zone Europe/Berlin for another 1h, until ") || !strings.Contains(l.Explanation, "$350/month fixed_window time_zone Europe/Berlin in all") {
		t.Errorf("%+v %s", l.State, l.Explanation)
	}
	if text := d.call(http.StatusOK, http.MethodGet, "/v1/overrides", ""); !strings.Contains(text, `"adds": "$50"`) || strings.Count(text, `"limit"`) != 1 {
		t.Error(text)
	}
	if !strings.Contains(d.log.String(), `"note":"demo, approved by Bo"`) || !strings.Contains(d.log.String(), `"until":"`+end) {
		t.Error(d.log.String())
	}
	d.change(http.StatusOK, "block", "user=ann", `,"name":"user","for":"1h"`)
	if text := d.change(http.StatusConflict, "raise", "user=ann", `,"name":"user","by":"$1","until":"month-end"`); !strings.Contains(text, `"code":"blocked"`) {
		t.Error(text)
	}
	if l := d.get("user=ann&name=user", 1).Limits[0]; !strings.Contains(l.Explanation, "blocked for another 1h") || strings.Contains(l.Explanation, "in all") {
		t.Error(l.Explanation)
	}
	d.clock.Advance(at.Sub(d.clock.Now()))
	if l := d.get("user=ann&name=user", 1).Limits[0]; l.Raises != nil || l.State.Limit != "$200/month fixed_window time_zone Europe/Berlin" {
		t.Errorf("after its end: %+v %+v", l, l.State)
	}
}

// TestRaiseProblems wants each mistake named, and nothing changed.
func TestRaiseProblems(t *testing.T) {
	t.Parallel()
	d := openRules(t, raiseRules)
	for _, c := range []struct {
		status              int
		action, entry, more string
		want                string
	}{
		{400, "raise", "plain=1", `,"by":"2"`, `"field":"until"`},
		{400, "raise", "plain=1", `,"for":"1h"`, `"field":"by"`},
		{400, "raise", "plain=1", `,"by":"0","for":"1h"`, "1 … 999999999999996"},
		{400, "raise", "plain=1", `,"by":"999999999999997","for":"1h"`, "1 … 999999999999996"},
		{400, "raise", "plain=1", `,"by":"some","for":"1h"`, `"field":"by"`},
		{400, "raise", "plain=1", `,"by":"$5","for":"1h"`, "does not count dollars"},
		{400, "raise", "plain=1", `,"by":"5","for":"8785h"`, "8784h (366 days)"},
		{400, "raise", "plain=1", `,"by":"5","until":"2999-01-01T00:00:00Z"`, "within the next 366 days"},
		{400, "raise", "plain=1", `,"by":"5","until":"2027-01-01T00:00:00"`, `"field":"until"`},
		{400, "raise", "plain=1", `,"by":"5","until":"month-end"`, "not one of calendar months"},
		{400, "raise", "plain=1", `,"by":"5","for":"1h","limit":"9/h"`, `"field":"limit"`},
		{400, "raise", "plain=1", `,"by":"5","for":"1h","raise":"x"`, `"field":"raise"`},
		{400, "raise", "plain=1", `,"by":"5","for":"1h","note":"` + strings.Repeat("x", maxNote+1) + `"`, `"field":"note"`},
		{400, "raise", "user=1", `,"by":"5","for":"1h"`, `"field":"name"`},
		{400, "raise", "user=1", `,"by":"5","for":"1h","name":"user"`, "want dollars, $0.000001 … $999999799.999999"},
		{400, "raise", "user=1", `,"by":"$x","for":"1h","name":"user"`, "want dollars"},
		{400, "raise", "user=1", `,"by":"5","for":"1h","name":"open"`, "fixed_window"},
		{400, "raise", "user=1", `,"by":"5","for":"1h","name":"quick"`, "fixed_window"},
		{400, "raise", "counted=1", `,"by":"5","for":"1h"`, "fixed_window"},
		{409, "raise", "pooled=1", `,"by":"5","for":"1h"`, `"code":"shared"`},
		{400, "override", "plain=1", `,"limit":"9/h","by":"5"`, `"field":"by"`},
		{400, "block", "plain=1", `,"note":"x"`, `"field":"note"`},
		{400, "block", "plain=1", `,"until":"month-end"`, `"field":"until"`},
		{400, "reset", "plain=1", `,"raise":"x"`, `"field":"raise"`},
	} {
		if text := d.change(c.status, c.action, c.entry, c.more); !strings.Contains(text, c.want) {
			t.Errorf("%s %s %.80s: %s, want %s", c.action, c.entry, c.more, text, c.want)
		}
	}
	if n := len(d.taker.Raises()) + len(d.taker.List()); n > 0 {
		t.Errorf("%d changes were made by mistake", n)
	}
	// A raise has a place among the changes, of which there may be three.
	for range 3 {
		d.raised("plain=1", `,"by":"1","for":"1h"`)
	}
	if text := d.change(http.StatusConflict, "raise", "plain=1", `,"by":"1","for":"1h"`); !strings.Contains(text, `"code":"full"`) {
		t.Error(text)
	}
	d.call(http.StatusOK, http.MethodPost, "/v1/key/clear", fmt.Sprintf(`{"domain":"shop","entries":[{"key":"plain","value":"1"}],"raise":%q}`, d.taker.Raises()[0].Raise.ID))
	pool := `{"domain":"shop","entries":[{"key":"pooled","value":"1"}],"budget":"pool","by":"5","for":"1h"}`
	d.call(http.StatusOK, http.MethodPost, "/v1/key/raise", pool)
}
