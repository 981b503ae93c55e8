package dashboard_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/dashboard"
)

// spending limits people, their teams and the company. A request holds $1.24 and uses $0.24.
const spending = `domain: llm
models: [{model: "mock*", input: 0, output: 1000}]
descriptors:
  - key: user
    output_guess: 1240
    rate_limit: {name: user, count: usd, dollars: 2, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}
  - {key: team, rate_limit: {name: web and all others, count: usd, dollars: 30, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}}
  - {key: company, rate_limit: {name: company, count: usd, dollars: 2000, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}}
`

// TestDollars shows what is used, held and left of the budgets of people and teams.
func TestDollars(t *testing.T) {
	t.Parallel()
	const token = "-token-of-more-than-32-characters"
	text := "callers:\n"
	for _, name := range []string{"ann", "bo"} {
		text += fmt.Sprintf("  - {name: %s, labels: {user: %s, team: web, company: acme}, tokens: [%x], verbs: [take], domains: [llm]}\n", name, name, sha256.Sum256([]byte(name+token)))
	}
	text += fmt.Sprintf("  - {name: ops, tokens: [%x], verbs: [admin-read], domains: ['*']}\n", sha256.Sum256([]byte("ops"+token)))
	file := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, s := open(t), serveRules(t, spending, func(o *app.Options) {
		o.Models, o.Callers = app.ModelOptions{Address: "127.0.0.1:0", Mock: true}, file
	})
	post := func(name, more string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.models+"/v1/chat/completions", strings.NewReader(`{`+more+`,"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+name+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	b.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.admin+"/"))
	b.do(chromedp.SetValue(chromedp.CSS("input[type=password]"), "ops"+token), chromedp.Click(chromedp.CSS("button")))
	b.until(`document.getElementById("live")?.textContent === "live" && document.getElementById("dollars-card").hidden`)
	_ = post("ann", `"model":"mock-240"`).Body.Close()
	stream := post("bo", `"stream":true,"model":"mock-100000"`)
	shown := `[...document.querySelectorAll("#dollars > div")].map((e) => e.innerText.replace(/\s+/g, " ").replace(/starts anew (?:[A-Z]\w+ \d+|\d+ \w+|[\d:]+)/g, "anew").trim()).join("; ")`
	want := `company company=acme company $2000/month $1 998.52 left $0.24 used, $1.24 held; anew; team team=web web and all others $30/month $28.52 left $0.24 used, $1.24 held; anew; ` +
		`user user=bo user $2/month $0.76 left $0 used, $1.24 held; anew user=ann user $2/month $1.76 left $0.24 used, $0 held; anew`
	b.until(shown + ` === "` + want + `"`)
	for _, scheme := range []string{"light", "dark"} {
		b.accessible("dollars", scheme)
		for _, width := range []int64{1200, 375, 320} {
			b.do(chromedp.EmulateViewport(width, 900))
			b.until(fmt.Sprintf(`innerWidth === %d && document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll("#dollars *")].every((e) => e.getBoundingClientRect().right <= innerWidth)`, width))
		}
	}
	// A table that goes on shows so, and keeps the names of its rows in sight.
	b.until(`[...document.querySelectorAll(".scroll")].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth).length > 1 && [...document.querySelectorAll(".scroll")].every((e) => ` +
		`getComputedStyle(e).backgroundAttachment === "local, local, scroll, scroll" && [...e.querySelectorAll("tbody th")].every((th) => getComputedStyle(th).position === "sticky"))`)
	if *update {
		b.scheme("light")
		b.do(chromedp.EmulateViewport(1200, 390))
		b.text(`document.getElementById("dollars-card").scrollIntoView({behavior: "instant"})`)
		b.picture("dashboard-dollars")
	}
	// A key leads to its state, and what is settled is held no more.
	b.text(`[...document.querySelectorAll("#dollars button")].find((e) => e.innerText === "user=ann").click()`)
	b.until(`document.getElementById("answer").innerText.includes("$0.24 used")`)
	_ = stream.Body.Close()
	b.until(`!document.getElementById("dollars").innerText.includes("$1.24 held")`)
	if said := b.complaints("401 (Unauthorized)"); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestDollarsAreBounded: a page has those who have most of their budget used, and the number of
// the others.
func TestDollarsAreBounded(t *testing.T) {
	t.Parallel()
	var all []dashboard.Budget
	for i := range 40 {
		all = append(all, dashboard.Budget{Key: fmt.Sprintf("llm/user=%02d;user;user", i), Name: "user", Limit: 1000, Period: "month", Used: int64(i), Held: 1, Remaining: int64(999 - i)})
	}
	all = append(all, dashboard.Budget{Key: "llm/team=web;team;team", Name: "team", Limit: 20_000_000, Period: "month", Remaining: 20_000_000, ResetsAt: time.UnixMilli(7)})
	got := dashboard.Dollars(t.Context(), func(context.Context) []dashboard.Budget { return all })
	if len(got) != 2 || got[0] != `{"by":"team","all":[{"key":"llm/team=web;team;team","label":"team=web","domain":"llm","entries":["team=web"],"name":"team","limit":"$20/month","used":0,"held":0,"remaining":20000000,"resets_at":7}]}` {
		t.Fatalf("%s", got)
	}
	if !strings.HasPrefix(got[1], `{"by":"user","all":[{"key":"llm/user=39;user;user"`) || !strings.HasSuffix(got[1], `,"left":28}`) || strings.Count(got[1], `"label"`) != 12 {
		t.Errorf("%s", got[1])
	}
}
