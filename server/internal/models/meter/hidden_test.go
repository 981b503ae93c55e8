package meter

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A lenient provider reasons unseen, has what it made in the total of its usage only, and reads
// requests as widely as any: names in every case, the last of several, and every value but
// false, null and 0 as true.
type lenient struct{ answered atomic.Int64 }

const (
	lenientInput  = 30
	lenientOutput = 5005
	lenientUsage  = `{"prompt_tokens":30,"completion_tokens":5,"input_tokens":30,"output_tokens":5,"total_tokens":5035}`
)

func truthy(v any) bool { return v != nil && v != false && v != 0.0 }

func (l *lenient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var body struct {
		Stream  any
		Options any `json:"stream_options"`
	}
	_ = json.Unmarshal(text, &body)
	l.answered.Add(1)
	if !truthy(body.Stream) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}],"usage":`+lenientUsage+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, chunksOf(`"content":"hello"`))
	options, _ := body.Options.(map[string]any)
	asked := false
	for name, value := range options {
		asked = asked || strings.EqualFold(name, "include_usage") && truthy(value)
	}
	if asked {
		_, _ = io.WriteString(w, `data: {"choices":[],"usage":`+lenientUsage+"}\n\n")
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

const hiddenRules = `
domain: llm
models: [{model: "mock*", input: 1, output: 2, max_output: 4096}]
descriptors:
  - key: key
    estimate: %s
    rate_limits:
      - {name: rpm, requests_per_unit: 1000, unit: hour, algorithm: fixed_window}
      - {name: input, count: input, requests_per_unit: 1000000, unit: hour, algorithm: fixed_window}
      - {name: cached, count: cached, requests_per_unit: 1000000, unit: hour, algorithm: fixed_window}
      - {name: output, count: output, requests_per_unit: 1000000, unit: hour, algorithm: fixed_window}
      - {name: tokens, count: tokens, requests_per_unit: 1000000, unit: hour, algorithm: fixed_window}
      - {name: open, requests_per_unit: 5, period: 1m, algorithm: concurrency}
`

// TestHiddenOutput sends requests that look cheap to a provider with hidden output. Each is
// charged what the provider reported, or refused by the name of what cannot be read.
func TestHiddenOutput(t *testing.T) {
	t.Parallel()
	const (
		responsePath = "/v1/responses"
		textPath     = "/v1/completions"
		vectorPath   = "/v1/embeddings"
	)
	said := func(content string) string { return `"messages":[{"role":"user","content":` + content + `}]` }
	for _, c := range []struct {
		estimate, path, fields string
		refused                []string // what the refusal says; nil: it is answered
	}{
		{"guess", chatPath, `"max_tokens":64`, nil},
		{"guess", chatPath, `"stream":true`, nil},
		{"guess", chatPath, `"str\u0065am":tru` + "e", nil},
		{"guess", chatPath, `"stream":true,"stream_options":{"include_usage":true}`, nil},
		{"guess", chatPath, `"stream":true,"stream_options":{"include_usage":false}`, nil},
		{"guess", chatPath, `"stream":true,"stream_options":null`, nil},
		{"guess", chatPath, `"stream":true,"stream_options":{"in\u0063lude_usage":false}`, nil},
		{"guess", chatPath, `"stream":true,"stream_options":{"other":{"include_usage":1}}`, nil},
		{"guess", chatPath, `"stream":null`, nil},
		{"guess", chatPath, `"stream":1`, []string{`"stream"`, "true or false"}},
		{"guess", chatPath, `"stream":"true"`, []string{`"stream"`, "true or false"}},
		{"guess", chatPath, `"stream":[true]`, []string{`"stream"`, "true or false"}},
		{"guess", chatPath, `"Stream":true`, []string{`"Stream"`, `"stream"`}},
		{"guess", chatPath, `"\u0053TREAM":true`, []string{`"STREAM"`, `"stream"`}},
		{"guess", chatPath, `"ſtream":true`, []string{`"ſtream"`, `"stream"`}},
		{"guess", chatPath, `"stream":false,"stream":true`, []string{`"stream"`, "twice"}},
		{"guess", chatPath, `"stream":false,"stre\u0061m":true`, []string{`"stream"`, "twice"}},
		{"guess", chatPath, `"stream":true,"streamOptions":{"include_usage":false}`, []string{`"streamOptions"`, `"stream_options"`}},
		{"guess", chatPath, `"stream":true,"stream_options":{"include_usage":true,"include_usage":false}`, []string{`"include_usage"`, "twice"}},
		{"guess", chatPath, `"stream":true,"stream_options":{"include_usage":true,"Include_Usage":false}`, []string{`"Include_Usage"`, `"include_usage"`}},
		{"guess", chatPath, `"stream":true,"stream_options":{"includeUsage":false}`, []string{`"includeUsage"`, `"include_usage"`}},
		{"guess", chatPath, `"stream":true,"stream_options":{"include_usage":1}`, []string{`"include_usage"`, "true or false"}},
		{"guess", chatPath, `"stream":true,"stream_options":[]`, []string{`"stream_options"`, "object"}},
		{"guess", chatPath, `"Model":"mock-other"`, []string{`"Model"`, `"model"`}},
		{"guess", chatPath, `"models":["dear"]`, []string{`"models"`}},
		{"guess", chatPath, `"fallbacks":["dear"]`, []string{`"fallbacks"`}},
		{"guess", chatPath, `"maxTokens":9`, []string{`"maxTokens"`, `"max_tokens"`}},
		{"guess", chatPath, `"max_tokens ":9`, []string{`"max_tokens "`, `"max_tokens"`}},
		{"guess", chatPath, `"max_output_tokens":9`, []string{`"max_output_tokens"`, `"max_completion_tokens"`}},
		{"guess", responsePath, `"max_tokens":9`, []string{`"max_tokens"`, `"max_output_tokens"`}},
		{"guess", textPath, `"max_completion_tokens":9`, []string{`"max_completion_tokens"`, `"max_tokens"`}},
		{"guess", vectorPath, `"max_tokens":9`, []string{`"max_tokens"`}},
		{"guess", chatPath, `"N":9`, []string{`"N"`, `"n"`}},
		{"guess", chatPath, `"background":"true"`, []string{`"background"`, "true or false"}},
		{"guess", chatPath, `"messages":"hello"`, []string{`"messages"`, "list"}},
		{"guess", chatPath, `"messages":["hello"]`, []string{`"messages"`, "objects"}},
		{"guess", chatPath, said(`[{"type":"image_url","type":"text","text":"a"}]`), []string{`"messages"`, `"type"`, "twice"}},
		{"guess", chatPath, said(`[{"Type":"image_url","type":"text","text":"a"}]`), []string{`"messages"`, `"Type"`}},
		{"guess", chatPath, said(`[{"type":7}]`), []string{`"messages"`, "type"}},

		{"strict", chatPath, `"max_tokens":6000,` + said(`"hello"`), nil},
		{"strict", chatPath, `"max_tokens":6000,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","Type":1}}}],"temperature":1,"user":"me","service_tier":"auto"`, nil},
		{"strict", chatPath, `"max_tokens":6000,` + said(`[{"t\u0079pe":"t\u0065xt","text":"a"}]`), nil},
		{"strict", messagePath, `"max_tokens":6000,"system":[{"type":"text","text":"a"}],"tools":[{"name":"f","input_schema":{"type":"object"}}],` + said(`[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"b"}]},{"type":"tool_use","id":"a","name":"f","input":{"Content":[{"type":"image"}],"content":1}}]`), nil},
		{"strict", responsePath, `"max_output_tokens":6000,"input":[{"role":"user","content":"hello"},{"type":"function_call_output","call_id":"a","output":"b"},{"type":"reasoning","encrypted_content":"AAAA","summary":[]}]`, nil},
		{"strict", chatPath, said(`[{"ty\u0070e":"image","source":{"type":"url"}}]`), []string{`"messages"`, `"image"`}},
		{"strict", chatPath, said(`[{"type":"im\u0061ge_url"}]`), []string{`"messages"`, `"image_url"`}},
		{"strict", chatPath, said(`[{"type":"TEXT","text":"a"}]`), []string{`"messages"`, `"TEXT"`}},
		{"strict", chatPath, said(`[{"image_url":{"url":"https://example.com"}}]`), []string{`"messages"`, "none"}},
		{"strict", messagePath, said(`[{"type":"tool_result","content":[{"type":"image"}]}]`), []string{`"messages"`, `"image"`}},
		{"strict", messagePath, `"system":[{"type":"document"}]`, []string{`"system"`, `"document"`}},
		{"strict", chatPath, `"messages":[{"role":"assistant","audio":{"id":"a"}}]`, []string{`"messages"`, `"audio"`}},
		{"strict", responsePath, `"max_tokens":6000`, []string{`"max_tokens"`, `"max_output_tokens"`}},
		{"strict", chatPath, `"max_completion_tokens":0`, []string{`"max_completion_tokens"`, "0"}},
		{"strict", chatPath, `"max_tokens":60,"max_completion_tokens":0`, []string{`"max_completion_tokens"`, "0"}},
		{"strict", chatPath, `"Max_Completion_Tokens":9`, []string{`"Max_Completion_Tokens"`}},
		{"strict", chatPath, `"max_new_tokens":9`, []string{`"max_new_tokens"`}},
		{"strict", chatPath, `"web_search_options":{}`, []string{`"web_search_options"`}},
		{"strict", chatPath, `"plugins":[{"id":"web"}]`, []string{`"plugins"`}},
		{"strict", chatPath, `"prediction":{"type":"content","content":"a"}`, []string{`"prediction"`}},
		{"strict", chatPath, `"modalities":["text","audio"]`, []string{`"modalities"`, `"audio"`}},
		{"strict", chatPath, `"service_tier":"priority"`, []string{`"service_tier"`, `"priority"`}},
		{"strict", chatPath, `"service_tier":"Priority"`, []string{`"service_tier"`, `"Priority"`}},
		{"strict", chatPath, `"service_tier":["priority"]`, []string{`"service_tier"`, "text"}},
		{"strict", responsePath, `"tools":[{"type":"web_search"}]`, []string{`"tools"`, `"web_search"`}},
		{"strict", responsePath, `"tools":[{"type":"function","name":"f"},{"t\u0079pe":"file_search"}]`, []string{`"tools"`, `"file_search"`}},
		{"strict", responsePath, `"tools":[{"type":"function","Type":"web_search"}]`, []string{`"tools"`, `"Type"`}},
		{"strict", messagePath, `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, []string{`"tools"`, `"web_search_20250305"`}},
		{"strict", messagePath, `"mcp_servers":[]`, []string{`"mcp_servers"`}},
		{"strict", responsePath, `"input":[{"type":"item_ref\u0065rence","id":"a"}]`, []string{`"input"`, "stored"}},
		{"strict", responsePath, `"input":[{"id":"a"}]`, []string{`"input"`, "stored"}},
		{"strict", responsePath, `"input":[{"type":"reasoning","id":"a"}]`, []string{`"input"`, "stored"}},
		{"strict", responsePath, `"conversation":"a"`, []string{`"conversation"`, "stored"}},
		{"strict", responsePath, `"prompt":{"id":"a"}`, []string{`"prompt"`, "stored"}},
		{"strict", vectorPath, `"input":[{"image":"https://example.com"}]`, []string{`"input"`}},
		{"strict", vectorPath, `"messages":[]`, []string{`"messages"`}},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.estimate, c.path, c.fields), func(t *testing.T) {
			t.Parallel()
			provider := new(lenient)
			b := newBench(t, fmt.Sprintf(hiddenRules, c.estimate), provider)
			for _, body := range []string{`{"model":"mock",` + c.fields + `}`, `{` + c.fields + ` , "model":"mock"}`} {
				a := b.post(c.path, body)
				if c.refused != nil {
					if a.StatusCode != http.StatusBadRequest || provider.answered.Load() != 0 {
						t.Fatalf("%d %s", a.StatusCode, a.text)
					}
					for _, part := range c.refused {
						if said := errorOf(t, a.text)["message"].(string); !strings.Contains(said, part) {
							t.Errorf("%s, which does not say %s", said, part)
						}
					}
					continue
				}
				if a.StatusCode != http.StatusOK {
					t.Fatalf("%d %s", a.StatusCode, a.text)
				}
			}
			n := provider.answered.Load()
			b.wantUsed(n, n*lenientInput, n*lenientOutput)
		})
	}
}
