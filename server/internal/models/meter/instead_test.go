package meter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A recorder is a provider that keeps the bodies which it gets, and reports ten tokens of output.
type recorder struct {
	mu     sync.Mutex
	bodies []string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.mu.Unlock()
	_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":1,"completion_tokens":10,"input_tokens":1,"output_tokens":10}}`)
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bodies) == 0 {
		return ""
	}
	return r.bodies[len(r.bodies)-1]
}

const insteadPrices = `
domain: llm
models:
  - {model: "mock-dear*", input: 1, output: 1000, max_output: 500}
  - {model: "mock-cheap-*", input: 0, output: 900}
  - {model: mock-cheap-4, input: 0, output: 100, max_output: 20}
  - {model: "claude-dear", input: 1, output: 1000}
  - {model: odd, input: 0, output: 1000}
descriptors:
`

// insteadTable has mock-cheap-4 before the pattern that matches it.
var insteadTable = strings.Replace(insteadPrices, "  - {model: \"mock-cheap-*\", input: 0, output: 900}\n", "", 1)

func bodyOf(model string, most int) string {
	return fmt.Sprintf(`{"max_tokens":%d, "model": %q,"messages":[{"role":"user","content":"hello"}]}`, most, model)
}

// TestInstead wants a part of a budget for the dear model, and the rest for the cheaper one that
// takes its place, each charged by its own price, and nothing left of the plan that was refused.
func TestInstead(t *testing.T) {
	t.Parallel()
	const text = "  - {key: key, rate_limit: {name: day, count: usd, dollars: 0.06, unit: day, algorithm: fixed_window, instead: mock-cheap-*, at: 50%}}\n"
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			provider := &recorder{}
			b := newBench(t, insteadTable+text, provider, open)
			// Two cost a cent each. A third would leave less than half, and a cheap one costs a tenth.
			dear, cheap := 0, 0
			for range 50 {
				a := b.post(chatPath, bodyOf("mock-dear", 10))
				if a.StatusCode != http.StatusOK {
					if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Weir-Limit") != "day" || a.Header.Get(modelHeader) != "" || !strings.Contains(a.text, "$0.001 asked, $0.000998 left") {
						t.Errorf("%d %v %s", a.StatusCode, a.Header, a.text)
					}
					break
				}
				switch model := a.Header.Get(modelHeader); model {
				case "":
					dear++
				case "mock-cheap-4":
					cheap++
					if want := strings.Replace(bodyOf("mock-dear", 10), "mock-dear", "mock-cheap-4", 1); provider.last() != want {
						t.Errorf("the provider got %s, want %s", provider.last(), want)
					}
				default:
					t.Errorf("the model %q", model)
				}
			}
			if dear != 2 || cheap != 39 {
				t.Errorf("%d dear and %d cheap ones, want 2 and 39", dear, cheap)
			}
			if used := b.used(secretKey, "mock-dear")["day"]; used != 59_002 {
				t.Errorf("%d millionths used, want 59002", used)
			}
			if n := len(b.seen.replaced); n != 39 || b.seen.replaced[0] != "day mock-dear* mock-cheap-4" {
				t.Errorf("%d are counted: %v", n, b.seen.replaced)
			}
		})
	}
}

// TestInsteadOnce wants the limits of the cheaper model to hold, one step and no further one, and
// all of a limit for requests that have no cheaper model.
func TestInsteadOnce(t *testing.T) {
	t.Parallel()
	const text = `  - key: key
    descriptors:
      - {key: model, value: mock-dear, rate_limit: {name: dear, requests_per_unit: 1, unit: day, algorithm: fixed_window, instead: mock-dear-2}}
      - {key: model, value: mock-dear-2, rate_limit: {name: second, requests_per_unit: 2, unit: day, algorithm: fixed_window, instead: mock-cheap-4}}
`
	prices := strings.Replace(insteadTable, "models:\n", "models:\n  - {model: mock-dear-2, input: 0.5, output: 500}\n", 1)
	b := newBench(t, prices+text, &recorder{})
	var got []string
	for _, model := range []string{"mock-dear", "mock-dear", "mock-dear", "mock-dear", "mock-dear-2"} {
		a := b.post(chatPath, bodyOf(model, 10))
		got = append(got, fmt.Sprint(a.StatusCode, " ", a.Header.Get(modelHeader), a.Header.Get("Weir-Limit")))
	}
	if diff := cmp.Diff([]string{"200 ", "200 mock-dear-2", "200 mock-dear-2", "429 second", "200 mock-cheap-4"}, got); diff != "" {
		t.Error(diff)
	}
	if dear, second := b.used(secretKey, "mock-dear"), b.used(secretKey, "mock-dear-2"); dear["dear"] != 1 || second["second"] != 2 {
		t.Errorf("%v, %v used", dear, second)
	}
}

