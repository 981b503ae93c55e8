package dashboard_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const classes = `domain: shop
budgets: {m: {algorithm: gcra, requests_per_unit: 20, unit: day}}
descriptors:
  - {key: live, rate_limit: {budget: m}}
  - {key: batch, rate_limit: {budget: m, keep: 8}}
`

// TestBudgetsAreBounded: a page has the busiest budgets, and the busiest rules of each.
func TestBudgetsAreBounded(t *testing.T) {
	t.Parallel()
	var all []traffic.Class
	for budget := range 40 {
		for rule := range 20 {
			all = append(all, traffic.Class{Domain: "d", Budget: fmt.Sprintf("b%02d", budget), Rule: fmt.Sprintf("r%02d", rule), Units: []uint32{uint32(budget), uint32(rule)}})
		}
	}
	got, left := dashboard.Budgets(all, rules.MustParse("rules.yaml", classes))
	if len(got) != 12 || left != 28 {
		t.Fatalf("%d budgets, %d more", len(got), left)
	}
	var b struct {
		Budget  string
		Classes []struct {
			Rule  string
			Units []uint32
		}
	}
	if err := json.Unmarshal([]byte(got[0]), &b); err != nil {
		t.Fatal(err)
	}
	if want := "{b28 [{r14 [28 14]} {r15 [28 15]} {r16 [28 16]} {r17 [28 17]} {r18 [28 18]} {r19 [28 19]} { [392 91]}]}"; fmt.Sprint(b) != want {
		t.Errorf("got %v, want %s", b, want)
	}
}

// teams are three classes of one budget, of which two have guarantees.
const teams = `domain: search
descriptors:
  - key: team
    shares: {requests_per_unit: 100, unit: second, burst: 40, headroom: 16, guarantee: {ads: 50, web: 30}}
`

