package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const percentPattern = `^([1-9][0-9]?|100)%$`

var percentForm = regexp.MustCompile(percentPattern)

// alerts reads the percents of a limit at which an alert is due. An alert is recorded once for each
// window, so that all keys must share windows, and these must be of a day or longer.
func (p *parser) alerts(o object, l *RateLimit) {
	if p.get(o, "alert") == nil {
		return
	}
	for _, item := range p.items(o, "alert") {
		n := p.visit(item)
		if n == nil || !percentForm.MatchString(n.Value) {
			p.report(item, "a part in alert is "+kind(n), "1% … 100%, without decimals")
			continue
		}
		percent, _ := strconv.Atoi(strings.TrimSuffix(n.Value, "%"))
		if slices.Contains(l.Alerts, percent) {
			p.report(item, n.Value+" again in alert", "each part once")
			continue
		}
		l.Alerts = append(l.Alerts, percent)
	}
	slices.Sort(l.Alerts)
	name := l.Limit.Algorithm.String()
	switch {
	case !slices.Contains(alerting, name):
		p.report(o.position("alert"), "alert beside algorithm: "+name, oneOf(alerting)+": no other limit starts anew; "+p.line(o, "algorithm")+" has algorithm")
	case l.Limit.ChargeRefused:
		p.clash(o, "alert", o, "charge_refused", "charge_refused: true")
	case l.MaxKeys > 0:
		p.clash(o, "alert", o, "max_keys", "max_keys")
	case o.has("anchor") && l.Limit.Anchor != 0:
		p.clash(o, "alert", o, "anchor", "anchor: first")
	case l.Limit.Period < day:
		p.report(o.position("alert"), "alert for windows of "+l.Limit.Period.String(), "windows of a day or longer")
	}
}
