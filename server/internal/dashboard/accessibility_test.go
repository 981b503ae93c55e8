package dashboard_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/app"
)

var axe = flag.String("axe", "", "axe.min.js of axe-core: check the pages with it, too")

// essentials lists what keeps people from using a page: controls without a name, ids that
// repeat, positive tabindexes, and text without contrast (WCAG 2.2, AA).
const essentials = `(() => {
  const found = [], shown = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility());
  const name = (e) => (e.getAttribute("aria-label") || (e.labels && [...e.labels].map((l) => l.textContent).join("")) || e.textContent || e.getAttribute("alt") || "").trim();
  const where = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " + e.className;
  for (const e of shown) {
    if (e.matches("a, button, input, select, [role=region], [role=img]") && !name(e)) found.push("no name: " + where(e));
    if (e.matches("input, select") && !e.labels.length && !e.getAttribute("aria-label")) found.push("no label: " + where(e));
    if (e.tabIndex > 0) found.push("tabindex: " + where(e));
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push("id twice: " + id);
  const parts = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  for (const e of shown) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || e.matches(".skip")) continue;
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x), contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push("contrast " + contrast.toFixed(2) + ": " + where(e) + ": " + e.textContent.slice(0, 30));
  }
  return [...new Set(found)].join("\n");
})()`

// violations runs axe-core, which finds the rules that a page breaks.
const violations = `axe.run().then((r) => r.violations.map((v) => v.id + " (" + v.impact + "): " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + ": " + (n.any[0] || n.none[0] || {message: ""}).message).join("; ")).join("\n"))
  .then((found) => { window.axeFound = found; })`

// accessible demands that people can use what is shown with a screen reader, and see it.
func (b *browser) accessible(page, scheme string) {
	b.Helper()
	b.scheme(scheme)
	if found := b.text(essentials); found != "" {
		b.Errorf("%s, %s:\n%s", page, scheme, found)
	}
	if *axe == "" {
		return
	}
	source, err := os.ReadFile(*axe)
	b.must("axe", err)
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](string(source)+"\n;window.axeFound = null; ''")); err != nil {
		b.Fatal("axe-core does not load")
	}
	b.text("void " + violations)
	b.until("window.axeFound !== null")
	if found := b.text("window.axeFound"); strings.TrimSpace(found) != "" {
		b.Errorf("%s, %s: axe-core says\n%s", page, scheme, found)
	}
}

// pictures are how the docs show the page; those without a name are only looked at.
var pictures = []struct {
	name, scheme, part string
	width, height      int64
}{
	{"dashboard-light", "light", "traffic", 1200, 1000},
	{"dashboard-dark", "dark", "traffic", 1200, 1000},
	{"dashboard-keys", "light", "keys", 1200, 1000},
	{"dashboard-key", "light", "one", 1200, 720},
	{"dashboard-store", "light", "store", 1200, 900},
	{"", "light", "rules", 1400, 900},
	{"", "light", "keys", 375, 812},
	{"dashboard-phone", "dark", "traffic", 320, 760},
}

// TestAccessible demands that people can use the page on every screen, light and dark, with
// a screen reader and by the keyboard. No page is wider than what it is shown on.
func TestAccessible(t *testing.T) {
	t.Parallel()
	folder, rounds := filepath.Join(t.TempDir(), "rules-of-the-shop-and-of-everything-that-belongs-to-it-in-production"), 15
	if *update {
		// The docs show where rules stand.
		folder, rounds = filepath.Join(os.TempDir(), "weir-rules"), 900
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	sentinel := testserver.StartSentinel(t, 1)
	shared := func(o *app.Options) {
		// However busy the machine is.
		o.Store, o.Timeout, o.Fallback.StoreTimeout, o.Fallback.StoreSilence = sentinel.URL(), 4*time.Second, 5*time.Second, 5*time.Second
	}
	serveIn(t, t.TempDir(), "", shared)
	b, s := open(t), serveIn(t, folder, "", shared)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	b.scheme("light")
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#chart-latency canvas")))
	for round := range rounds {
		s.count("path", "/login", round%6/5)
		s.count("path", "/search", int(4+2.5*math.Sin(float64(round)/60)))
		for user := range 7 {
			s.count("user", fmt.Sprint("customer-", 4000+user*user*7), int(float64(user)*0.4+0.5+math.Sin(float64(round+50*user)/70)+float64(round%3)/3))
		}
		<-tick.C
	}
	long := strings.Repeat("long", 60)
	if !*update {
		s.count("user", long, 40)
	}
	b.lookUp()
	for _, p := range pictures {
		b.do(chromedp.EmulateViewport(p.width, p.height))
		b.accessible(fmt.Sprintf("%d pixels", p.width), p.scheme)
		b.until(fmt.Sprintf("innerWidth === %d && document.querySelector('#chart-decisions canvas').clientWidth < innerWidth", p.width))
		b.until(`document.documentElement.scrollWidth <= innerWidth`)
		// A time is on one line.
		b.until(`(() => { const r = document.createRange(); return [...document.querySelectorAll("#tail tr:not(.none) > :first-child")].every((e) => { r.selectNodeContents(e); return r.getBoundingClientRect().height < 1.9 * parseFloat(getComputedStyle(e).fontSize); }); })()`)
		if p.width >= 1200 {
			b.until(`[...document.querySelectorAll(".scroll:not(.tail)")].every((e) => e.scrollWidth <= e.clientWidth)`)
		}
		want := map[string]string{"light": "rgb(246, 247, 249)", "dark": "rgb(14, 17, 22)"}[p.scheme]
		if got := b.text("getComputedStyle(document.body).backgroundColor"); got != want {
			t.Errorf("%s: the background is %q", p.scheme, got)
		}
		if *update && p.name != "" {
			b.text(`scrollTo(0, 0)`)
			if p.part != "traffic" {
				b.text(fmt.Sprintf("document.getElementById(%q).scrollIntoView({behavior: 'instant'})", p.part))
			}
			b.picture(p.name)
		}
	}
	b.walk()
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// walk goes through the page with the tabulator, until it has reached all that can be used: what
// the page shows changes on the way.
func (b *browser) walk() {
	b.Helper()
	// The walk starts at the body, wherever somebody has clicked.
	b.text(`(document.body.tabIndex = -1, document.body.focus(), window.reached = new Set(), void (window.missing = () =>
		[...document.querySelectorAll("a, button, input, select, [tabindex='0']")].filter((e) => e.checkVisibility() && !reached.has(e))))`)
	for step := range 400 {
		b.do(chromedp.KeyEvent("\t"))
		if step == 0 {
			if first := b.text(`document.activeElement.className`); first != "skip" {
				b.Errorf("the first stop is %q", first)
			}
		}
		if b.text(`(reached.add(document.activeElement), missing().length)`) == "0" {
			return
		}
	}
	b.Errorf("not reached: %s", b.text(`missing().map((e) => e.outerHTML).join("\n")`))
}
