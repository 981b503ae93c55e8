package meter

import (
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// bytesPerToken and mediaTokens are what a guess goes by.
	bytesPerToken = 4
	mediaTokens   = 1600
	// overhead is how many tokens a provider may add to a body, by a strict estimate.
	overhead = 1024
	// pricePerToken is how many units of a price are a millionth of a dollar per token.
	pricePerToken = 1_000_000
)

// ceil divides and rounds up.
func ceil(n, by int64) int64 { return (n + by - 1) / by }

// price returns the first row for a model; nil if there is none.
func price(table []config.Model, model string) *config.Model {
	for i := range table {
		if table[i].Name.Match(model) {
			return &table[i]
		}
	}
	return nil
}

// dollars returns what tokens cost, in millionths of a dollar, rounded up once.
func dollars(p *config.Model, u usage) int64 {
	const most = maxTokens * pricePerToken
	sum := int64(0)
	for _, part := range [...][2]int64{
		{u.input - u.written, p.Input}, {u.written, p.CacheWrite}, {u.cached, p.CacheRead}, {u.output, p.Output},
	} {
		tokens, each := part[0], part[1]
		if each > 0 && tokens > most/each {
			return maxTokens
		}
		sum = min(most, sum+tokens*each)
	}
	return ceil(sum, pricePerToken)
}

// manner is how the rules that match a request want it estimated.
type manner struct {
	strict bool
	guess  int64 // of the output of one answer
}

// mannerOf returns the strictest manner of the rules that a plan applies.
func mannerOf(plan *rules.Plan) manner {
	m := manner{}
	for i := range plan.Applied {
		if r := plan.Applied[i].Rule; !r.Shadow {
			m.strict, m.guess = m.strict || r.Strict, max(m.guess, r.OutputGuess)
		}
	}
	if m.guess == 0 {
		m.guess = config.DefaultOutputGuess
	}
	return m
}

// An estimate is what a request is held to cost.
type estimate struct {
	body  []byte // to forward
	costs map[string]int64
	// least is the part of the costs that was stated; nil if nothing was guessed.
	least map[string]int64
	price *config.Model
}

// estimateOf estimates a request. The error is a [*refusal].
func estimateOf(r *request, m manner, table []config.Model) (*estimate, error) {
	e := &estimate{body: r.body, price: price(table, r.model)}
	output, err := e.output(r, m)
	if err != nil {
		return nil, err
	}
	if r.stream && r.endpoint.reportsOnDemand() && !r.asked {
		e.body = r.withUsage(e.body)
	}
	var input int64
	switch {
	case r.endpoint == countTokens:
		output = 0
	case m.strict:
		input = min(maxTokens, int64(len(e.body))+overhead)
	default:
		input = min(maxTokens, ceil(int64(len(r.body)-r.parts.bytes), bytesPerToken)+mediaTokens*int64(r.parts.media))
	}
	e.costs = map[string]int64{
		config.MeterRequests: 1, config.MeterInput: input, config.MeterCached: 0,
		config.MeterOutput: output, config.MeterTokens: plus(input, output),
	}
	if !m.strict {
		e.least = map[string]int64{config.MeterRequests: 1, config.MeterInput: input, config.MeterCached: 0, config.MeterOutput: 0, config.MeterTokens: input}
	}
	if e.price != nil {
		dearer := *e.price
		dearer.Input = max(dearer.Input, dearer.CacheWrite)
		e.costs[config.MeterUSD] = dollars(&dearer, usage{input: input, output: output})
		if e.least != nil {
			e.least[config.MeterUSD] = dollars(&dearer, usage{input: input})
		}
	}
	return e, nil
}

// output returns the output that the request is held for. A strict estimate adds a bound to
// a request that has none.
func (e *estimate) output(r *request, m manner) (int64, error) {
	field := r.endpoint.bound()
	switch {
	case field == "":
		return 0, nil
	case !m.strict && r.bounded:
		return times(r.answers, min(r.bound, m.guess)), nil
	case !m.strict:
		return times(r.answers, m.guess), nil
	case r.parts.media > 0:
		return 0, unbounded("a part that is not text has no bound")
	case r.remote:
		return 0, unbounded("input that is stored at the provider has no bound")
	case r.bounded:
		return times(r.answers, r.bound), nil
	case e.price == nil || e.price.MaxOutput == 0:
		return 0, unbounded("want " + field + ": the output has no bound")
	}
	e.body = with(e.body, field, decimal(e.price.MaxOutput))
	return times(r.answers, e.price.MaxOutput), nil
}

// complete returns a usage with the larger of the hold and what was seen for each number
// that was not reported.
func (e *estimate) complete(u usage) usage {
	if !u.hasInput {
		u.input = max(u.input, e.costs[config.MeterInput])
		if e.price != nil && e.price.CacheWrite > e.price.Input {
			u.written = u.input
		}
	}
	if !u.hasOutput {
		u.output = max(u.output, e.costs[config.MeterOutput])
	}
	return u
}

// A number that is charged at the end of a request, and whether the provider reported it.
type settled struct {
	n        int64
	reported bool
}

// actual returns what a meter is charged in the end.
func actual(meter string, u usage, p *config.Model) settled {
	switch meter {
	case config.MeterRequests:
		return settled{1, true}
	case config.MeterInput:
		return settled{u.input, u.hasInput}
	case config.MeterCached:
		return settled{u.cached, u.hasInput}
	case config.MeterOutput:
		return settled{u.output, u.hasOutput}
	case config.MeterTokens:
		return settled{min(maxTokens, u.input+u.cached+u.output), u.hasInput && u.hasOutput}
	case config.MeterUSD:
		if p != nil {
			return settled{dollars(p, u), u.hasInput && u.hasOutput}
		}
	}
	return settled{}
}
