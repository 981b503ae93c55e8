package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// The meters that limits can count. A limit without one counts requests.
const (
	MeterRequests = "requests"
	MeterInput    = "input"
	MeterCached   = "cached"
	MeterOutput   = "output"
	MeterTokens   = "tokens"
	MeterUSD      = "usd" // in millionths of a dollar
)

// Meters returns the names of the meters.
func Meters() []string {
	return []string{MeterRequests, MeterInput, MeterCached, MeterOutput, MeterTokens, MeterUSD}
}

// DefaultOutputGuess is the number of output tokens that a request holds if no rule says
// how many.
const DefaultOutputGuess = 1024

// MicroUSD is the number of units of a usd limit in a dollar.
const MicroUSD = 1_000_000

// A Model is one row of the price table: the models that a pattern fits.
type Model struct {
	At   Position
	Name Glob
	// The prices are in dollars per 10¹² tokens.
	Input, CacheRead, CacheWrite, Output int64
	// MaxOutput is the largest output of the models, in tokens; 0: unknown.
	MaxOutput int64
	// Reasoning says that the models make output that clients do not see before the end.
	Reasoning bool
}

const (
	// MaxPrice is the largest price of a million tokens, in millionths of a dollar.
	MaxPrice = 100_000 * MicroUSD
	// MaxOutput is the largest output of a model, in tokens.
	MaxOutput = weir.MaxCost
)

const dollarsPattern = `^[0-9]{1,9}(\.[0-9]{1,6})?$`

var dollarsForm = regexp.MustCompile(dollarsPattern)

// ParseDollars reads an amount such as 2.5, at most 999999999.999999, in millionths of a dollar.
func ParseDollars(text string) (micros int64, ok bool) {
	if !dollarsForm.MatchString(text) {
		return 0, false
	}
	whole, part, _ := strings.Cut(text, ".")
	micros, err := strconv.ParseInt(whole+part+strings.Repeat("0", 6-len(part)), 10, 64)
	return micros, err == nil
}

