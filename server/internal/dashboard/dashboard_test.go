package dashboard_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/rules"
)

var update = flag.Bool("update", false, "make the pictures of the docs anew")

const shop = `domain: shop
descriptors:
  - key: user
    rate_limits:
      - {name: steady, requests_per_unit: 600, unit: minute, algorithm: gcra, burst: 30}
      - {name: daily, requests_per_unit: 50000, unit: day, algorithm: fixed_window}
  - key: path
    value: /login
    rate_limit: {requests_per_unit: 5, unit: minute, algorithm: sliding_log}
  - key: path
    value: /search
    shadow_mode: true
    rate_limit: {requests_per_unit: 20, unit: second, algorithm: token_bucket, burst: 20}
  - key: plan
    value: enterprise
    rate_limit: {unlimited: true}
`

// A shopServer is a server with rules of its own, on free ports.
type shopServer struct {
	*testing.T
	http, admin, models string // URLs
	config              string
	stop                func()
}

func serve(t *testing.T, token string) *shopServer {
	t.Helper()
	return serveIn(t, t.TempDir(), token)
}

// serveRules serves other rules.
func serveRules(t *testing.T, text string, change ...func(*app.Options)) *shopServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveIn(t, t.TempDir(), "", append(change, func(o *app.Options) { o.Config = file })...)
}

