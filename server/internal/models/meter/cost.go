package meter

import (
	"fmt"

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
	body  pieces // to forward
	plain pieces // the same without stream_options of Weir; nil if it added none
	costs map[string]int64
	// most is the output of an answer that ends without a report.
	most int64
	// hidden says that output is made that nobody sees before the end.
	hidden bool
	// least is the part of the costs that was stated; nil if nothing was guessed.
	least map[string]int64
	price *config.Model
}

// estimateOf estimates a request. The error is a [*refusal].
func estimateOf(r *request, m manner, table []config.Model) (*estimate, error) {
	e := &estimate{price: config.PriceOf(table, r.model)}
	e.hidden = !r.stream || e.price != nil && e.price.Reasoning
	edits := r.replacing(e.price)
	output, bound, err := e.output(r, m)
	if err != nil {
		return nil, err
	}
	if bound != nil {
		edits = append(edits, *bound)
	}
	e.body, e.most = r.edited(edits...), e.bound(r, output)
	if r.stream && r.endpoint.reportsOnDemand() && !r.asked {
		e.plain, e.body = e.body, r.edited(append(edits, r.reporting())...)
	}
	var input int64
	switch {
	case r.endpoint == countTokens:
	case m.strict:
		input = min(maxTokens, e.body.size()+overhead)
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

// output returns the output that the request is held for. A strict estimate bounds a request
// that has no bound.
func (e *estimate) output(r *request, m manner) (int64, *edit, error) {
	answers := times(r.answers, r.prompts)
	own := r.endpoint.bounds()
	switch {
	case r.endpoint == countTokens:
		return 0, nil, nil
	case m.strict && r.parts.unbounded != "":
		return 0, nil, unbounded(r.parts.unbounded)
	case len(own) == 0:
		return 0, nil, nil
	case m.strict && r.zero != "":
		return 0, nil, unbounded(fmt.Sprintf("%q: 0 is no bound", r.zero))
	case m.strict && r.bounded:
		return times(answers, r.bound), nil, nil
	case m.strict && (e.price == nil || e.price.MaxOutput == 0):
		return 0, nil, unbounded(fmt.Sprintf("%q: the output has no bound", own[0]))
	case m.strict:
		bound := r.bounding(e.price.MaxOutput)
		return times(answers, e.price.MaxOutput), &bound, nil
	case r.bounded:
		return times(answers, min(r.bound, m.guess)), nil, nil
	}
	return times(answers, m.guess), nil, nil
}

// bound returns the most that an answer which reports nothing can have had, as far as it is
// known: at least what is held.
func (e *estimate) bound(r *request, output int64) int64 {
	most := r.bound
	if e.price != nil && e.price.MaxOutput > 0 && (!r.bounded || e.price.MaxOutput < most) {
		most = e.price.MaxOutput
	}
	if len(r.endpoint.bounds()) == 0 {
		most = 0
	}
	return max(output, times(times(r.answers, r.prompts), most))
}

// complete returns a usage with all numbers. An input that was not reported is what was
// estimated. An output that was not reported is the bound; if the answer was cut off and
// nothing of it was hidden, it is what was seen.
func (e *estimate) complete(u usage) usage {
	if !u.hasInput {
		u.input = max(u.input, e.costs[config.MeterInput])
		if e.price != nil && e.price.CacheWrite > e.price.Input {
			u.written = u.input
		}
	}
	if !u.hasOutput && (!u.cut || e.hidden) {
		u.output = max(u.output, e.most)
	}
	u.output = max(u.output, u.rest())
	return u
}

// row returns the pattern of the row of the price table; empty if there is none.
func (e *estimate) row() string {
	if e.price == nil {
		return ""
	}
	return e.price.Name.String()
}

// nothing is a usage that is known to be none.
var nothing = usage{hasInput: true, hasOutput: true}

// actual returns what a meter is charged in the end.
func actual(meter string, u usage, p *config.Model) int64 {
	switch meter {
	case config.MeterRequests:
		return 1
	case config.MeterInput:
		return u.input
	case config.MeterCached:
		return u.cached
	case config.MeterOutput:
		return u.output
	case config.MeterTokens:
		return min(maxTokens, u.input+u.cached+u.output)
	case config.MeterUSD:
		if p != nil {
			return dollars(p, u)
		}
	}
	return 0
}
