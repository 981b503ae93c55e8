package sdks

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// anthropicAt returns a client of a proxy.
func anthropicAt(p *proxy, key string, c *calls) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(p.url+"/"), option.WithAPIKey(key), option.WithMiddleware(c.count))
}

func message(model string, bound int64, texts ...string) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: bound}
	for _, text := range append([]string{"hello"}, texts...) {
		params.Messages = append(params.Messages, anthropic.NewUserMessage(anthropic.NewTextBlock(text)))
	}
	return params
}

// TestAnthropic calls every endpoint, with and without streams.
func TestAnthropic(t *testing.T) {
	t.Parallel()
	ctx, p := t.Context(), start(t, roomy, "--mock")
	var c calls
	client := anthropicAt(p, "one", &c)
	answer, err := client.Messages.New(ctx, message("mock-10", 20))
	if err != nil || answer.Usage.OutputTokens != 10 {
		t.Fatalf("%+v, %v", answer, err)
	}
	stream := client.Messages.NewStreaming(ctx, message("mock-10", 20))
	var whole anthropic.Message
	for stream.Next() {
		if err := whole.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil || whole.Usage.OutputTokens != 10 || strings.Count(whole.Content[0].Text, "word") != 10 {
		t.Errorf("%+v, %v", whole, err)
	}
	n, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "mock", Messages: message("mock", 1).Messages})
	if err != nil || n.InputTokens == 0 {
		t.Errorf("%+v, %v", n, err)
	}
	p.wants(t, "one", map[string]int64{"requests": c.Load(), "input": answer.Usage.InputTokens + whole.Usage.InputTokens, "output": 20, "open": 0})
}

// TestAnthropicRefused wants errors that say what is wrong, and that are tried again only if
// it helps.
func TestAnthropicRefused(t *testing.T) {
	t.Parallel()
	ctx, p := t.Context(), start(t, rules, "--mock")
	long := strings.Repeat("hello ", 250)
	first := anthropicAt(p, "one", new(calls))
	if _, err := first.Messages.New(ctx, message("mock-90", 90)); err != nil {
		t.Fatal(err)
	}
	spent := anthropicAt(p, "two", new(calls))
	if _, err := spent.Messages.New(ctx, message("mock-1", 1, long)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		key    string
		params anthropic.MessageNewParams
		status int
		text   string
		more   []option.RequestOption
	}{
		{"one", message("mock-99", 99), 429, `"type":"rate_limit_error"`, []option.RequestOption{option.WithMaxRetries(0)}},
		// Nothing below is tried again, although the SDK would.
		{"two", message("mock-1", 1, long), 429, `"error_code":"enforced_spend_limit_reached"`, nil},
		{"three", message("mock", 1, long, long, long, long), 413, `"type":"request_too_large"`, nil},
		{"three", message("other", 1), 400, `"type":"invalid_request_error"`, nil},
	} {
		var c calls
		client := anthropicAt(p, want.key, &c)
		_, err := client.Messages.New(ctx, want.params, want.more...)
		var failure *anthropic.Error
		if !errors.As(err, &failure) || failure.StatusCode != want.status || !strings.Contains(failure.RawJSON(), want.text) || failure.RequestID == "" {
			t.Errorf("%v, want %d %s", err, want.status, want.text)
		}
		if c.Load() != 1 {
			t.Errorf("%d: %d calls", want.status, c.Load())
		}
	}

	// A short wait is waited for.
	var c calls
	quick := anthropicAt(p, "five", &c)
	begun := time.Now()
	for range 2 {
		if _, err := quick.Messages.New(ctx, message("mock-quick", 1)); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); c.Load() != 3 || took < 2*time.Second {
		t.Errorf("%d calls in %v", c.Load(), took)
	}
}

// TestAnthropicOverload wants each try of the SDK to be a request, and only the answer to be
// charged.
func TestAnthropicOverload(t *testing.T) {
	t.Parallel()
	p := start(t, roomy, "--upstream", overloaded(t))
	var c calls
	client := anthropicAt(p, "one", &c)
	answer, err := client.Messages.New(t.Context(), message("any", 20))
	if err != nil || answer.Usage.OutputTokens != 5 || c.Load() != 3 {
		t.Errorf("%+v, %v after %d calls", answer, err, c.Load())
	}
	p.wants(t, "one", map[string]int64{"requests": 3, "input": 7, "output": 5, "open": 0})
}

// TestAnthropicCut wants a stream that ends with the server to be an error.
func TestAnthropicCut(t *testing.T) {
	t.Parallel()
	p := start(t, roomy, "--mock", "--drain-delay", "0s", "--drain-timeout", "2s")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := anthropicAt(p, "one", new(calls))
	stream := client.Messages.NewStreaming(ctx, message("mock-100000", 100_000))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "the server stops") || ctx.Err() != nil {
		t.Errorf("the stream ended with %v", err)
	}
}
