package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

const (
	// maxModel is the length of the longest name of a model, in bytes.
	maxModel = 256
	// maxTokens is the largest number that can be charged.
	maxTokens = weir.MaxCost
)

// A request is what a body says about its cost.
type request struct {
	endpoint endpoint
	body     []byte
	fields   []field
	model    string
	stream   bool
	bounded  bool  // the output has a bound
	bound    int64 // of one answer, in tokens
	answers  int64 // how many are asked for
	parts    parts
	// remote says that a part of the input is at the provider.
	remote bool
	// asked says that the client wants the usage in the stream.
	asked bool
}

// readRequest reads the body of a request. The error is a [*refusal].
func readRequest(e endpoint, body []byte) (*request, error) {
	r := &request{endpoint: e, body: body, answers: 1}
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, invalidBody("the body is not JSON")
	}
	var ok bool
	if r.fields, ok = topFields(body); !ok {
		return nil, invalidBody("the body is not a JSON object")
	}
	values := make(map[string][]byte, len(r.fields))
	for _, f := range r.fields {
		if _, again := values[f.name]; again {
			return nil, invalidBody(fmt.Sprintf("the field %q is there twice", shorten(f.name)))
		}
		values[f.name] = f.value
	}
	if err := r.read(values); err != nil {
		return nil, err
	}
	if e != embeddings && e != countTokens {
		r.parts = partsOf(body)
	}
	return r, nil
}

// read reads the fields.
func (r *request) read(values map[string][]byte) error {
	if some(values["model"]) && json.Unmarshal(values["model"], &r.model) != nil || r.model == "" {
		return invalidBody("the body has no model")
	}
	if len(r.model) > maxModel {
		return invalidBody(fmt.Sprintf("the name of the model has %d bytes: at most %d", len(r.model), maxModel))
	}
	if string(values["background"]) == "true" {
		return invalidBody("background requests are not metered")
	}
	r.stream = string(values["stream"]) == "true"
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		n, given, err := whole(name, values[name])
		if err != nil {
			return err
		}
		r.bounded, r.bound = r.bounded || given, max(r.bound, n)
	}
	for _, name := range []string{"n", "best_of"} {
		n, _, err := whole(name, values[name])
		if err != nil {
			return err
		}
		r.answers = max(r.answers, n)
	}
	r.answers = times(r.answers, prompts(values["prompt"], r.endpoint))
	if r.endpoint == responses {
		for _, name := range []string{"previous_response_id", "conversation", "prompt"} {
			r.remote = r.remote || some(values[name])
		}
		r.remote = r.remote || bytes.Contains(values["input"], []byte("item_reference"))
	}
	if options := values["stream_options"]; some(options) {
		var o struct {
			IncludeUsage bool `json:"include_usage"`
		}
		if json.Unmarshal(options, &o) != nil {
			return invalidBody("stream_options is not an object with a boolean include_usage")
		}
		r.asked = o.IncludeUsage
	}
	return nil
}

// some reports whether a field is there and not null.
func some(value []byte) bool { return len(value) > 0 && string(value) != "null" }

// whole reads a whole number; null counts as absent. Larger numbers than can be charged
// are the largest one.
func whole(name string, value []byte) (n int64, given bool, err error) {
	if !some(value) {
		return 0, false, nil
	}
	u, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, false, invalidBody(name + " is not a whole number, 0 or more")
	}
	return int64(min(u, maxTokens)), true, nil
}

// prompts returns how many prompts a request for completions has: an array of texts, or of
// arrays of tokens, has several.
func prompts(value []byte, e endpoint) int64 {
	if e != completions || len(value) == 0 || value[0] != '[' {
		return 1
	}
	s := scanner{text: value, i: 1}
	n := int64(0)
	for s.space(); s.i < len(value) && s.at() != ']'; s.space() {
		switch s.at() {
		case ',':
			s.i++
			continue
		case '"', '[':
			n++
		}
		s.skip()
	}
	return max(1, n)
}

// times multiplies two numbers up to the largest that can be charged.
func times(a, b int64) int64 {
	if a > 0 && b > maxTokens/a {
		return maxTokens
	}
	return a * b
}

// plus adds two numbers up to the largest that can be charged.
func plus(a, b int64) int64 { return min(maxTokens, a+b) }

// with returns an object with a field, which is set or replaced; everything else stays byte
// for byte.
func with(body []byte, name, value string) []byte {
	fields, _ := topFields(body)
	for _, f := range fields {
		if f.name == name {
			return bytes.Join([][]byte{body[:f.at], []byte(value), body[f.at+len(f.value):]}, nil)
		}
	}
	open := bytes.IndexByte(body, '{') + 1
	text := strconv.Quote(name) + ":" + value
	if len(fields) > 0 {
		text += ","
	}
	return bytes.Join([][]byte{body[:open], []byte(text), body[open:]}, nil)
}

// withUsage returns the body of a stream with include_usage.
func (r *request) withUsage(body []byte) []byte {
	for _, f := range r.fields {
		if f.name == "stream_options" && some(f.value) {
			options := with(f.value, "include_usage", "true")
			return with(body, "stream_options", string(options))
		}
	}
	return with(body, "stream_options", `{"include_usage":true}`)
}

// shorten cuts a part of a request to a length that a message may repeat.
func shorten(text string) string {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
