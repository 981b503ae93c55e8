package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/config"
)

// Prices are a price file that was made from another program's.
type Prices struct {
	// Text is the price file, which has so many Rows.
	Text []byte
	Rows int
	// Lost lists what was not carried over, a line for each model.
	Lost []string
}

// litellmModel is what a row is made of. Numbers stay as they are written.
type litellmModel struct {
	Mode       string       `json:"mode"`
	Provider   string       `json:"litellm_provider"`
	Input      *json.Number `json:"input_cost_per_token"`
	Output     *json.Number `json:"output_cost_per_token"`
	CacheRead  *json.Number `json:"cache_read_input_token_cost"`
	CacheWrite *json.Number `json:"cache_creation_input_token_cost"`
	MaxOutput  *json.Number `json:"max_output_tokens"`
	Reasoning  bool         `json:"supports_reasoning"`
}

// carried are the prices that a row has; all others are lost.
var carried = []string{"input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost"}

// textModes are the kinds of models that answer with what is counted in tokens.
var textModes = []string{"chat", "completion", "responses", "embedding"}

// LiteLLM makes a price file of the text of LiteLLM's model_prices_and_context_window.json. The
// prices are right as of a day. Of the models only those of the providers are taken, or all of
// them if there are none. Each model has the name that it has there.
func LiteLLM(text []byte, asOf time.Time, providers []string) (*Prices, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("not JSON: want an object with a model in each field: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by weir convert litellm-prices. Dollars per million tokens.\nas_of: %s\nmodels:\n", asOf.Format(time.DateOnly))
	p := &Prices{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if name == "sample_spec" {
			continue // It describes the fields.
		}
		m, lost, err := readLiteLLM(raw[name])
		switch {
		case err == nil && len(providers) > 0 && !slices.Contains(providers, m.Provider):
			continue
		case err == nil && m.Mode != "" && !slices.Contains(textModes, m.Mode):
			lost = fmt.Sprintf("left out: it is of the mode %q, want one of %s", m.Mode, strings.Join(textModes, ", "))
		case err == nil && strings.ContainsAny(name, "* \t\n\"\\"):
			lost = "left out: no request has this name"
		default:
			var row string
			if err == nil {
				row, err = m.row(name)
			}
			if err != nil {
				lost = "left out: " + err.Error()
				break
			}
			p.Rows++
			b.WriteString(row)
		}
		if lost != "" {
			p.Lost = append(p.Lost, visible(name+": "+lost))
		}
	}
	p.Text = b.Bytes()
	return p, nil
}

// readLiteLLM reads a model, and says which of its prices are lost.
func readLiteLLM(text []byte) (m litellmModel, lost string, err error) {
	var fields map[string]json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&m) != nil || json.Unmarshal(text, &fields) != nil {
		return m, "", fmt.Errorf("its fields are not those of a model: want prices that are numbers")
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		priced := strings.Contains(name, "cost") || strings.Contains(name, "pricing")
		if priced && !slices.Contains(carried, name) && !(name == "output_cost_per_reasoning_token" && m.Output != nil && string(fields[name]) == m.Output.String()) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		lost = "dropped " + strings.Join(names, ", ")
	}
	return m, lost, nil
}

// row returns the model's row of a price file. A price that is missing is not 0.
func (m *litellmModel) row(name string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "  - {model: %q", name)
	for _, price := range []struct {
		key, from string
		dollars   *json.Number
		required  bool
	}{
		{"input", carried[0], m.Input, true},
		{"output", carried[1], m.Output, true},
		{"cache_read", carried[2], m.CacheRead, false},
		{"cache_write", carried[3], m.CacheWrite, false},
	} {
		switch {
		case price.dollars != nil:
			text, ok := perMillion(*price.dollars)
			if !ok {
				return "", fmt.Errorf("%s is %s: want dollars for a token, 0 … 0.1", price.from, *price.dollars)
			}
			fmt.Fprintf(&b, ", %s: %s", price.key, text)
		case price.required:
			return "", fmt.Errorf("it has no %s", price.from)
		}
	}
	if m.MaxOutput != nil {
		if n, err := m.MaxOutput.Int64(); err == nil && n > 0 && n <= config.MaxOutput {
			fmt.Fprintf(&b, ", max_output: %d", n)
		}
	}
	if m.Reasoning {
		b.WriteString(", reasoning: true")
	}
	return b.String() + "}\n", nil
}

// perMillion returns the price of a million tokens, rounded up to a millionth of a dollar.
func perMillion(token json.Number) (string, bool) {
	// A long exponent would be a number of as many digits.
	if _, exponent, _ := strings.Cut(strings.ToLower(token.String()), "e"); len(exponent) > len("-99") {
		return "", false
	}
	price, ok := new(big.Rat).SetString(token.String())
	if !ok || price.Sign() < 0 {
		return "", false
	}
	micros := price.Mul(price, big.NewRat(config.MicroUSD*config.MicroUSD, 1))
	whole, rest := new(big.Int).QuoRem(micros.Num(), micros.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() || cmp.Compare(whole.Int64(), config.MaxPrice) > 0 {
		return "", false
	}
	return config.DollarsText(whole.Int64()), true
}
