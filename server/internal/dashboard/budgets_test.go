package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const classes = `domain: shop
budgets: {m: {algorithm: gcra, requests_per_unit: 20, unit: day}}
descriptors:
  - {key: live, rate_limit: {budget: m}}
  - {key: batch, rate_limit: {budget: m, keep: 8}}
`

// TestBudgets shows what each rule was granted of a budget, one on top of another.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b, s := open(t), serveRules(t, classes)
	b.do(chromedp.Navigate(s.admin + "/"))
	b.until(`document.getElementById("live").textContent === "live" && document.getElementById("budgets-card").hidden`)
	if got := s.count("batch", "1", 20); got != 12 {
		t.Errorf("batch was granted %d, want 12", got)
	}
	if got := s.count("live", "1", 20); got != 8 {
		t.Errorf("live was granted %d, want 8", got)
	}
	b.until(`!document.getElementById("budgets-card").hidden && document.querySelectorAll("#budgets svg path").length === 2`)
	b.until(`document.getElementById("budgets").innerText.includes("shop m") && [...document.querySelectorAll("#budgets .legend li")].map((e) => e.innerText.split(" ")[0]).join() === "batch,live"`)
	b.until(row("batch") + `.innerText.includes("batch of m")`)
	b.until(`[...document.querySelectorAll("#rules-part tr")].some((r) => r.innerText.includes("shop/batch") && r.innerText.includes("budget m") && r.innerText.includes("keep 8"))`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

// TestBudgetsAreBounded: a page has the busiest budgets, and the busiest rules of each.
func TestBudgetsAreBounded(t *testing.T) {
	t.Parallel()
	var all []traffic.Class
	for budget := range 40 {
		for rule := range 20 {
			all = append(all, traffic.Class{Domain: "d", Budget: fmt.Sprintf("b%02d", budget), Rule: fmt.Sprintf("r%02d", rule), Units: []uint32{uint32(budget), uint32(rule)}})
		}
	}
	got, left := dashboard.Budgets(all)
	if want := "b28 [r14 r15 r16 r17 r18 r19 ]"; len(got) != 12 || left != 28 || got[0] != want {
		t.Errorf("%d more than %q, want %q", left, got, want)
	}
}
