// Package mockmodel is a provider of language models that has none. It answers the requests
// of OpenAI's and of Anthropic's form with words and their usage, as JSON or as a stream, so
// that limits can be tried without a key. It counts what it reported.
package mockmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultOutput is the number of output tokens of a model whose name says nothing else.
const DefaultOutput = 16

// A Count is what requests have used, as their answers reported it.
type Count struct{ Requests, Input, Output int64 }

// A Server answers requests. The zero value is ready for use, and safe for concurrent use.
// The name of a model ends in the number of tokens that it answers with, as in "mock-200", up
// to the bound of the request.
type Server struct {
	// Pause is the time between two events of a stream.
	Pause time.Duration

	mu   sync.Mutex
	used Count
}

// Used returns what all requests have used.
func (s *Server) Used() Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *Server) count(input, output int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Requests++
	s.used.Input += input
	s.used.Output += output
}

// body is what the mock reads of a request.
type body struct {
	Model     string `json:"model"`
	Stream    bool   `json:"stream"`
	MaxTokens *int64 `json:"max_tokens"`
	MaxCompl  *int64 `json:"max_completion_tokens"`
	MaxOutput *int64 `json:"max_output_tokens"`
	Options   struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// output returns the number of tokens to answer with.
func (b *body) output() int64 {
	n := int64(DefaultOutput)
	if i := strings.LastIndexByte(b.Model, '-'); i >= 0 {
		if named, err := strconv.ParseInt(b.Model[i+1:], 10, 32); err == nil && named >= 0 {
			n = min(named, 100_000)
		}
	}
	for _, most := range []*int64{b.MaxTokens, b.MaxCompl, b.MaxOutput} {
		if most != nil {
			n = min(n, *most)
		}
	}
	return max(0, n)
}

// maxBody is the size of the largest body, in bytes.
const maxBody = 64 << 20

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/models") {
		write(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "mock", "object": "model"}}})
		return
	}
	counted := &counter{from: http.MaxBytesReader(w, r.Body, maxBody)}
	var b body
	if err := json.NewDecoder(counted).Decode(&b); err != nil {
		http.Error(w, `{"error":{"message":"not JSON","type":"invalid_request_error","param":null,"code":null}}`, http.StatusBadRequest)
		return
	}
	a := answer{Server: s, w: w, r: r, body: &b, input: (counted.n + 3) / 4, output: b.output()}
	switch r.URL.Path {
	case "/v1/chat/completions":
		a.chat()
	case "/v1/completions":
		a.completions()
	case "/v1/responses":
		a.responses()
	case "/v1/embeddings":
		s.count(a.input, 0)
		write(w, map[string]any{
			"object": "list", "model": b.Model, "data": []any{map[string]any{"object": "embedding", "index": 0, "embedding": []float64{0, 0.5, 1}}},
			"usage": map[string]any{"prompt_tokens": a.input, "total_tokens": a.input},
		})
	case "/v1/messages":
		a.messages()
	case "/v1/messages/count_tokens":
		write(w, map[string]any{"input_tokens": a.input})
	default:
		http.NotFound(w, r)
	}
}

