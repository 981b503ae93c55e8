package meter

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
)

// A number is a number of tokens in a report.
type number struct {
	n int64
	// here says that the report has it, and wrong that it cannot be right.
	here, wrong bool
}

// UnmarshalJSON reads a whole number, 0 … 10⁹. Null is none, and neither is anything else.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if n.wrong = err != nil || f < 0 || f > maxTokens || f != math.Trunc(f); !n.wrong {
		n.n, n.here = int64(f), true
	}
	return nil
}

// raise makes the number at least another one.
func (n *number) raise(by number) {
	n.n, n.here, n.wrong = max(n.n, by.n), n.here || by.here, n.wrong || by.wrong
}

// add adds another number.
func (n *number) add(by number) {
	n.n, n.here, n.wrong = plus(n.n, by.n), n.here || by.here, n.wrong || by.wrong
}

// A report is the usage of a provider, in either form.
type report struct {
	Prompt       number   `json:"prompt_tokens"`
	Completion   number   `json:"completion_tokens"`
	Input        number   `json:"input_tokens"`
	Output       number   `json:"output_tokens"`
	Total        number   `json:"total_tokens"`
	Created      number   `json:"cache_creation_input_tokens"`
	Read         number   `json:"cache_read_input_tokens"`
	OfPrompt     details  `json:"prompt_tokens_details"`
	OfInput      details  `json:"input_tokens_details"`
	OfCompletion details  `json:"completion_tokens_details"`
	OfOutput     details  `json:"output_tokens_details"`
	Iterations   []report `json:"iterations"` // of Anthropic: calls whose sum the numbers above can lack
}

type details struct {
	Cached    number `json:"cached_tokens"`
	Written   number `json:"cache_write_tokens"`
	Reasoning number `json:"reasoning_tokens"`
}

// readReport reads a report. A part that cannot be read has no numbers.
func readReport(text []byte) (report, bool) {
	var r report
	wrong := new(json.UnmarshalTypeError)
	if err := json.Unmarshal(text, &r); err != nil && !errors.As(err, &wrong) {
		return report{}, false
	}
	var sum report
	for i := range r.Iterations {
		of := &r.Iterations[i]
		sum.Input.add(of.Input)
		sum.Output.add(of.Output)
		sum.Created.add(of.Created)
		sum.Read.add(of.Read)
	}
	r.Iterations = nil
	r.raise(&sum)
	return r, true
}

// numbers returns the numbers of a report.
func (r *report) numbers() []*number {
	all := []*number{&r.Prompt, &r.Completion, &r.Input, &r.Output, &r.Total, &r.Created, &r.Read}
	for _, d := range []*details{&r.OfPrompt, &r.OfInput, &r.OfCompletion, &r.OfOutput} {
		all = append(all, &d.Cached, &d.Written, &d.Reasoning)
	}
	return all
}

// raise makes each number at least that of another report on the same answer: a later one
// can lack numbers, or have zeros.
func (r *report) raise(by *report) {
	others := by.numbers()
	for i, n := range r.numbers() {
		n.raise(*others[i])
	}
}

// wrong reports whether a number cannot be right.
func (r *report) wrong() bool {
	for _, n := range r.numbers() {
		if n.wrong {
			return true
		}
	}
	return false
}

// A usage is what was used, as the meters count it. Input is without what was read from a
// cache; written is the part of it that was written to one.
type usage struct {
	input, cached, written, output int64
	// total is the least sum of all tokens.
	total int64
	// hasInput and hasOutput say that the provider reported them.
	hasInput, hasOutput bool
	// cut says that the answer was cut off, and that its output until then was seen.
	cut bool
}

// usage returns what a report says. An output that only the total contains, such as hidden
// reasoning, is output; a total that is too small is ignored.
func (r *report) usage(f Form, e endpoint) usage {
	u := usage{total: r.Total.n}
	in, out := r.Input, r.Output
	if f == Anthropic {
		u.input, u.cached, u.written = plus(in.n, r.Created.n), r.Read.n, r.Created.n
	} else {
		in.raise(r.Prompt)
		out.raise(r.Completion)
		if e == embeddings {
			in.raise(r.Total)
		}
		u.cached = max(r.OfPrompt.Cached.n, r.OfInput.Cached.n)
		if u.input = in.n; u.cached <= u.input { // else it is without what was cached
			u.input -= u.cached
		}
		u.written = min(u.input, max(r.OfPrompt.Written.n, r.OfInput.Written.n))
	}
	u.output = max(out.n, r.OfCompletion.Reasoning.n, r.OfOutput.Reasoning.n)
	// No request has neither input nor output: zeros are no report.
	u.hasInput = in.here && u.input+u.cached > 0
	u.hasOutput = out.here && (u.hasInput || u.output > 0)
	if rest := u.rest(); u.hasInput && rest > u.output {
		u.output, u.hasOutput = rest, true
	}
	if e == embeddings {
		u.output, u.total, u.hasOutput = 0, 0, u.hasInput
	}
	return u
}

// rest returns what the total has beside the input.
func (u *usage) rest() int64 { return u.total - u.input - u.cached }

// end returns what an answer used by its report and by the output that was seen, and why
// that is not all reported; empty if it is.
func (r *report) end(f Form, e endpoint, seen int64) (usage, string) {
	u := r.usage(f, e)
	if !u.hasOutput || u.output == 0 && e != embeddings {
		u.output = max(u.output, seen)
	}
	switch {
	case u.hasInput && u.hasOutput:
		return u, ""
	case r.wrong():
		return u, UsageInvalid
	}
	return u, UsageAbsent
}
