package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/keylimit"
)

// maxLimits is the most limits of one descriptor: as many as fit one act.
const maxLimits = weir.MaxCharges

const day = 24 * time.Hour

// units are the lengths of envoyproxy/ratelimit's units, windows from the epoch on.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 30 * day, "year": 365 * day,
}

// UnitLength returns the length of one of envoyproxy/ratelimit's units by its name; 0 for others.
func UnitLength(name string) time.Duration { return units[name] }

var unitNames = slices.SortedFunc(maps.Keys(units), func(a, b string) int { return cmp.Compare(units[a], units[b]) })

var anchors = []string{weir.AnchorEpoch: "epoch", weir.AnchorFirst: "first"}

// limit reads one rate_limit, which is Weir's if it names an algorithm and
// envoyproxy/ratelimit's otherwise. One of several has to be Weir's: beside is the key of
// the others, nil for none.
func (p *parser) limit(o object, beside *yaml.Node) RateLimit {
	l := RateLimit{At: p.position(o.node), Name: p.printable(o, "name"), Unlimited: p.truth(o, "unlimited")}
	switch {
	case l.Unlimited:
		p.unlimited(o, beside)
		return l
	case o.has("budget"):
		p.charge(o, &l)
		return l
	case o.has("algorithm"):
		if !p.ours(o, &l) {
			return l
		}
	default:
		p.theirs(o, &l, beside)
	}
	p.compile(o, &l)
	p.keep(o, o, &l)
	p.instead(o, &l)
	if l.Grouped {
		p.quota(o, &l)
	}
	return l
}

// unlimited checks the keys beside unlimited: true.
func (p *parser) unlimited(o object, beside *yaml.Node) {
	if unit := p.text(o, "unit"); unit != "" && !strings.EqualFold(unit, "unknown") {
		p.clash(o, "unit", o, "unlimited", "unlimited: true")
	}
	for _, key := range slices.Concat([]string{"algorithm", "budget"}, weirKeys) {
		if o.has(key) {
			p.clash(o, key, o, "unlimited", "unlimited: true")
		}
	}
	if beside != nil {
		p.report(o.position("unlimited"), "unlimited: true among several limits", "a rate_limit of its own; "+p.hasKey(beside))
	}
	p.number(o, "requests_per_unit")
}

// hasKey says where the other limits stand.
func (p *parser) hasKey(beside *yaml.Node) string {
	return p.position(beside).brief() + " has " + beside.Value
}

// theirs reads a limit of envoyproxy/ratelimit: a fixed window that also charges
// refused requests.
func (p *parser) theirs(o object, l *RateLimit, beside *yaml.Node) {
	for _, key := range weirKeys {
		switch {
		case key == "period" && o.has(key) && !o.has("unit"):
			p.report(o.position(key), "period without algorithm", "algorithm: gcra, or another one, beside it, or a unit in its place: "+oneOf(unitNames))
		case o.has(key):
			p.report(o.position(key), key+" without algorithm", "an algorithm beside it: "+oneOf(algorithms()))
		}
	}
	if beside != nil {
		p.report(o.node, "a limit without algorithm beside "+beside.Value, "an algorithm: "+oneOf(algorithms())+"; "+p.hasKey(beside))
	}
	l.OnStoreFailure = FailError
	l.Limit = weir.Limit{Algorithm: weir.FixedWindow, ChargeRefused: true, Count: p.number(o, "requests_per_unit")}
	if l.Limit.Period = fallback; o.has("unit") || !o.has("period") {
		l.Unit, l.Limit.Period = p.unit(o)
	}
}

// ours reads a limit that names its algorithm, and reports whether there is such
// an algorithm.
func (p *parser) ours(o object, l *RateLimit) bool {
	l.Grouped = true
	algorithm, known := p.algorithm(o)
	l.Limit = weir.Limit{
		Algorithm:     algorithm,
		Count:         p.number(o, "requests_per_unit"),
		Burst:         p.positive(o, "burst"),
		Buckets:       int(min(p.positive(o, "buckets"), math.MaxInt32)),
		ChargeRefused: p.truth(o, "charge_refused"),
	}
	if p.get(o, "block") != nil {
		l.Limit.Block = p.duration(o, "block", 0)
	}
	l.MaxKeys, l.Was, l.Show = p.maxKeys(o), p.printable(o, "was"), p.truth(o, "show")
	p.lease(o, l)
	if i, ok := p.word(o, "anchor", anchors); ok {
		l.Limit.Anchor = weir.Anchor(i)
	}
	p.calendar(o, &l.Limit)
	if i, ok := p.word(o, "on_store_failure", storeFailures); ok {
		l.OnStoreFailure = StoreFailure(i)
	}
	p.meter(o, l)
	p.length(o, l)
	p.alerts(o, l)
	return known
}

