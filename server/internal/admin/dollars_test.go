package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const dollarRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {name: user, count: usd, dollars: 5000, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}
  - key: quick
    rate_limit: {name: quick, count: usd, dollars: 2, burst: 1000000, unit: hour, algorithm: gcra}
`

// TestDollars wants limits of dollars shown, asked for and overridden in dollars, with the
// algorithm and the calendar of their rule.
func TestDollars(t *testing.T) {
	t.Parallel()
	d := openRules(t, dollarRules)
	for _, c := range []struct{ entry, want string }{
		{"user=ann", "$5000/month fixed_window time_zone Europe/Berlin; $0 used, $5000 remains; a cost of $2.5 fits now"},
		{"quick=ann", "$2/h burst $1; $0 used, $1 remains; a cost of $2.5 never fits"},
	} {
		var text string
		if text = d.call(http.StatusOK, http.MethodGet, "/v1/key?domain=shop&entry="+c.entry+"&cost=$2.50", ""); !strings.Contains(text, c.want) || !strings.Contains(text, `"count": "usd"`) {
			t.Errorf("%s: %s, want %s", c.entry, text, c.want)
		}
	}
	change := func(status int, entry, limit string) string {
		return d.change(status, "override", entry, fmt.Sprintf(`,"limit":%q,"for":"24h"`, limit))
	}
	if text := change(http.StatusOK, "user=ann", "$7000.000001/month"); !strings.Contains(text, `"limit": "$7000.000001/month fixed_window time_zone Europe/Berlin"`) {
		t.Error(text)
	}
	if text := d.call(http.StatusOK, http.MethodGet, "/v1/overrides", ""); !strings.Contains(text, `"$7000.000001/month fixed_window time_zone Europe/Berlin"`) {
		t.Error(text)
	}
	l := d.get("user=ann", 1).Limits[0]
	if l.State.Remaining != 7_000_000_001 || !strings.Contains(l.Explanation, "$7000.000001/month") || !strings.Contains(l.Explanation, "instead of $5000/month") {
		t.Errorf("%+v %s", l.State, l.Explanation)
	}
	if !strings.Contains(d.log.String(), `"limit":"$7000.000001/month"`) {
		t.Error(d.log.String())
	}
	if text := change(http.StatusOK, "quick=ann", "$3/h burst $2"); !strings.Contains(text, `"$3/h burst $2"`) {
		t.Error(text)
	}
	for _, c := range []struct{ entry, limit, want string }{
		{"user=ann", "7000/month", "want dollars, such as $5/month"},
		{"user=ann", "$7e3/month", "want dollars, 0 … 999999999.999999"},
		{"user=ann", "$1000000000/month", "want dollars, 0 … 999999999.999999"},
		{"quick=ann", "$1000.01/h", "want fewer dollars: gcra counts to 1000"},
		{"quick=ann", "$5/month fixed_window", "want none but gcra"},
		{"user=ann", "$5", "want s, min, h, day"},
	} {
		if text := change(http.StatusBadRequest, c.entry, c.limit); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", c.limit, text, c.want)
		}
	}
	for _, cost := range []string{"$0", "$1000.01", "$x", "$"} {
		d.call(http.StatusBadRequest, http.MethodGet, "/v1/key?domain=shop&entry=user=ann&cost="+cost, "")
	}
	plain := open(t, nil)
	if text := plain.change(http.StatusBadRequest, "override", "user=1", `,"limit":"$5/h"`); !strings.Contains(text, "want a number, such as 5/min") {
		t.Error(text)
	}
	d.clock.Advance(25 * time.Hour)
	if l := d.get("user=ann", 1).Limits[0]; l.Override != nil {
		t.Errorf("%+v", l.Override)
	}
}
