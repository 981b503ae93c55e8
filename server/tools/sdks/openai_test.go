package sdks

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// calls counts the requests that an SDK makes.
type calls struct{ atomic.Int64 }

func (c *calls) count(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	c.Add(1)
	return next(r)
}

// openaiAt returns a client of a proxy.
func openaiAt(p *proxy, key string, c *calls) openai.Client {
	return openai.NewClient(option.WithBaseURL(p.url+"/v1/"), option.WithAPIKey(key), option.WithMiddleware(c.count))
}

func chat(model string, bound int64, texts ...string) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{Model: model, MaxCompletionTokens: openai.Int(bound)}
	for _, text := range append([]string{"hello"}, texts...) {
		params.Messages = append(params.Messages, openai.UserMessage(text))
	}
	return params
}

// TestOpenAI calls every endpoint, with and without streams.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	ctx, p := t.Context(), start(t, roomy, "--mock")
	var c calls
	one := openaiAt(p, "one", &c)
	answer, err := one.Chat.Completions.New(ctx, chat("mock-10", 20))
	if err != nil || answer.Usage.CompletionTokens != 10 || strings.Count(answer.Choices[0].Message.Content, "word") != 10 {
		t.Fatalf("%+v, %v", answer, err)
	}
	input := answer.Usage.PromptTokens
	for _, asks := range []bool{false, true} {
		params := chat("mock-10", 20)
		if asks {
			params.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		stream := one.Chat.Completions.NewStreaming(ctx, params)
		whole := openai.ChatCompletionAccumulator{}
		usage := int64(0)
		for stream.Next() {
			chunk := stream.Current()
			if len(chunk.Choices) == 0 && !asks {
				t.Error("a chunk of usage that nobody asked for")
			}
			usage += chunk.Usage.CompletionTokens
			whole.AddChunk(chunk)
		}
		if err := stream.Err(); err != nil || strings.Count(whole.Choices[0].Message.Content, "word") != 10 || (usage == 10) != asks {
			t.Errorf("%+v, %d, %v", whole, usage, err)
		}
	}
	asked := responses.ResponseNewParams{Model: "mock-10", MaxOutputTokens: openai.Int(20), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	response, err := one.Responses.New(ctx, asked)
	if err != nil || response.Usage.OutputTokens != 10 {
		t.Fatalf("%+v, %v", response, err)
	}
	input += response.Usage.InputTokens
	completed := int64(0)
	stream := one.Responses.NewStreaming(ctx, asked)
	for stream.Next() {
		if event := stream.Current(); event.Type == "response.completed" {
			completed += event.Response.Usage.OutputTokens
			input += event.Response.Usage.InputTokens
		}
	}
	if err := stream.Err(); err != nil || completed != 10 {
		t.Errorf("%d, %v", completed, err)
	}
	vectors, err := one.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "mock", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("hello")}})
	if err != nil || len(vectors.Data) != 1 {
		t.Fatalf("%+v, %v", vectors, err)
	}
	input += vectors.Usage.PromptTokens
	text, err := one.Completions.New(ctx, openai.CompletionNewParams{Model: "mock-10", MaxTokens: openai.Int(20), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("hello")}})
	if err != nil || text.Usage.CompletionTokens != 10 {
		t.Fatalf("%+v, %v", text, err)
	}
	input += text.Usage.PromptTokens
	if models, err := one.Models.List(ctx); err != nil || len(models.Data) != 1 {
		t.Errorf("%+v, %v", models, err)
	}
	if n := c.Load(); n != 8 {
		t.Errorf("%d calls", n)
	}
	// The streams of chat have the input of the first call, and what asked for their usage.
	p.wants(t, "one", map[string]int64{"requests": 7, "output": 60, "open": 0})
	if used := p.used(t, "one"); used["input"] < input+2*answer.Usage.PromptTokens {
		t.Errorf("used %v, with %d input at least", used, input)
	}
}