func (p *parser) maxKeys(o object) int {
	return int(p.bounded(o, "max_keys", keylimit.MaxKeys, ", or nothing for any number"))
}

// length reads the unit or the period of a limit of Weir's.
func (p *parser) length(o object, l *RateLimit) {
	if o.has("period") {
		l.Limit.Period = p.period(o)
	} else {
		l.Unit, l.Limit.Period = p.unit(o)
	}
	if o.has("unit") && o.has("period") {
		p.clash(o, "period", o, "unit", "unit")
	}
}

// lease reads whether instances may lease units.
func (p *parser) lease(o object, l *RateLimit) {
	l.Lease = p.truth(o, "lease")
	switch name := l.Limit.Algorithm.String(); {
	case !l.Lease:
	case !slices.Contains(leasable, name):
		p.report(o.position("lease"), "lease beside algorithm: "+name,
			"an algorithm whose units can be spent later than they are charged: "+oneOf(leasable)+"; "+p.line(o, "algorithm")+" has algorithm")
	case l.Limit.ChargeRefused:
		p.clash(o, "lease", o, "charge_refused", "charge_refused: true")
	case l.Limit.Block != 0:
		p.clash(o, "lease", o, "block", "block")
	}
}

// calendar reads the keys that make windows follow a calendar.
func (p *parser) calendar(o object, l *weir.Limit) {
	l.AnchorDay = int(min(p.positive(o, "anchor_day"), math.MaxInt32))
	if o.has("time_zone") {
		l.TimeZone = p.text(o, "time_zone")
		p.required(o, "time_zone", l.TimeZone, `an IANA time zone such as "Europe/Paris" or "UTC"`)
	}
}

func algorithms() []string { return strings.Split(algo.Names(), ", ") }

func (p *parser) algorithm(o object) (weir.Algorithm, bool) {
	name := p.text(o, "algorithm")
	algorithm, err := weir.ParseAlgorithm(name)
	if err != nil {
		p.suggest(valueOr(p.get(o, "algorithm"), o.position("algorithm")),
			"algorithm is "+kind(p.get(o, "algorithm")), oneOf(algorithms()), Nearest(name, algorithms()))
	}
	return algorithm, err == nil
}

// valueOr is the first node, or the second if there is none.
func valueOr(n, otherwise *yaml.Node) *yaml.Node {
	if n == nil {
		return otherwise
	}
	return n
}

// fallback stands for a period that cannot be read, so that the rest of the
// limit can be judged.
const fallback = time.Second

func (p *parser) unit(o object) (string, time.Duration) {
	n := p.get(o, "unit")
	if n == nil {
		p.report(o.position("unit"), "unit is missing", oneOf(unitNames))
		return "", fallback
	}
	name := strings.ToLower(n.Value)
	if period, ok := units[name]; ok && n.Kind == yaml.ScalarNode {
		return name, period
	}
	p.suggest(n, "unit is "+kind(n), oneOf(unitNames), cmp.Or(shortUnits[name], Nearest(name, unitNames)))
	return "", fallback
}

// shortUnits are units as other tools write them.
var shortUnits = map[string]string{
	"s": "second", "sec": "second", "secs": "second", "m": "minute", "min": "minute", "mins": "minute",
	"h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "mo": "month", "mon": "month", "y": "year", "yr": "year",
}

func (p *parser) period(o object) time.Duration { return p.duration(o, "period", fallback) }

// duration reads a duration; otherwise stands for one that cannot be read.
func (p *parser) duration(o object, key string, otherwise time.Duration) time.Duration {
	n := p.get(o, key)
	const want = "a duration such as 500ms, 30s, 10m or 24h"
	if n == nil || n.Kind != yaml.ScalarNode {
		p.report(o.position(key), key+" is "+kind(n), want)
		return otherwise
	}
	period, err := time.ParseDuration(n.Value)
	if err != nil {
		p.suggest(n, key+" is "+kind(n), want, cmp.Or(hours(n.Value), seconds(n.Value)))
		return otherwise
	}
	return period
}