type counter struct {
	from interface{ Read([]byte) (int, error) }
	n    int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// An answer is one in the making.
type answer struct {
	*Server
	w             http.ResponseWriter
	r             *http.Request
	body          *body
	input, output int64
}

// word is one token of every answer.
const word = "word "

func (a *answer) text() string { return strings.Repeat(word, int(a.output)) }

// event sends one event, and reports whether the client is there.
func (a *answer) event(name string, v any) bool {
	text, _ := json.Marshal(v)
	if name != "" {
		fmt.Fprintf(a.w, "event: %s\n", name)
	}
	fmt.Fprintf(a.w, "data: %s\n\n", text)
	return http.NewResponseController(a.w).Flush() == nil && a.r.Context().Err() == nil
}

// words sends an event for each token, and reports whether the client stayed.
func (a *answer) words(event func() bool) bool {
	for range a.output {
		if a.Pause > 0 {
			timer := time.NewTimer(a.Pause)
			select {
			case <-timer.C:
			case <-a.r.Context().Done():
				timer.Stop()
				return false
			}
		}
		if !event() {
			return false
		}
	}
	return true
}

// usage is that of OpenAI's older form.
func (a *answer) usage() map[string]any {
	return map[string]any{"prompt_tokens": a.input, "completion_tokens": a.output, "total_tokens": a.input + a.output}
}

func (a *answer) chat() {
	of := func(kind string, choices []any, rest map[string]any) map[string]any {
		all := map[string]any{"id": "chatcmpl-mock", "object": kind, "created": 1, "model": a.body.Model, "choices": choices}
		maps.Copy(all, rest)
		return all
	}
	if !a.body.Stream {
		a.count(a.input, a.output)
		message := map[string]any{"role": "assistant", "content": a.text()}
		write(a.w, of("chat.completion", []any{map[string]any{"index": 0, "message": message, "finish_reason": "stop"}}, map[string]any{"usage": a.usage()}))
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(delta map[string]any, end any) map[string]any {
		rest := map[string]any{}
		if a.body.Options.IncludeUsage {
			rest["usage"] = nil
		}
		return of("chat.completion.chunk", []any{map[string]any{"index": 0, "delta": delta, "finish_reason": end}}, rest)
	}
	if !a.words(func() bool { return a.event("", chunk(map[string]any{"content": word}, nil)) }) {
		return
	}
	a.event("", chunk(map[string]any{}, "stop"))
	if a.body.Options.IncludeUsage {
		a.event("", of("chat.completion.chunk", []any{}, map[string]any{"usage": a.usage()}))
	}
	a.count(a.input, a.output)
	fmt.Fprint(a.w, "data: [DONE]\n\n")
}

func (a *answer) completions() {
	of := func(text string, end any, rest map[string]any) map[string]any {
		all := map[string]any{"id": "cmpl-mock", "object": "text_completion", "created": 1, "model": a.body.Model, "choices": []any{map[string]any{"index": 0, "text": text, "finish_reason": end, "logprobs": nil}}}
		maps.Copy(all, rest)
		return all
	}
	if !a.body.Stream {
		a.count(a.input, a.output)
		write(a.w, of(a.text(), "stop", map[string]any{"usage": a.usage()}))
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	if !a.words(func() bool { return a.event("", of(word, nil, nil)) }) {
		return
	}
	if a.body.Options.IncludeUsage {
		a.event("", of("", nil, map[string]any{"choices": []any{}, "usage": a.usage()}))
	}
	a.count(a.input, a.output)
	fmt.Fprint(a.w, "data: [DONE]\n\n")
}

func (a *answer) responses() {
	whole := func(status string, usage any) map[string]any {
		part := map[string]any{"type": "output_text", "text": a.text(), "annotations": []any{}}
		return map[string]any{
			"id": "resp_mock", "object": "response", "created_at": 1, "model": a.body.Model, "status": status, "usage": usage,
			"output": []any{map[string]any{"type": "message", "id": "msg_mock", "role": "assistant", "status": "completed", "content": []any{part}}},
		}
	}
	usage := map[string]any{
		"input_tokens": a.input, "input_tokens_details": map[string]any{"cached_tokens": 0},
		"output_tokens": a.output, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": a.input + a.output,
	}
	if !a.body.Stream {
		a.count(a.input, a.output)
		write(a.w, whole("completed", usage))
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	number := 0
	next := func() int { number++; return number }
	delta := func() bool {
		return a.event("response.output_text.delta", map[string]any{
			"type": "response.output_text.delta", "sequence_number": next(), "item_id": "msg_mock", "output_index": 0, "content_index": 0, "delta": word,
		})
	}
	if !a.words(delta) {
		return
	}
	a.count(a.input, a.output)
	a.event("response.completed", map[string]any{"type": "response.completed", "sequence_number": next(), "response": whole("completed", usage)})
}

func (a *answer) messages() {
	message := func(content []any, stop any, output int64) map[string]any {
		return map[string]any{
			"id": "msg_mock", "type": "message", "role": "assistant", "model": a.body.Model, "content": content,
			"stop_reason": stop, "stop_sequence": nil,
			"usage": map[string]any{"input_tokens": a.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output},
		}
	}
	if !a.body.Stream {
		a.count(a.input, a.output)
		write(a.w, message([]any{map[string]any{"type": "text", "text": a.text()}}, "end_turn", a.output))
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.event("message_start", map[string]any{"type": "message_start", "message": message([]any{}, nil, min(1, a.output))})
	a.event("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
	delta := func() bool {
		return a.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": word}})
	}
	if !a.words(delta) {
		return
	}
	a.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	a.event("message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": map[string]any{"output_tokens": a.output},
	})
	a.count(a.input, a.output)
	a.event("message_stop", map[string]any{"type": "message_stop"})
}