// TestOpenAIRefused wants errors that say what is wrong, and that are tried again only if
// it helps.
func TestOpenAIRefused(t *testing.T) {
	t.Parallel()
	ctx, p := t.Context(), start(t, rules, "--mock")
	refused := func(key string, params openai.ChatCompletionNewParams, status int, kind, code string, more ...option.RequestOption) {
		t.Helper()
		var c calls
		fresh := openaiAt(p, key, &c)
		_, err := fresh.Chat.Completions.New(ctx, params, more...)
		var failure *openai.Error
		if !errors.As(err, &failure) || failure.StatusCode != status || failure.Type != kind || failure.Code != code || failure.Message == "" {
			t.Errorf("%v, want %d %s %s", err, status, kind, code)
		}
		if c.Load() != 1 {
			t.Errorf("%d: %d calls", status, c.Load())
		}
	}
	var c calls
	one := openaiAt(p, "one", &c)
	if _, err := one.Chat.Completions.New(ctx, chat("mock-90", 90), option.WithMaxRetries(0)); err != nil {
		t.Fatal(err)
	}
	refused("one", chat("mock-50", 50), 429, "tokens", "rate_limit_exceeded", option.WithMaxRetries(0))
	// Nothing below is tried again, although the SDK would.
	long := strings.Repeat("hello ", 250)
	refused("two", chat("mock-100", 100, long, long, long, long), 413, "invalid_request_error", "request_too_large")
	refused("", chat("mock", 1), 401, "invalid_request_error", "invalid_api_key")
	refused("three", chat("other", 1), 400, "invalid_request_error", "unknown_model")
	four := openaiAt(p, "four", new(calls))
	if _, err := four.Chat.Completions.New(ctx, chat("mock-1", 1, long)); err != nil {
		t.Fatal(err)
	}
	refused("four", chat("mock-1", 1, long), 429, "insufficient_quota", "insufficient_quota")

	// A short wait is waited for.
	quick := openaiAt(p, "five", &c)
	c.Store(0)
	begun := time.Now()
	for range 2 {
		if _, err := quick.Chat.Completions.New(ctx, chat("mock-quick", 1)); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); c.Load() != 3 || took < 2*time.Second {
		t.Errorf("%d calls in %v", c.Load(), took)
	}
}

// TestOpenAIOverload wants each try of the SDK to be a request, and only the answer to be
// charged.
func TestOpenAIOverload(t *testing.T) {
	t.Parallel()
	p := start(t, roomy, "--upstream", overloaded(t))
	var c calls
	client := openaiAt(p, "one", &c)
	answer, err := client.Chat.Completions.New(t.Context(), chat("any", 20))
	if err != nil || answer.Usage.TotalTokens != 12 || c.Load() != 3 {
		t.Errorf("%+v, %v after %d calls", answer, err, c.Load())
	}
	p.wants(t, "one", map[string]int64{"requests": 3, "input": 7, "output": 5, "open": 0})
}

// TestOpenAICut wants a stream that ends with the server to be an error.
func TestOpenAICut(t *testing.T) {
	t.Parallel()
	p := start(t, roomy, "--mock", "--drain-delay", "0s", "--drain-timeout", "2s")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := openaiAt(p, "one", new(calls))
	texts := client.Chat.Completions.NewStreaming(ctx, chat("mock-100000", 100_000))
	events := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{Model: "mock-100000", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}})
	if !texts.Next() || !events.Next() {
		t.Fatalf("%v, %v", texts.Err(), events.Err())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for events.Next() {
			if event := events.Current(); event.Type == "error" {
				ended <- errors.New(event.Message)
				return
			}
		}
		ended <- events.Err()
	}()
	for texts.Next() {
	}
	for _, err := range []error{texts.Err(), <-ended} {
		if err == nil || !strings.Contains(err.Error(), "the server stops") || ctx.Err() != nil {
			t.Errorf("the stream ended with %v", err)
		}
	}
}
