package meter

import (
	"encoding/json"
	"errors"
	"strconv"
)

// errUsage is the error of usage that cannot be right. None of its numbers counts.
var errUsage = errors.New("meter: invalid usage")

// A number is a number of tokens in a report.
type number struct {
	n    int64
	here bool
}

// UnmarshalJSON reads a whole number, 0 … 10⁹. Null is none.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	u, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || u > maxTokens {
		return errUsage
	}
	n.n, n.here = int64(u), true
	return nil
}

// report is the usage of a provider, in either form.
type report struct {
	Prompt     number  `json:"prompt_tokens"`
	Completion number  `json:"completion_tokens"`
	Input      number  `json:"input_tokens"`
	Output     number  `json:"output_tokens"`
	Total      number  `json:"total_tokens"`
	Created    number  `json:"cache_creation_input_tokens"`
	Read       number  `json:"cache_read_input_tokens"`
	OfPrompt   details `json:"prompt_tokens_details"`
	OfInput    details `json:"input_tokens_details"`
}

type details struct {
	Cached  number `json:"cached_tokens"`
	Written number `json:"cache_write_tokens"`
}

// A usage is what was used, as the meters count it. Input is without what was read from a
// cache; written is the part of it that was written to one.
type usage struct {
	input, cached, written, output int64
	// hasInput and hasOutput say that the provider reported them.
	hasInput, hasOutput bool
}

// readUsage reads a provider's report.
func readUsage(f Form, text []byte) (usage, error) {
	var r report
	if json.Unmarshal(text, &r) != nil {
		return usage{}, errUsage
	}
	if f == Anthropic {
		return usage{
			input: r.Input.n + r.Created.n, cached: r.Read.n, written: r.Created.n, output: r.Output.n,
			hasInput: r.Input.here, hasOutput: r.Output.here,
		}, nil
	}
	in, out, of := r.Prompt, r.Completion, r.OfPrompt
	if r.Input.here || r.Output.here {
		in, out, of = r.Input, r.Output, r.OfInput
	}
	switch {
	case in.here && r.Total.here && r.Total.n != in.n+out.n:
		return usage{}, errUsage
	case of.Cached.n > in.n || of.Written.n > in.n-of.Cached.n:
		return usage{}, errUsage
	}
	return usage{
		input: in.n - of.Cached.n, cached: of.Cached.n, written: of.Written.n, output: out.n,
		hasInput: in.here, hasOutput: out.here,
	}, nil
}

// add keeps the last value of each number of a later report of the same stream. A number
// that falls is an error.
func (u *usage) add(later usage) error {
	if later.hasInput {
		if u.hasInput && (later.input < u.input || later.cached < u.cached || later.written < u.written) {
			return errUsage
		}
		u.input, u.cached, u.written, u.hasInput = later.input, later.cached, later.written, true
	}
	if later.hasOutput {
		if later.output < u.output {
			return errUsage
		}
		u.output, u.hasOutput = later.output, true
	}
	return nil
}
