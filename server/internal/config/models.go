package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

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

// maxUSD is the largest amount of a limit, and maxPrice the largest price of a million
// tokens, in dollars. Beyond the first, a count in millionths of a dollar ends.
const (
	maxUSD   = weir.MaxCost / MicroUSD
	maxPrice = 100_000
)

const dollarsPattern = `^[0-9]{1,7}(\.[0-9]{1,6})?$`

var dollarsForm = regexp.MustCompile(dollarsPattern)

// dollars reads an amount of dollars in millionths of one. Without the key it is the given
// amount.
func (p *parser) dollars(o object, key string, most, otherwise int64) int64 {
	n := p.get(o, key)
	if n == nil {
		return otherwise
	}
	want := fmt.Sprintf("dollars, 0 … %d, with at most 6 decimals, such as 2.5", most)
	if !plain(n) || !dollarsForm.MatchString(n.Value) {
		p.report(n, key+" is "+kind(n), unquoted(n, want))
		return otherwise
	}
	whole, part, _ := strings.Cut(n.Value, ".")
	amount, err := strconv.ParseInt(whole+part+strings.Repeat("0", 6-len(part)), 10, 64)
	if err != nil || amount > most*MicroUSD {
		p.report(n, key+" is "+kind(n), want)
		return otherwise
	}
	return amount
}

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
		m := Model{At: p.position(row.node), Name: NewGlob(name), MaxOutput: p.bounded(row, "max_output", weir.MaxCost, ""), Reasoning: p.truth(row, "reasoning")}
		for _, key := range []string{"input", "output"} {
			if p.get(row, key) == nil {
				p.report(row.position(key), key+" is missing", "dollars per million tokens; 0 for none")
			}
		}
		m.Input = p.dollars(row, "input", maxPrice, 0)
		m.Output = p.dollars(row, "output", maxPrice, 0)
		m.CacheRead = p.dollars(row, "cache_read", maxPrice, m.Input)
		m.CacheWrite = p.dollars(row, "cache_write", maxPrice, m.Input)
		models = append(models, m)
	}
	return models
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
	switch {
	case o.has("count") && algo.TraitsOf(l.Limit.Algorithm).HoldsSlots && name != MeterRequests:
		p.report(o.position("count"), "count: "+name+" beside algorithm: concurrency", "requests: each holds one slot; "+p.line(o, "algorithm")+" has algorithm")
	case o.has("dollars") && o.has("requests_per_unit"):
		p.clash(o, "requests_per_unit", o, "dollars", "dollars")
	case o.has("dollars") && name != MeterUSD:
		p.report(o.position("dollars"), "dollars without count: usd", "count: usd beside it, or requests_per_unit in its place")
	case o.has("dollars") && p.get(o, "dollars") == nil:
		p.report(o.position("dollars"), "dollars is nothing", fmt.Sprintf("dollars, 0 … %d", maxUSD))
	case o.has("dollars"):
		l.Limit.Count = p.dollars(o, "dollars", maxUSD, 1)
	case name == MeterUSD:
		p.report(o.position("requests_per_unit"), "a limit of usd without dollars", fmt.Sprintf("dollars, 0 … %d", maxUSD))
	case p.get(o, "requests_per_unit") == nil:
		p.report(o.position("requests_per_unit"), "requests_per_unit is missing", "a whole number; 0 refuses everything")
	}
}

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
