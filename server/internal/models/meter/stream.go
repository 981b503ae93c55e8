package meter

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// maxEvent is the size of the largest event that is read. A larger one passes unread.
const maxEvent = 1 << 20

// A stream reads server-sent events while they pass, each as a whole.
type stream struct {
	form     Form
	endpoint endpoint
	removes  bool // the chunk of usage

	partial []byte // of the next event
	passing bool   // the rest of an event that is too large
	report  report
	least   int64 // output tokens that a partial report names
	texts   int64 // bytes of output
	events  int64 // with output
	partly  bool  // usage came beside choices: it counts if the stream ends in order
	ended   bool  // in order
	broke   bool  // by an error of the provider
}

func (s *stream) state() (ended, broke bool) { return s.ended, s.broke }

func (s *stream) feed(to, came []byte) []byte {
	s.partial = append(s.partial, came...)
	from := 0
	for {
		n := eventEnd(s.partial[from:])
		if n < 0 {
			break
		}
		whole := s.partial[from : from+n]
		from += n
		if s.passing {
			s.passing = false
		} else if s.drops(whole) {
			continue
		}
		to = append(to, whole...)
	}
	s.partial = append(s.partial[:0], s.partial[from:]...)
	if len(s.partial) > maxEvent {
		s.texts += int64(len(s.partial))
		to, s.passing = append(to, s.partial...), true
		s.partial = nil
	}
	return to
}

// rest appends an event that was cut off.
func (s *stream) rest(to []byte) []byte {
	to = append(to, s.partial...)
	s.partial = nil
	return to
}

// eventEnd returns where the first event ends, behind its empty line; -1 if it goes on.
func eventEnd(text []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n + 1
		switch {
		case i < len(text) && text[i] == '\n':
			return i + 1
		case i+1 < len(text) && text[i] == '\r' && text[i+1] == '\n':
			return i + 2
		}
	}
}

// data returns the data of an event.
func data(event []byte) []byte {
	var all []byte
	for line := range bytes.Lines(event) {
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		value = bytes.TrimSpace(value)
		if all == nil {
			all = value
			continue
		}
		all = append(append(bytes.Clone(all), '\n'), value...)
	}
	return all
}

// chunk is the data of an event, in any form.
type chunk struct {
	Type     string          `json:"type"`
	Error    json.RawMessage `json:"error"`
	Usage    json.RawMessage `json:"usage"`
	Choices  []choice        `json:"choices"`
	Delta    json.RawMessage `json:"delta"`
	Response struct {
		Usage json.RawMessage `json:"usage"`
	} `json:"response"`
	Message struct {
		Usage json.RawMessage `json:"usage"`
	} `json:"message"`
}

// call is a call of a function.
type call struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type choice struct {
	Text  string `json:"text"`
	Delta struct {
		Content   string `json:"content"`
		Refusal   string `json:"refusal"`
		Reasoning string `json:"reasoning_content"`
		Thoughts  string `json:"reasoning"` // the same, of other providers
		Call      call   `json:"function_call"`
		ToolCalls []struct {
			Function call `json:"function"`
		} `json:"tool_calls"`
		Audio struct {
			Transcript string `json:"transcript"`
		} `json:"audio"`
	} `json:"delta"`
}

func (c *call) length() int { return len(c.Name) + len(c.Arguments) }

// length returns the bytes of output.
func (c *choice) length() int {
	d := &c.Delta
	n := len(c.Text) + len(d.Content) + len(d.Refusal) + max(len(d.Reasoning), len(d.Thoughts)) + d.Call.length() + len(d.Audio.Transcript)
	for i := range d.ToolCalls {
		n += d.ToolCalls[i].Function.length()
	}
	return n
}

// drops reads an event, and reports whether the client did not ask for it.
func (s *stream) drops(event []byte) bool {
	text := data(event)
	if string(text) == "[DONE]" {
		s.ended = true
		return false
	}
	var c chunk
	wrong := new(json.UnmarshalTypeError)
	if err := json.Unmarshal(text, &c); err != nil && !errors.As(err, &wrong) {
		return false
	}
	s.broke = s.broke || some(c.Error) || c.Type == "error"
	if s.form == Anthropic {
		s.anthropic(&c)
		return false
	}
	if s.endpoint == responses {
		s.responses(&c)
		return false
	}
	n := 0
	for i := range c.Choices {
		n += c.Choices[i].length()
	}
	s.saw(n)
	if !some(c.Usage) {
		return false
	}
	s.partly = len(c.Choices) > 0
	s.reported(c.Usage)
	return s.removes && len(c.Choices) == 0 && bytes.Contains(text, []byte(`"choices"`))
}

// saw counts output.
func (s *stream) saw(bytes int) {
	if bytes > 0 {
		s.texts += int64(bytes)
		s.events++
	}
}

// reported reads a report of usage.
func (s *stream) reported(text []byte) {
	if r, ok := readReport(text); ok {
		s.report.raise(&r)
	}
}

// responses reads an event of OpenAI's responses.
func (s *stream) responses(c *chunk) {
	switch c.Type {
	case "response.completed", "response.incomplete", "response.failed":
		s.broke = s.broke || c.Type == "response.failed"
		if some(c.Response.Usage) {
			s.reported(c.Response.Usage)
		}
		s.ended = true
		return
	}
	// The text of audio is beside it.
	if strings.HasSuffix(c.Type, ".delta") && !strings.HasSuffix(c.Type, "audio.delta") {
		var text string
		if json.Unmarshal(c.Delta, &text) == nil {
			s.saw(len(text))
		}
	}
}

// anthropic reads an event of Anthropic's messages.
func (s *stream) anthropic(c *chunk) {
	switch c.Type {
	case "message_start":
		if r, ok := readReport(c.Message.Usage); ok {
			// The output has only begun.
			s.least, r.Output = r.Output.n, number{wrong: r.Output.wrong}
			s.report.raise(&r)
		}
	case "content_block_delta":
		var d struct {
			Text     string `json:"text"`
			Partial  string `json:"partial_json"`
			Thinking string `json:"thinking"`
		}
		if json.Unmarshal(c.Delta, &d) == nil {
			s.saw(len(d.Text) + len(d.Partial) + len(d.Thinking))
		}
	case "message_delta":
		if some(c.Usage) {
			s.reported(c.Usage)
		}
	case "message_stop":
		s.ended = true
	}
}

// end returns what the stream used.
func (s *stream) end() (usage, string) {
	r := s.report
	seen := max(ceil(s.texts, bytesPerToken), s.events, s.least)
	if r.Output.here {
		r.Output.n = max(r.Output.n, s.least)
	}
	if s.partly && !s.ended {
		// It was a report in between.
		seen = max(seen, r.usage(s.form, s.endpoint).output)
		r.Completion, r.Output, r.Total = number{}, number{}, number{}
	}
	return r.end(s.form, s.endpoint, seen)
}
