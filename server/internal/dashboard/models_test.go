package dashboard_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/server/internal/app"
)

const modelRules = `domain: llm
models: [{model: "mock*", input: 1000, output: 2000}]
descriptors:
  - {key: key, rate_limit: {name: open, requests_per_unit: 8, period: 15m, algorithm: concurrency}}
`

// TestModels shows what each caller uses of each model: requests, tokens, dollars and open
// streams.
func TestModels(t *testing.T) {
	t.Parallel()
	b, s := open(t), serveRules(t, modelRules, func(o *app.Options) {
		o.Models = app.ModelOptions{Address: "127.0.0.1:0", Mock: true}
	})
	body := func(model string) string {
		return `{"model":"` + model + `","messages":[{"role":"user","content":"hello"}]}`
	}
	post := func(key, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.models+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	b.scheme("light")
	b.do(chromedp.EmulateViewport(1200, 700), chromedp.Navigate(s.admin+"/"))
	b.until(`document.getElementById("live").textContent === "live" && document.getElementById("models-card").hidden`)
	for _, call := range [][2]string{{"one", "mock-40"}, {"one", "mock-40"}, {"two", "free-3"}} {
		_ = post(call[0], body(call[1])).Body.Close()
	}
	stream := post("two", `{"stream":true,`+body("mock-100000")[1:])

	input := (int64(len(body("mock-40"))) + 3) / 4
	row := func(key, model string, requests, input, output int64, dollars string, streams int) string {
		sum := sha256.Sum256([]byte(key))
		return fmt.Sprintf("sha256:%s %s %d %d 0 %d %s %d", hex.EncodeToString(sum[:8]), model, requests, input, output, dollars, streams)
	}
	table := `[...document.querySelectorAll("#models tr")].map((r) => [...r.children].map((c) => c.innerText.trim()).join(" ")).sort().join("\n")`
	b.until(fmt.Sprintf(table+` === [%q, %q, %q].sort().join("\n")`,
		row("one", "mock-40", 2, 2*input, 80, fmt.Sprintf("$%.6f", float64(2*input*1000+80*2000)/1e6), 0),
		row("two", "free-3", 1, input, 3, "–", 0),
		row("two", "mock-100000", 0, 0, 0, "–", 1)))
	if found := b.text(essentials); found != "" {
		t.Error(found)
	}
	b.do(chromedp.EmulateViewport(320, 700))
	b.until(`innerWidth === 320 && document.documentElement.scrollWidth <= innerWidth`)
	// A stream that its client leaves is closed, and costs.
	_ = stream.Body.Close()
	b.until(`[...document.querySelectorAll("#models tr")].every((r) => r.lastElementChild.innerText === "0" && r.children[2].innerText !== "0")`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}
