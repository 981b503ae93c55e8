package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/app"
)

// visible is an expression for whether an element is shown.
func visible(id string) string {
	return fmt.Sprintf(`!document.getElementById(%q).hidden`, id)
}

// TestServerStops: an open page says so, and goes on once the server is back.
func TestServerStops(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	address := strings.TrimPrefix(s.admin, "http://")
	b.do(chromedp.Navigate(s.admin + "/"))
	b.until(`document.getElementById("live").textContent === "live" && !(` + visible("gone") + `)`)
	s.stop()
	b.until(visible("gone") + ` && document.getElementById("gone").textContent.includes("does not answer") && /figures are from \d\d:\d\d:\d\d/.test(document.getElementById("gone").textContent)`)
	b.until(`document.getElementById("readiness").textContent === "unreachable"`)
	// What is asked meanwhile fails with a word.
	b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=eve"), chromedp.Click(chromedp.CSS("#look")))
	b.until(`document.getElementById("done").className.includes("wrong") && document.getElementById("done").textContent.includes("does not answer")`)
	serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Admin.Address = address })
	b.until(`document.getElementById("live").textContent === "live" && !(` + visible("gone") + `) && document.getElementById("readiness").textContent === "healthy"`)
	if said := b.complaints("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

const withoutAlgorithm = `domain: shop
descriptors:
  - key: user
    rate_limit: {name: counted, requests_per_unit: 5, unit: minute}
  - key: path
    rate_limit: {name: steady, requests_per_unit: 5, unit: minute, algorithm: gcra}
`

// TestOutageIsShown: with a store that was killed or hangs nothing is green that depends on
// it, the page says which server is away and what is decided meanwhile, and requests that got
// an error are counted as such.
func TestOutageIsShown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testserver.Redis)
		reason     string
	}{
		"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Restart, "refused"},
		"hung":   {(*testserver.Redis).Pause, (*testserver.Redis).Resume, "(no reply for |i.o timeout)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testserver.StartRedis(t)
			b := open(t)
			s := serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = redis.URL() })
			serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = redis.URL() })
			s.write(withoutAlgorithm)
			b.do(chromedp.Navigate(s.admin + "/"))
			content := func(id string) string { return fmt.Sprintf(`document.getElementById(%q).textContent`, id) }
			check := `[...document.querySelectorAll("#checks li")].find((li) => li.textContent.startsWith("store: "))`
			healthy := content("readiness") + ` === "healthy" && document.getElementById("dot").className === "dot good" && ` + content("reason") + ` === "" && ` +
				check + `.textContent === "store: OK" && ` + check + `.querySelector(".dot.good") !== null`
			b.until(row("counted") + ` && ` + healthy + ` && !(` + visible("store-out") + `)`)
			b.until(content("nodes") + ` === "` + redis.Addr() + `masterOK" && ` + content("facts") + `.includes("2 share this store") && document.querySelectorAll("#facts .bad").length === 0`)
			fault.begin(redis)
			// Nobody has called.
			b.until(content("readiness") + ` === "degraded" && document.getElementById("dot").className === "dot fair" && /^store: 127\.0\.0\.1:\d+ is unreachable since \d.*` + fault.reason + `/.test(` + content("reason") + `)`)
			b.until(check + `.textContent.startsWith("store: 127.0.0.1:") && ` + check + `.querySelector(".dot.bad") !== null && ` + visible("store-out") + ` && ` + content("store-error") + ` !== ""`)
			b.until(`document.querySelector("#nodes .dot.bad") && ` + content("nodes") + `.includes("unreachable: ") && ` + content("nodes-count") + ` === "1 of 1 unhealthy" && [...document.querySelectorAll("#facts .bad")].some((dd) => dd.textContent === "no")`)
			for range 4 {
				if got := s.ask("user", "bob"); got != 503 {
					t.Errorf("answered %d, want 503", got)
				}
			}
			b.until(row("counted") + `.querySelectorAll(".n")[7].textContent === "4" && ` + row("counted") + `.lastElementChild.textContent === "error"`)
			b.until(`charts.past().failed.reduce((a, n) => a + n, 0) === 4 && charts.past().refused.every((n) => n === 0)`)
			b.until(content("offered") + ` !== "0" && ` + content("failed") + ` === ` + content("offered") + ` && ` + content("granted") + ` === "0"`)
			b.until(content("sources-legend") + `.includes("error 4 (100 %)")`)
			s.count("path", "/", 3)
			b.until(row("steady") + `.lastElementChild.textContent === "fallback"`)
			b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=bob"), chromedp.Click(chromedp.CSS("#look")))
			b.until(`document.getElementById("done").className.includes("wrong") && ` + content("done") + `.includes("the store reached no decision")`)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				for _, width := range []int64{1200, 320} {
					b.do(chromedp.EmulateViewport(width, 900))
					b.until(fmt.Sprintf("innerWidth === %d && document.documentElement.scrollWidth <= innerWidth", width))
					if *update && name == "hung" && scheme == "light" && width == 1200 {
						b.text(`scrollTo(0, 0)`)
						b.picture("dashboard-outage-light")
					}
				}
			}
			fault.end(redis)
			b.until(healthy + ` && !(` + visible("store-out") + `) && !document.querySelector("#nodes .dot.bad")`)
			if said := b.complaints("503 (Service Unavailable)"); len(said) > 0 {
				t.Errorf("the browser says %q", said)
			}
		})
	}
}

// TestServersOfTheStore: those behind sentinels, and which of them are away.
func TestServersOfTheStore(t *testing.T) {
	t.Parallel()
	sentinel := testserver.StartSentinel(t, 1)
	b := open(t)
	s := serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = sentinel.URL() })
	b.do(chromedp.Navigate(s.admin + "/"))
	roles := `[...document.querySelectorAll("#nodes tr")].map((r) => r.children[1].textContent).join()`
	b.until(roles + ` === "master,replica,sentinel,sentinel,sentinel" && document.getElementById("nodes-count").textContent === "5"`)
	sentinel.Replicas[0].Kill()
	sentinel.Sentinels[2].Kill()
	// A list that was read while servers vanished may lack one.
	state := func(address string) string {
		return fmt.Sprintf(`([...document.querySelectorAll("#nodes tr")].find((r) => r.children[0].textContent === %q)?.children[2].textContent ?? "")`, address)
	}
	b.until(state(sentinel.Replicas[0].Addr()) + `.startsWith("unreachable") && ` + state(sentinel.Sentinels[2].Addr()) + `.startsWith("unreachable") && ` + state(sentinel.Master.Addr()) + ` === "OK"`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}