// serveIn serves rules of a folder, with options changed.
func serveIn(t *testing.T, folder, token string, change ...func(*app.Options)) *shopServer {
	t.Helper()
	s := &shopServer{T: t, config: filepath.Join(folder, "shop.yaml")}
	s.write(shop)
	o := app.Options{Config: s.config, HTTP: "127.0.0.1:0", GRPC: "off", Admin: app.AdminOptions{Address: "127.0.0.1:0"}}
	if token != "" {
		o.Admin.TokenFile = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(o.Admin.TokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range change {
		f(&o)
	}
	app, err := app.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := app.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range app.Addrs() {
		switch a.Protocol {
		case "http":
			s.http = "http://" + a.Address
		case "admin":
			s.admin = "http://" + a.Address
		case "models":
			s.models = "http://" + a.Address
		}
	}
	return s
}

func (s *shopServer) write(rules string) {
	s.Helper()
	if err := os.WriteFile(s.config, []byte(rules), 0o600); err != nil {
		s.Fatal(err)
	}
}

// ask asks whether a request fits, and returns the status.
func (s *shopServer) ask(key, value string) int {
	s.Helper()
	return s.askIn("shop", key, value)
}

func (s *shopServer) askIn(domain, key, value string) int {
	s.Helper()
	resp, err := http.Get(s.http + "/v1/auth?" + url.Values{"domain": {domain}, key: {value}}.Encode())
	if err != nil {
		s.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// count asks n times and returns how often the request was granted.
func (s *shopServer) count(key, value string, n int) (granted int) {
	for range n {
		if s.ask(key, value) == http.StatusNoContent {
			granted++
		}
	}
	return granted
}

// row is an expression for the texts of one limit's row.
func row(rule string) string {
	return `[...document.querySelectorAll("#limits tr")].find((r) => r.dataset.is === "shop\n` + rule + `")`
}

// TestShowsTraffic compares what is shown with what was sent, also if no rule applies to it:
// the page has the name that was probably meant.
func TestShowsTraffic(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#chart-decisions canvas")))
	b.until(`document.getElementById("live").textContent === "live"`)
	for round := 1; round <= 2; round++ {
		if got := s.count("path", "/login", 12); round == 1 && got != 5 {
			t.Fatalf("%d granted, want 5", got)
		}
		s.count("user", "ann & <b>bob</b>", 4)
		logins := fmt.Sprintf(`[...%s.querySelectorAll(".n")].slice(4).map((e) => e.textContent).join() === "5,%d,0,0"`, row("path=/login"), 12*round-5)
		b.until(row("path=/login") + ` && ` + logins)
		b.until(fmt.Sprintf(`%s.querySelectorAll(".n")[4].textContent === "%d"`, row("steady"), 4*round))
		b.until(fmt.Sprintf(`document.querySelector("#top-refused b").textContent === "%d"`, 12*round-5))
		b.until(fmt.Sprintf(`document.querySelectorAll("#tail tr:not(.none)").length === %d`, 12*round-5))
	}
	if got := b.text(`document.querySelector("#top-used .key").textContent + document.querySelector("#tail .key").textContent`); got != "user=ann & <b>bob</b>path=/login" {
		t.Errorf("the keys are %q", got)
	}
	// The chart has every charge.
	b.until(`charts.past().granted.reduce((a, n) => a + n, 0) === 5 + 2 * 8 && charts.past().refused.reduce((a, n) => a + n, 0) === 19`)
	b.until(`Number(document.getElementById("offered").textContent) >= 0 && document.getElementById("p99").textContent !== "–"`)
	// How long calls took, and who decided, of each limit.
	figure := func(rule string, n int) string {
		return fmt.Sprintf(`%s.querySelectorAll(".n")[%d].textContent`, row(rule), n)
	}
	b.until(`/[µnm]s$/.test(` + figure("steady", 2) + `) && /[µnm]s$/.test(` + figure("steady", 3) + `) && ` + figure("path=/search", 3) + ` === "–"`)
	b.until(row("steady") + `.lastElementChild.textContent === "store" && ` + row("path=/search") + `.querySelector(".tag").textContent === "shadow"`)
	// One limit alone.
	b.do(chromedp.SetValue(chromedp.CSS("#pick"), `["shop","daily"]`))
	b.text(`document.getElementById("pick").dispatchEvent(new Event("change"))`)
	b.until(`charts.past() && charts.past().granted.reduce((a, n) => a + n, 0) === 8 && charts.past().refused.every((n) => n === 0)`)
	b.until(`charts.past().p50.filter((ns) => ns > 0).length > 0 && document.getElementById("latency-of").textContent === "Latency of calls that charge daily"`)
	b.do(chromedp.SetValue(chromedp.CSS("#pick"), `["shop","path=/search"]`))
	b.text(`document.getElementById("pick").dispatchEvent(new Event("change"))`)
	b.until(`charts.past() && charts.past().p50.every((ns) => ns === 0)`)
	b.until(`document.getElementById("unmatched").textContent === "0"`)
	s.count("usr", "bob", 3)
	s.askIn("sohp", "user", "bob")
	nearest := func(domain, keys string) string {
		return `[...document.querySelectorAll("#unmatched-list tr")].find((r) => r.dataset.is === "` + domain + `\n` + keys + `")?.children[2].textContent`
	}
	b.until(nearest("shop", "usr") + ` === "user" && ` + nearest("sohp", "user") + ` === "shop" && document.getElementById("unmatched").textContent !== "0"`)
	for _, span := range []string{"1h", "6h"} {
		b.do(chromedp.Click(chromedp.CSS(`[data-span="` + span + `"]`)))
		b.until(fmt.Sprintf(`charts.past() && charts.past().step === %d`, map[string]int{"1h": 10, "6h": 60}[span]))
	}
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestChartsShowSilence wants a latency only where there were calls: each one alone is a dot, with
// nothing between.
func TestChartsShowSilence(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#chart-latency canvas")))
	// Two calls, 100 seconds apart, in place of what the server says.
	b.text(`(() => {
  const add = charts.add, none = Array(299).fill(0), calls = none.map((_, i) => i === 100 || i === 200 ? 1e6 : 0);
  charts.add = () => {};
  charts.reset("silence");
  add({ start: 1.8e9, step: 1, points: 299, granted: none, refused: none, not_charged: none, shadow_refused: none, failed: none, p50: calls, p99: calls, sources: {} });
})()`)
	// How many columns have p50's colour, and where.
	columns := `(() => {
  const canvas = document.querySelector("#chart-latency canvas"), { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), found = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i + 1] > data[i] + 60 && data[i + 1] > data[i + 2] + 30) found.add(i / 4 % canvas.width);
  const all = [...found].sort((a, b) => a - b);
  return all.length ? [all.length, all.at(-1) - all[0], canvas.width] : [0, 0, 0];
})()`
	b.until(`(([n, apart, width]) => n > 4 && n < 40 && apart > width / 5)(` + columns + `)`)
}

// TestActsOnKeys looks at a key, blocks it and lets it in again, by the keyboard. The charts
// have its only request, as a single point.
func TestActsOnKeys(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	if got := s.ask("user", "bob"); got != http.StatusNoContent {
		t.Fatalf("bob is answered %d", got)
	}
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#top-used button.key")))
	b.until(`document.getElementById("live").textContent === "live"`)
	b.until(`charts.past() && charts.past().p50.filter((ns) => ns > 0).length === 1`)
	// The colour of p50's line.
	b.until(`(() => {
  const canvas = document.querySelector("#chart-latency canvas"), { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let n = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i + 1] > data[i] + 60 && data[i + 1] > data[i + 2] + 30) n++;
  return n > 5;
})()`)
	b.do(chromedp.Focus(chromedp.CSS("#top-used button.key")), chromedp.KeyEvent("\r"))
	b.until(`document.querySelectorAll("#answer .known").length === 2 && document.getElementById("entry").value === "user=bob"`)
	press := func(action, done string) {
		t.Helper()
		b.do(chromedp.Focus(chromedp.CSS(`[data-action="`+action+`"]`)), chromedp.KeyEvent("\r"))
		b.until(`document.getElementById("done").textContent.includes("` + done + `")`)
	}
	press("block", "user=bob is blocked, in this process")
	if got := s.ask("user", "bob"); got != http.StatusTooManyRequests {
		t.Errorf("blocked: %d", got)
	}
	b.until(`document.querySelectorAll("#overrides .tag.bad").length === 2`)
	press("clear", "its own limit again")
	press("reset", "was reset")
	if got := s.ask("user", "bob"); got != http.StatusNoContent {
		t.Errorf("cleared: %d", got)
	}
	press("override", "limit is") // what is missing is named
	b.do(chromedp.SendKeys(chromedp.CSS("#limit"), "2/min burst 2"), chromedp.SendKeys(chromedp.CSS("#name"), "steady"))
	press("override", "has another limit")
	if got := s.count("user", "bob", 5); got != 1 {
		t.Errorf("overridden: %d granted, want 1 beside the one before", got)
	}
	if said := b.complaints("400 (Bad Request)"); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestKeysOfBudgets shows keys of budgets and slots in words, and opens them.
func TestKeysOfBudgets(t *testing.T) {
	t.Parallel()
	b, s := open(t), serveRules(t, `domain: shop
budgets:
  gpu: {requests_per_unit: 2, unit: hour, algorithm: gcra}
descriptors:
  - {key: job, rate_limit: {budget: gpu}}
  - {key: export, rate_limit: {requests_per_unit: 3, unit: minute, algorithm: concurrency}}
  - key: plan
    descriptors: [{key: tenant, rate_limit: {requests_per_unit: 5, unit: hour, algorithm: gcra}}]
`)
	if got := s.count("job", "1", 3); got != 2 {
		t.Fatalf("%d granted, want 2", got)
	}
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#top-refused button.key")))
	b.until(`document.querySelector("#top-refused .key").textContent === "budget gpu"`)
	b.lookUp()
	b.until(`document.getElementById("budget").value === "gpu" && document.getElementById("answer").textContent.includes("2/h; 2 used, 0 remain")`)
	b.until(`document.getElementById("rules-part").textContent.includes("3 at once")`)
	set := func(id, value string) { b.text(fmt.Sprintf("document.getElementById(%q).value = %q", id, value)) }
	set("budget", "")
	for entries, want := range map[string]string{"export=a": "3 at once; 0 held, 3 remain", "plan=free,tenant=t1": "5/h; 0 used", `plan=a\,b, tenant=\\`: "5/h; 0 used"} {
		set("entry", entries)
		b.text(`document.getElementById("look").click()`)
		b.until(`document.getElementById("answer").textContent.includes("` + want + `")`)
		b.text(`document.getElementById("answer").replaceChildren()`)
	}
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

const rollout = `domain: shop
descriptors:
  - key: user
    enforce: 25%
    rate_limit: {name: steady, requests_per_unit: 5, unit: minute, algorithm: gcra}
    trial: {name: tighter, requests_per_unit: 1, unit: minute, algorithm: gcra}
`

// TestReload shows what is wrong with rules that did not come into force, and those that
// did: a limit for a part of the keys, and one on trial beside it, look different from those
// that refuse everybody.
func TestReload(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#rules-part table")))
	s.write(strings.Replace(shop, "algorithm: sliding_log", "algorithm: sliding_lag", 1))
	b.do(chromedp.WaitVisible(chromedp.CSS("#reload")))
	b.until(`document.getElementById("reload-error").textContent.includes("sliding_log")`)
	b.until(`document.getElementById("checks").textContent.includes("rules: ")`)
	s.write(rollout)
	tags := func(list string) string {
		return `[...document.querySelectorAll("` + list + ` .tag")].filter((e) => !e.hidden).map((e) => e.textContent).join()`
	}
	b.until(`document.getElementById("reload").hidden && ` + tags("#rules-part") + ` === "enforced for 25%,on trial"`)
	b.until(row("steady") + ` && ` + tags("#limits") + ` === "enforced for 25%"`)
	s.count("user", "bob", 3)
	b.until(row("tighter (on trial)") + `.querySelectorAll(".n")[5].textContent === "2"`)
	b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=bob"), chromedp.Click(chromedp.CSS("#look")))
	b.until(`/^enforced for 25%,(this key too|not this key),on trial$/.test(` + tags("#answer") + `)`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestLogin asks for the token first, and again after the logout, or if the server was
// started anew and knows no session.
func TestLogin(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, token)
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#token")))
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"), chromedp.WaitVisible(chromedp.CSS("#wrong")))
	for _, scheme := range []string{"light", "dark"} {
		b.accessible("login", scheme)
	}
	login := func() {
		t.Helper()
		b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"), chromedp.WaitVisible(chromedp.CSS("#chart-decisions")))
		b.until(`document.getElementById("live").textContent === "live"`)
	}
	login()
	if got := b.text("document.cookie"); got != "" {
		t.Errorf("scripts see the cookie %q", got)
	}
	b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=eve"), chromedp.Click(chromedp.CSS(`[data-action="block"]`)))
	b.until(`document.getElementById("done").textContent.includes("blocked")`)
	if got := s.ask("user", "eve"); got != http.StatusTooManyRequests {
		t.Errorf("blocked: %d", got)
	}
	b.do(chromedp.Click(chromedp.CSS("header form button")), chromedp.WaitVisible(chromedp.CSS("#token")))
	if said := b.complaints("401 (Unauthorized)"); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
	login()
	s.stop()
	b.until(visible("gone"))
	serveIn(t, t.TempDir(), token, func(o *app.Options) { o.Admin.Address = strings.TrimPrefix(s.admin, "http://") })
	b.do(chromedp.WaitVisible(chromedp.CSS("#token")))
}

// picture writes what is seen into the docs.
func (b *browser) picture(name string) {
	b.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.must(name, err)
	b.must(name, os.WriteFile(filepath.Join("..", "..", "..", "docs", "pictures", name+".png"), png, 0o644))
}

// TestUnmatchedIsBounded: clients that invent names fill no memory.
func TestUnmatchedIsBounded(t *testing.T) {
	t.Parallel()
	var u dashboard.Unmatched
	long := strings.Repeat("long", 1000)
	for i := range 1000 {
		u.Add(&rules.Request{Domain: fmt.Sprint(i) + long, Descriptors: [][]rules.Entry{{{Key: long}, {Key: long}}}}, time.Now())
	}
	if n, bytes := dashboard.Remembered(&u); n > 20 || bytes > 20*10*64 {
		t.Errorf("%d kinds of requests of %d bytes are remembered", n, bytes)
	}
}