// hours returns the hours of a number of days or weeks such as 7d, which no duration has;
// "" for anything else.
func hours(text string) string {
	for unit, each := range map[string]int{"d": 24, "w": 168} {
		number, found := strings.CutSuffix(text, unit)
		if n, err := strconv.Atoi(number); found && err == nil && n > 0 && n < 10_000 {
			return strconv.Itoa(n*each) + "h"
		}
	}
	return ""
}

// seconds is a number without its unit, with the most likely one.
func seconds(text string) string {
	if _, err := time.ParseDuration(text + "s"); err != nil || len(text) > 9 {
		return ""
	}
	return text + "s"
}

// compile compiles the limit and reports every mistake that weir finds, each at its
// field.
func (p *parser) compile(o object, l *RateLimit) {
	trial := l.Limit
	for {
		_, err := trial.Compile()
		if err == nil {
			return
		}
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) {
			p.report(o.node, err.Error(), "")
			return
		}
		p.judged(o, invalid)
		if !makeValid(&trial, invalid.Field) {
			return
		}
	}
}

// judged reports a mistake that weir found, under the names of the file.
func (p *parser) judged(o object, verdict *weir.InvalidError) {
	if p.countless && (verdict.Field == "count" || verdict.Beside == "count") {
		return
	}
	// The Default of a 0 does not count, because the file states the value.
	key, value, want := keyOf(verdict.Field, o), verdict.Value, verdict.Want
	if key == "unit" {
		// Every unit is a period that limits take; not every one is a calendar's.
		value, want = kind(p.get(o, "unit")), "day, week, month or year beside time_zone"
	}
	if verdict.Beside != "" {
		other := keyOf(verdict.Beside, o)
		want += "; " + p.line(o, other) + " has " + other
	}
	p.report(valueOr(p.get(o, key), o.position(key)), fmt.Sprintf("%s is %s", key, value), want)
}

// keyOf is the key of a limit's field.
func keyOf(field string, o object) string {
	switch {
	case field == "count" && o.has("dollars"):
		return "dollars"
	case field == "count":
		return "requests_per_unit"
	case field == "period" && !o.has("period"):
		return "unit"
	}
	return field
}

// makeValid makes a field valid, so that the next can be checked. It returns false if
// the mistake was not the field's own.
func makeValid(l *weir.Limit, field string) bool {
	before := *l
	switch field {
	case "count":
		l.Count = 1
	case "period":
		l.Period = time.Second
		if l.TimeZone != "" {
			l.Period = units["month"]
		}
	case "burst":
		l.Burst = 0
	case "buckets":
		l.Buckets = 0
	case "anchor":
		l.Anchor = weir.AnchorEpoch
	case "time_zone":
		// A calendar that stays lets the rest of it be judged.
		if algo.TraitsOf(l.Algorithm).Calendars && l.Anchor == weir.AnchorEpoch {
			l.TimeZone = "UTC"
		} else {
			l.TimeZone, l.AnchorDay = "", 0
		}
	case "anchor_day":
		l.AnchorDay = 0
	case "charge_refused":
		l.ChargeRefused = false
	case "block":
		l.Block = 0
	}
	return *l != before
}

// Window returns the limit of a rule that names no algorithm: count units in windows of
// multiplier times the unit. It also counts refused requests. The error is a
// [*weir.InvalidError].
func Window(count int64, unit string, multiplier uint32) (weir.Limit, error) {
	length, ok := units[unit]
	if !ok {
		return weir.Limit{}, &weir.InvalidError{Field: "unit", Value: strconv.Quote(unit), Want: oneOf(unitNames)}
	}
	if most := uint32(units["year"] / length); multiplier < 1 || multiplier > most {
		return weir.Limit{}, &weir.InvalidError{
			Field: "unit_multiplier", Value: strconv.FormatUint(uint64(multiplier), 10),
			Want: fmt.Sprintf("1 … %d of a %s", most, unit),
		}
	}
	length *= time.Duration(multiplier)
	return weir.Limit{Algorithm: weir.FixedWindow, ChargeRefused: true, Count: count, Period: length}, nil
}
