package dashboard_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
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

// TestAccessible demands that people can use the page and the login by the keyboard and
// with a screen reader, light and dark.
func TestAccessible(t *testing.T) {
	t.Parallel()
	b, s, locked := open(t), serve(t, ""), serve(t, "correct-horse-battery")
	s.count("path", "/login", 7)
	s.count("path", "/search", 30)
	s.count("user", "bob", 3)
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#top-refused button.key")))
	b.until(`document.getElementById("live").textContent === "live" && document.querySelector("#chart-latency canvas") !== null`)
	b.lookUp()
	check := func(page string) {
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			if found := b.text(essentials); found != "" {
				t.Errorf("%s, %s:\n%s", page, scheme, found)
			}
			if *axe == "" {
				continue
			}
			source, err := os.ReadFile(*axe)
			b.must("axe", err)
			if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](string(source)+"\n;window.axeFound = null; ''")); err != nil {
				t.Fatal("axe-core does not load")
			}
			b.text("void " + violations)
			b.until("window.axeFound !== null")
			if found := b.text("window.axeFound"); strings.TrimSpace(found) != "" {
				t.Errorf("%s, %s: axe-core says\n%s", page, scheme, found)
			}
		}
	}
	check("page")
	b.do(chromedp.Navigate(locked.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#token")))
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"), chromedp.WaitVisible(chromedp.CSS("#wrong")))
	check("login")
}