// DollarsText writes an amount in millionths of a dollar, such as 2.5. [ParseDollars] reads it unless
// it is negative.
func DollarsText(micros int64) string {
	if micros < 0 {
		return "-" + DollarsText(-micros)
	}
	text := fmt.Sprintf("%d.%06d", micros/MicroUSD, micros%MicroUSD)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// AmountText writes a number of units of a meter for people: dollars as $2.5, others as they
// are.
func AmountText(meter string, n int64) string {
	if meter != MeterUSD {
		return strconv.FormatInt(n, 10)
	}
	if n < 0 {
		return "-$" + DollarsText(-n)
	}
	return "$" + DollarsText(n)
}

// LimitText writes a limit for people: as [weir.Limit.String], with dollars as $5/month.
func LimitText(l *weir.Limit) string {
	text := l.String()
	if l.Meter != MeterUSD {
		return text
	}
	_, rest, _ := strings.Cut(text, "/")
	text = AmountText(MeterUSD, l.Count) + "/" + rest
	if l.Burst > 0 && l.Burst != l.Count {
		text = strings.Replace(text, " burst "+strconv.FormatInt(l.Burst, 10), " burst "+AmountText(MeterUSD, l.Burst), 1)
	}
	return text
}

// dollars reads an amount of dollars, in millionths of one. Without the key it is the given
// amount. Beyond says which larger amounts are possible; empty: none.
func (p *parser) dollars(o object, key string, most int64, beyond string, otherwise int64) int64 {
	n := p.get(o, key)
	if n == nil {
		return otherwise
	}
	want := dollarsWanted(most) + ", with at most 6 decimals, such as 2.5" + beyond
	amount, ok := ParseDollars(n.Value)
	switch {
	case !plain(n) || !ok:
		p.report(n, key+" is "+kind(n), unquoted(n, want))
		return otherwise
	case amount > most:
		p.report(n, key+" is "+kind(n), want)
		return otherwise
	}
	return amount
}

// PriceOf returns the first row of a price table for a model; nil if there is none.
func PriceOf(table []Model, model string) *Model {
	for i := range table {
		if table[i].Name.Match(model) {
			return &table[i]
		}
	}
	return nil
}

// Dearer reports whether a model is dearer than another one in input and in output.
func (m *Model) Dearer(other *Model) bool { return m.Input > other.Input && m.Output > other.Output }

// models reads the price table.
func (p *parser) models(o object) []Model {
	var models []Model
	for _, item := range p.items(o, "models") {
		row, ok := p.object(item, inModel)
		if !ok {
			continue
		}
		name := p.text(row, "model")
		p.required(row, "model", name, "the name of a model; * stands for any text")
		m := Model{At: p.position(row.node), Name: NewGlob(name), MaxOutput: p.bounded(row, "max_output", MaxOutput, ""), Reasoning: p.truth(row, "reasoning")}
		for _, key := range []string{"input", "output"} {
			if p.get(row, key) == nil {
				p.report(row.position(key), key+" is missing", "dollars per million tokens; 0 for none")
			}
		}
		m.Input = p.dollars(row, "input", MaxPrice, "", 0)
		m.Output = p.dollars(row, "output", MaxPrice, "", 0)
		m.CacheRead = p.dollars(row, "cache_read", MaxPrice, "", m.Input)
		m.CacheWrite = p.dollars(row, "cache_write", MaxPrice, "", m.Input)
		models = append(models, m)
	}
	return models
}

// maxClasses is the largest number of classes.
const maxClasses = 16

// classNames reads the classes of callers.
func (p *parser) classNames(o object) (names []string) {
	list := p.get(o, "classes")
	if list == nil {
		return nil
	}
	items := p.items(o, "classes")
	for _, item := range items[:min(len(items), maxClasses)] {
		n := p.visit(item)
		switch {
		case n == nil || n.Kind != yaml.ScalarNode || !IsCallName(n.Value):
			p.report(item, kind(n)+" in classes", CallNameForm)
		case slices.Contains(names, n.Value):
			p.report(item, quote(n.Value)+" again in classes", "each class once")
		default:
			names = append(names, n.Value)
		}
	}
	if n := len(items); list.Kind == yaml.SequenceNode && (n < 2 || n > maxClasses) {
		p.report(list, fmt.Sprintf("classes has length %d", n), fmt.Sprintf("2 … %d names, the highest class first, such as [interactive, batch]", maxClasses))
	}
	return names
}

// meter reads what a limit with an algorithm counts.
func (p *parser) meter(o object, l *RateLimit) {
	name := MeterRequests
	if i, ok := p.word(o, "count", Meters()); ok {
		name = Meters()[i]
	}
	if name != MeterRequests {
		l.Limit.Meter = name
	}
	most, beyond := mostOf(&l.Limit), ""
	if most < mostWindow {
		beyond = ", or algorithm: fixed_window, to " + DollarsText(mostWindow)
	}
	switch {
	case o.has("count") && algo.TraitsOf(l.Limit.Algorithm).HoldsSlots && name != MeterRequests:
		p.report(o.position("count"), "count: "+name+" beside algorithm: concurrency", "requests: each holds one slot; "+p.line(o, "algorithm")+" has algorithm")
	case o.has("dollars") && o.has("requests_per_unit"):
		p.clash(o, "requests_per_unit", o, "dollars", "dollars")
	case o.has("dollars") && name != MeterUSD:
		p.report(o.position("dollars"), "dollars without count: usd", "count: usd beside it, or requests_per_unit in its place")
	case o.has("dollars") && p.get(o, "dollars") == nil:
		p.report(o.position("dollars"), "dollars is nothing", dollarsWanted(most))
	case o.has("dollars"):
		l.Limit.Count = p.dollars(o, "dollars", most, beyond, 1)
	case name == MeterUSD:
		p.report(o.position("requests_per_unit"), "a limit of usd without dollars", dollarsWanted(most))
	case p.get(o, "requests_per_unit") == nil:
		p.report(o.position("requests_per_unit"), "requests_per_unit is missing", "a whole number; 0 refuses everything")
	}
}

// mostOf is the largest count of a limit of dollars.
func mostOf(l *weir.Limit) int64 {
	if l.Algorithm == weir.FixedWindow && !l.ChargeRefused {
		return mostWindow
	}
	return mostUnits
}

func dollarsWanted(most int64) string { return "dollars, 0 … " + DollarsText(most) }

var estimates = []string{"guess", "strict"}

// estimate reads how the requests of a descriptor are estimated.
func (p *parser) estimate(o object, d *Descriptor) {
	if i, ok := p.word(o, "estimate", estimates); ok {
		d.Strict = estimates[i] == "strict"
	}
	d.OutputGuess = p.bounded(o, "output_guess", weir.MaxCost, "")
	if !slices.ContainsFunc(d.Limits, func(l RateLimit) bool { return l.Grouped }) && d.Shares == nil {
		for _, key := range []string{"estimate", "output_guess"} {
			if p.get(o, key) != nil {
				p.report(o.position(key), key+" without algorithm", "a rate_limit that names an algorithm beside it")
			}
		}
	}
}