// TestNotInstead wants requests kept as they are that the cheaper model is not for.
func TestNotInstead(t *testing.T) {
	t.Parallel()
	const text = "  - {key: key, rate_limit: {name: all, requests_per_unit: 4, unit: day, algorithm: fixed_window, instead: mock-cheap-4, at: 50%}}\n"
	for name, c := range map[string]struct {
		path, body string
		granted    int    // of the model itself
		then       string // the model of the next one; empty: refused
	}{
		"dear":             {chatPath, bodyOf("mock-dear", 10), 2, "mock-cheap-4"},
		"by the other":     {messagePath, bodyOf("mock-dear", 10), 2, "mock-cheap-4"},
		"cheap already":    {chatPath, bodyOf("mock-cheap-4", 10), 4, ""},
		"as cheap in part": {chatPath, bodyOf("odd", 10), 4, ""},
		"without a price":  {chatPath, bodyOf("unknown", 10), 4, ""},
		"of another form":  {messagePath, bodyOf("claude-dear", 10), 4, ""},
		"an embedding":     {"/v1/embeddings", `{"model":"mock-dear","input":"hello"}`, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, insteadTable+text, &recorder{})
			for i := range c.granted {
				if a := b.post(c.path, c.body); a.StatusCode != http.StatusOK || a.Header.Get(modelHeader) != "" {
					t.Fatalf("request %d: %d %v %s", i+1, a.StatusCode, a.Header, a.text)
				}
			}
			a := b.post(c.path, c.body)
			if a.Header.Get(modelHeader) != c.then || (a.StatusCode == http.StatusOK) != (c.then != "") {
				t.Errorf("then %d %v %s, want %q", a.StatusCode, a.Header, a.text, c.then)
			}
		})
	}
}

// TestInsteadBounds wants a bound that the cheaper model cannot make lowered to what it can, and
// the refusal that was asked for where the cheaper model cannot be estimated.
func TestInsteadBounds(t *testing.T) {
	t.Parallel()
	const text = "  - {key: key, ESTIMATErate_limit: {name: all, requests_per_unit: 2, unit: day, algorithm: fixed_window, instead: mock-cheap-4, at: 50%}}\n"
	provider := &recorder{}
	b := newBench(t, insteadTable+strings.Replace(text, "ESTIMATE", "", 1), provider)
	b.post(chatPath, bodyOf("mock-dear", 400))
	body := `{"stream":true,"model":"mock-dear","max_tokens":400,"max_completion_tokens":15,"messages":[]}`
	if a := b.post(chatPath, body); a.Header.Get(modelHeader) != "mock-cheap-4" {
		t.Fatalf("%d %v %s", a.StatusCode, a.Header, a.text)
	}
	want := `{"stream_options":{"include_usage":true},"stream":true,"model":"mock-cheap-4","max_tokens":20,"max_completion_tokens":15,"messages":[]}`
	if got := provider.last(); got != want {
		t.Errorf("the provider got %s, want %s", got, want)
	}
	prices := strings.Replace(insteadTable, "output: 100, max_output: 20", "output: 100", 1)
	b = newBench(t, prices+strings.Replace(text, "ESTIMATE", "estimate: strict, ", 1), provider)
	unbounded := `{"model":"mock-dear","messages":[]}`
	if a := b.post(chatPath, unbounded); a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, a.text)
	}
	if a := b.post(chatPath, unbounded); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Weir-Limit") != "all" || a.Header.Get("Ratelimit") == "" {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, a.text)
	}
}