// TestBudgetParts: the page gets what each class was guaranteed and borrowed, in the order
// of the chart, with the rate that they share.
func TestBudgetParts(t *testing.T) {
	t.Parallel()
	part := func(budget, rule, alternative string, units ...uint32) traffic.Class {
		return traffic.Class{Domain: "search", Budget: budget, Rule: rule, Alternative: alternative, Units: units}
	}
	for name, test := range map[string]struct {
		rules   string
		classes []traffic.Class
		want    string
	}{
		"shares": {
			teams,
			[]traffic.Class{part("team", "team", "borrowed", 9, 9), part("team", "team=web", "guaranteed", 3, 4), part("team", "team=ads", "borrowed", 0, 5), part("team", "team=web", "borrowed", 1, 2)},
			`{"domain":"search","budget":"team","limit":"100/s burst 40","rate":100,"shares":true,"classes":[` +
				`{"rule":"team=ads","units":[0,0],"borrowed":[0,5],"guarantee":"50/s"},{"rule":"team=web","units":[3,4],"borrowed":[1,2],"guarantee":"30/s"},{"rule":"team","units":[0,0],"borrowed":[9,9]}]}`,
		},
		"shares of each model": {
			"domain: search\ndescriptors:\n  - key: model\n    descriptors: [{key: team, shares: {requests_per_unit: 60, unit: minute, guarantee: {ads: 30}}}]\n",
			[]traffic.Class{part("model,team", "model,team=ads", "guaranteed", 1)},
			`{"domain":"search","budget":"model,team","limit":"60/min","rate":1,"per_key":true,"shares":true,"classes":[{"rule":"model,team=ads","units":[1],"guarantee":"30/min"}]}`,
		},
		"alternatives": {
			"domain: search\nbudgets: {m: {algorithm: gcra, requests_per_unit: 36, unit: hour}}\ndescriptors:\n  - key: user\n    rate_limits: [{name: own, algorithm: gcra, requests_per_unit: 3, unit: day}, {budget: m}]\n    otherwise: [{rate_limit: {budget: m, keep: 10}}]\n",
			[]traffic.Class{part("m", "user#2", "1", 1), part("m", "user#3", "2", 2)},
			`{"domain":"search","budget":"m","limit":"36/h","rate":0.01,"classes":[{"rule":"user#2","alternative":"1","units":[1]},{"rule":"user#3","alternative":"2","units":[2]}]}`,
		},
		"dollars": {
			"domain: search\nbudgets: {m: {algorithm: fixed_window, count: usd, dollars: 5184, unit: month, time_zone: Europe/Berlin}}\ndescriptors:\n  - {key: user, rate_limit: {budget: m}}\n",
			[]traffic.Class{part("m", "user", "", 1)},
			`{"domain":"search","budget":"m","limit":"$5184/month fixed_window time_zone Europe/Berlin","count":"usd","rate":2000,"classes":[{"rule":"user","units":[1]}]}`,
		},
		"slots": {
			"domain: search\nbudgets: {m: {algorithm: concurrency, requests_per_unit: 36, period: 60s}}\ndescriptors:\n  - {key: user, rate_limit: {budget: m}}\n",
			[]traffic.Class{part("m", "user", "", 1)},
			`{"domain":"search","budget":"m","limit":"36 at once","rate":0,"classes":[{"rule":"user","units":[1]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := dashboard.Budgets(test.classes, rules.MustParse("rules.yaml", test.rules))
			if diff := cmp.Diff([]string{test.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// tableOf is an expression for the cells of the table of a budget, row by row.
const tableOf = `[...document.querySelectorAll("#budgets tbody tr")].map((r) => [...r.children].map((c) => c.innerText.trim()).join(" "))`

// TestSharesOnPage shows a budget with guarantees as the stacked parts of its classes, with
// figures that people can read without the picture, on every screen.
func TestSharesOnPage(t *testing.T) {
	t.Parallel()
	seconds := 4
	if *update {
		seconds = 64
	}
	b, s := open(t), serveRules(t, teams)
	b.scheme("light")
	b.do(chromedp.EmulateViewport(1200, 560), chromedp.Navigate(s.admin+"/"))
	b.until(`document.getElementById("live").textContent === "live"`)
	s.load(time.Duration(seconds) * time.Second)
	b.until(`document.querySelectorAll("#budgets .chart canvas").length === 1 && document.querySelector("#budgets h4").innerText === "search team 100/s burst 40"`)
	b.until(tableOf + `.map((r) => r.split(" ")[0]).join() === "Free,team,team=web,team=ads"`)
	// The guarantee, guaranteed, borrowed and both together; nothing is guaranteed to others.
	b.until(`(([free, others, web, ads]) => /^team=ads 50\/s [\d.]+ [\d.]+ [\d.]+$/.test(ads) && /^team=web 30\/s/.test(web) && /^team no guarantee – [\d.]+ [\d.]+$/.test(others))(` + tableOf + `)`)
	b.until(`[...document.querySelectorAll("#budgets .tiles dt")].map((e) => e.innerText).join() === "Guaranteed,Borrowed,Free"`)
	if got := b.text(`document.querySelector("#budgets tfoot").innerText.trim().split(/\s+/).at(-1)`); got != "100" {
		t.Errorf("the parts add up to %q", got)
	}
	if got := b.text(`document.querySelector("#budgets caption").innerText`); got != "Units per second, average of the last ten seconds" {
		t.Errorf("the table has figures of %q", got)
	}
	if *update {
		b.text(`document.getElementById("budgets-card").scrollIntoView({behavior: "instant"})`)
		b.picture("dashboard-budget")
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		if found := b.text(essentials); found != "" {
			t.Errorf("%s:\n%s", scheme, found)
		}
		for _, width := range []int64{1200, 320} {
			b.do(chromedp.EmulateViewport(width, 700))
			b.until(fmt.Sprintf("innerWidth === %d && document.querySelector('#budgets canvas')?.clientWidth < innerWidth && document.documentElement.scrollWidth <= innerWidth", width))
		}
	}
	// A window that changes and keeps its size leaves the chart in place.
	b.text(`dispatchEvent(new Event("resize"))`)
	b.text(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
	if got := b.text(`document.querySelectorAll("#budgets .chart canvas").length`); got != "1" {
		t.Errorf("after a resize: %s charts", got)
	}
	// The figures of one second where the pointer is.
	b.text(`document.querySelector("#budgets .u-over").scrollIntoView({block: "center", behavior: "instant"})`)
	b.text(`(() => {
	  const over = document.querySelector("#budgets .u-over"), r = over.getBoundingClientRect();
	  over.dispatchEvent(new MouseEvent("mousemove", {clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}));
	})()`)
	b.until(`/^Units per second, at \d\d:\d\d/.test(document.querySelector("#budgets caption").innerText)`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestSaysWhatIsNotFree: what is left of a budget may be other instances', and budgets of
// one name each have a rest of their own. Limits and rules name the budgets that they charge.
func TestSaysWhatIsNotFree(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	b, s := open(t), serveRules(t, classes+"  - {key: model, budgets: {own: {algorithm: gcra, requests_per_unit: 20, unit: day}}, rate_limit: {budget: own}}\n", func(o *app.Options) {
		o.Store, o.Fallback.Instances = redis.URL(), 3
		o.Fallback.StoreTimeout, o.Fallback.StoreSilence = 5*time.Second, 5*time.Second
	})
	b.do(chromedp.Navigate(s.admin + "/"))
	b.until(`document.getElementById("live").textContent === "live" && document.getElementById("budgets-card").hidden`)
	s.ask("live", "1")
	s.ask("model", "a")
	b.until(`!document.getElementById("budgets-card").hidden && document.querySelectorAll("#budgets .chart canvas").length === 2`)
	b.until(row("live") + `.innerText.includes("live of m")`)
	b.until(`[...document.querySelectorAll("#rules-part tr")].some((r) => r.innerText.includes("shop/batch") && r.innerText.includes("budget m") && r.innerText.includes("keep 8"))`)
	shown := func(budget string) string {
		return b.text(`((li) => [...li.querySelectorAll(".tiles > div, tbody tr, tfoot, p")].filter((e) => e.checkVisibility()).map((e) => e.innerText.replace(/\d[\d.]*( \/s|$)/g, "N").replace(/\s+/g, " ")).join("; "))(` +
			`[...document.querySelectorAll("#budgets > li")].find((li) => li.querySelector("h4").innerText.startsWith("shop ` + budget + `")))`)
	}
	if got, want := shown("m "), "Granted N; Rest N of N; Rest N; live N; Budget N; Rest: free, or granted by the other instances; 3 share this store."; got != want {
		t.Errorf("shown:\n%s\nwant:\n%s", got, want)
	}
	if got, want := shown("model#own"), "Granted N; model N; Each combination of requested values has a budget of its own, 20/day; what they leave free is not shown."; got != want {
		t.Errorf("shown:\n%s\nwant:\n%s", got, want)
	}
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// load sends the requests of three teams for so long, one of them more than there is.
func (s *shopServer) load(long time.Duration) {
	s.Helper()
	rates := map[string]func(seconds float64) float64{
		"ads": func(at float64) float64 { return max(0, 40+45*math.Sin(at/9)) },
		"web": func(at float64) float64 { return 22 + 6*math.Sin(at/7) },
		"batch": func(at float64) float64 {
			if at > 28 && at < 40 {
				return 10
			}
			return 150
		},
	}
	const pace = 50 * time.Millisecond
	tick := time.NewTicker(pace)
	defer tick.Stop()
	due := map[string]float64{}
	for begun := time.Now(); time.Since(begun) < long; <-tick.C {
		for team, rate := range rates {
			for due[team] += rate(time.Since(begun).Seconds()) * pace.Seconds(); due[team] >= 1; due[team]-- {
				s.askIn("search", "team", team)
			}
		}
	}
}
