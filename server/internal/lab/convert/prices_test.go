package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/config"
)

// litellmSample has the form of LiteLLM's file.
const litellmSample = `{
  "sample_spec": {"mode": "one of: chat", "input_cost_per_token": 0.0, "max_output_tokens": "a number"},
  "plain": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1.25e-06, "max_output_tokens": 16384, "supports_vision": true},
  "free/one": {"mode": "chat", "litellm_provider": "b", "input_cost_per_token": 0.0, "output_cost_per_token": 0, "max_output_tokens": null},
  "thinks": {"mode": "responses", "litellm_provider": "a", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "cache_creation_input_token_cost": 3.75e-06, "supports_reasoning": true, "output_cost_per_reasoning_token": 1.5e-05},
  "tiers": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06, "input_cost_per_token_above_200k_tokens": 2e-06, "tiered_pricing": [], "input_cost_per_audio_token": 1e-05},
  "tiny": {"mode": "embedding", "litellm_provider": "a", "input_cost_per_token": 1.00000001e-09, "output_cost_per_token": 0.0},
  "halved": {"mode": "embedding", "litellm_provider": "a", "input_cost_per_token": 1e-06},
  "draws": {"mode": "image_generation", "litellm_provider": "a", "output_cost_per_image": 0.04},
  "any/*": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
  "dear": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": 1, "output_cost_per_token": 1e-06},
  "huge": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": 1e999999999, "output_cost_per_token": 1e-06},
  "below": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": -1e-06, "output_cost_per_token": 1e-06},
  "text": {"mode": "chat", "litellm_provider": "a", "input_cost_per_token": "some", "output_cost_per_token": 1e-06}
}`

// TestLiteLLM wants exact names and prices, no price made up, and everything named that was lost.
func TestLiteLLM(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	p, err := LiteLLM([]byte(litellmSample), day, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := config.CheckPrices("p", p.Text); err != nil {
		t.Error(err)
	}
	want := `# Made by weir convert litellm-prices. Dollars per million tokens.
as_of: 2026-11-01
models:
  - {model: "free/one", input: 0, output: 0}
  - {model: "plain", input: 2.5, output: 10, cache_read: 1.25, max_output: 16384}
  - {model: "thinks", input: 3, output: 15, cache_write: 3.75, reasoning: true}
  - {model: "tiers", input: 1, output: 1}
  - {model: "tiny", input: 0.001001, output: 0}
`
	if diff := cmp.Diff(want, string(p.Text)); diff != "" || p.Rows != 5 {
		t.Errorf("%d rows %s", p.Rows, diff)
	}
	lost := []string{
		"any/*: left out: no request has this name",
		"below: left out: input_cost_per_token is -1e-06: want dollars for a token, 0 … 0.1",
		"dear: left out: input_cost_per_token is 1: want dollars for a token, 0 … 0.1",
		`draws: left out: it is of the mode "image_generation", want one of chat, completion, responses, embedding`,
		"halved: left out: it has no output_cost_per_token",
		"huge: left out: input_cost_per_token is 1e999999999: want dollars for a token, 0 … 0.1",
		"text: left out: its fields are not those of a model: want prices that are numbers",
		"tiers: dropped input_cost_per_audio_token, input_cost_per_token_above_200k_tokens, tiered_pricing",
	}
	if diff := cmp.Diff(lost, p.Lost); diff != "" {
		t.Error(diff)
	}
	if p, err = LiteLLM([]byte(litellmSample), day, []string{"b"}); err != nil || p.Rows != 1 || !strings.Contains(string(p.Text), "free/one") {
		t.Errorf("of one provider: %+v, %v", p, err)
	}
	if _, err := LiteLLM([]byte("[]"), day, nil); err == nil || !strings.Contains(err.Error(), "want an object with a model in each field") {
		t.Errorf("no object: %v", err)
	}
}
