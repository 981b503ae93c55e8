package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// monthEnd is the end of a raise that ends with the month of its limit.
	monthEnd = "month-end"
	// maxNote is the size of the largest note, in bytes.
	maxNote = 256
	// raiseID is the length of the ID of a raise: 40 random bits, among the raises of one key.
	raiseID = 8
)

// raiseAnswer is one raise.
type raiseAnswer struct {
	ID  string `json:"id"`
	Key string `json:"key"`
	// By is what is added, in units of the limit's count.
	By    int64  `json:"by"`
	Until string `json:"until"`
	ForMS int64  `json:"for_ms"`
	Note  string `json:"note,omitempty"`
	// Adds is By for people: $50.
	Adds string `json:"adds"`
}

// raiseOf describes a raise.
func raiseOf(o override.Override, now time.Time) *raiseAnswer {
	return &raiseAnswer{
		ID: o.Raise.ID, Key: o.Key, By: o.Raise.Units, Until: o.Until.UTC().Format(time.RFC3339), ForMS: jsonbody.Millis(o.Until.Sub(now)), Note: o.Raise.Note,
		Adds: config.AmountText(o.Raise.Meter, o.Raise.Units),
	}
}

// raise adds to one limit until an instant.
func (a *api) raise(ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
	if len(targets) > 1 {
		return nil, severalLimits(targets)
	}
	t := &targets[0]
	if t.rule == nil || !override.Raisable(t.limit) {
		return nil, problem.Invalid("name", strconv.Quote(t.name()), "a limit of the rules with algorithm: fixed_window: override others")
	}
	if err := a.effective(t, t.limit); err != nil {
		return nil, err
	}
	most, err := a.mostAdded(t)
	if err != nil {
		return nil, err
	}
	units, err := parseAmount("by", req.by, rules.MeterOf(t.limit), most)
	if err != nil {
		return nil, err
	}
	until := req.until
	if req.monthEnd {
		if until, err = endOfMonth(t.limit, a.Now()); err != nil {
			return nil, err
		}
	}
	o := override.Override{Key: t.key, Until: until, Raise: &override.Raise{ID: rand.Text()[:raiseID], Units: units, Meter: t.limit.Meter, Note: req.note}}
	req.until, req.raise = until, o.Raise.ID // for the log
	changes := []override.Change{{Override: o}}
	if err := a.room(ctx, changes); err != nil {
		return nil, err
	}
	if err := a.Overrides.Set(o); err != nil {
		return nil, err
	}
	answer := &changeAnswer{Keys: []changedKey{{
		Name: t.name(), Alternative: t.alternative, Key: t.key, Changed: true, Raise: raiseOf(o, a.Now()),
	}}}
	return answer, a.announce(ctx, answer, changes)
}

func severalLimits(targets []target) error {
	return problem.Invalid("name", "missing", "the name of one limit of these, as the key has several: "+namesOf(targets))
}

// mostAdded returns how many units a raise may add to a limit, beside its other raises.
func (a *api) mostAdded(t *target) (int64, error) {
	base := t.limit.Count
	if o, found := a.Overrides.Get(t.key); found && o.Limit != nil {
		base = o.Limit.Count
		if base == 0 {
			return 0, blocked("until " + o.Until.UTC().Format(time.RFC3339) + ", the key is blocked: clear that first")
		}
	}
	if base == 0 {
		return 0, blocked("its limit is 0: override it")
	}
	for _, o := range a.Overrides.RaisesOf(t.key) {
		base = min(base+o.Raise.Units, algo.MaxWindow)
	}
	return algo.MaxWindow - base, nil
}

func blocked(detail string) error {
	return &problem.Document{Status: http.StatusConflict, Code: "blocked", Detail: "a raise would change nothing: " + detail}
}

// parseAmount reads a number of units of a meter, or of dollars such as $50. The error is a
// [*weir.InvalidError].
func parseAmount(field, text, meter string, most int64) (int64, error) {
	want := fmt.Sprintf("1 … %d", most)
	amount, dollars := strings.CutPrefix(text, "$")
	var units int64
	var err error
	switch usd, ok := meter == config.MeterUSD, false; {
	case usd && dollars:
		if units, ok = config.ParseDollars(amount); !ok {
			units = 0
		}
		fallthrough
	case usd:
		want = "dollars, $0.000001 … $" + config.DollarsText(most) + ", such as $50"
	case dollars:
		want += ": the limit does not count dollars"
	default:
		units, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || units < 1 || units > most {
		return 0, problem.Invalid(field, strconv.Quote(text), want)
	}
	return units, nil
}

// endOfMonth returns when the calendar month of a limit ends.
func endOfMonth(l *weir.Limit, now time.Time) (time.Time, error) {
	const month = 30 * 24 * time.Hour
	if l.TimeZone == "" || l.Period != month {
		return time.Time{}, problem.Invalid("until", strconv.Quote(monthEnd), "a time: the limit is not one of calendar months, which have unit: month and a time_zone")
	}
	rule := l.RuleAt(now.UnixMicro())
	return time.UnixMicro(rule.Starts[2]), nil
}

// endRaise ends one raise.
func (a *api) endRaise(ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
	for _, t := range targets {
		for _, o := range a.Overrides.RaisesOf(t.key) {
			if o.Raise.ID != req.raise {
				continue
			}
			change := override.Change{Override: override.Override{Key: t.key, Raise: &override.Raise{ID: o.Raise.ID}}, Ended: true}
			answer := &changeAnswer{Keys: []changedKey{{
				Name: t.name(), Key: t.key, Alternative: t.alternative, Changed: a.Overrides.End(change.Override), Raise: raiseOf(o, a.Now()),
			}}}
			return answer, a.announce(ctx, answer, []override.Change{change})
		}
	}
	return nil, &problem.Document{
		Status: http.StatusNotFound, Code: "no_raise", Field: "raise",
		Detail: fmt.Sprintf("the key has no raise %s in force", strconv.Quote(problem.Shorten(req.raise))),
	}
}

// explainRaises describes the raises of a limit, and the override that they add to.
func explainRaises(answer *limitAnswer) string {
	var parts []string
	if o := answer.Override; o != nil {
		parts = append(parts, o.explain(o.Limit))
		if o.Blocked || o.Limit == "" {
			return parts[0]
		}
	}
	for _, r := range answer.Raises {
		text := fmt.Sprintf("%s more until %s (raise %s", r.Adds, r.Until, r.ID)
		if r.Note != "" {
			text += ": " + r.Note
		}
		parts = append(parts, text+")")
	}
	return strings.Join(parts, ", ") + ", " + answer.State.Limit + " in all"
}
