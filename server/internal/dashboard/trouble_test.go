package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/testserver"
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

// TestSessionEnds: a server that was started again knows no session and asks for the
// token.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, token)
	address := strings.TrimPrefix(s.admin, "http://")
	b.do(chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible(chromedp.CSS("#token")))
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"), chromedp.WaitVisible(chromedp.CSS("#chart-decisions")))
	b.until(`document.getElementById("live").textContent === "live"`)
	s.stop()
	b.until(visible("gone"))
	serveIn(t, t.TempDir(), token, func(o *app.Options) { o.Admin.Address = address })
	b.do(chromedp.WaitVisible(chromedp.CSS("#token")))
}

// TestStoreIsGone: the page says what is decided meanwhile, and which server is away.
func TestStoreIsGone(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	b := open(t)
	s := serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = redis.URL() })
	serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = redis.URL() })
	s.ask("user", "bob")
	b.do(chromedp.Navigate(s.admin + "/"))
	b.until(`document.getElementById("facts").textContent.includes("2 share this store")`)
	b.until(fmt.Sprintf(`document.getElementById("nodes").textContent === "%smasterOK" && !(%s)`, redis.Addr(), visible("store-out")))
	redis.Kill()
	b.until(visible("store-out") + ` && document.getElementById("store-error").textContent !== ""`)
	b.until(`document.querySelector("#nodes .dot.bad") && document.getElementById("nodes").textContent.includes("unreachable: ") && document.getElementById("nodes-count").textContent === "1 of 1 unhealthy"`)
	s.count("user", "bob", 3)
	b.until(row("steady") + `.lastElementChild.textContent.includes("fallback ")`)
	b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=bob"), chromedp.Click(chromedp.CSS("#look")))
	b.until(`document.getElementById("done").className.includes("wrong") && document.getElementById("done").textContent.includes("the store reached no decision")`)
	redis.Restart()
	b.until(`!(` + visible("store-out") + `) && !document.querySelector("#nodes .dot.bad")`)
	if said := b.complaints("503 (Service Unavailable)"); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}

const withoutAlgorithm = `domain: shop
descriptors:
  - key: user
    rate_limit: {name: counted, requests_per_unit: 5, unit: minute}
`

// TestOutageIsShown: with a store that was killed or hangs nothing is green that depends on
// it, and requests that got an error are counted as such.
func TestOutageIsShown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testserver.Redis)
		reason     string
	}{
		"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Restart, "refused"},
		"hung":   {(*testserver.Redis).Pause, (*testserver.Redis).Resume, "no reply for "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testserver.StartRedis(t)
			b := open(t)
			s := serveIn(t, t.TempDir(), "", func(o *app.Options) { o.Store = redis.URL() })
			s.write(withoutAlgorithm)
			b.do(chromedp.Navigate(s.admin + "/"))
			content := func(id string) string { return fmt.Sprintf(`document.getElementById(%q).textContent`, id) }
			check := `[...document.querySelectorAll("#checks li")].find((li) => li.textContent.startsWith("store: "))`
			healthy := content("readiness") + ` === "healthy" && document.getElementById("dot").className === "dot good" && ` + content("reason") + ` === "" && ` +
				check + `.textContent === "store: OK" && ` + check + `.querySelector(".dot.good") !== null`
			b.until(row("counted") + ` && ` + healthy + ` && !(` + visible("store-out") + `)`)
			fault.begin(redis)
			// Nobody has called.
			b.until(content("readiness") + ` === "degraded" && document.getElementById("dot").className === "dot fair" && /^store: 127\.0\.0\.1:\d+ is unreachable since \d.*` + fault.reason + `/.test(` + content("reason") + `)`)
			b.until(check + `.textContent.startsWith("store: 127.0.0.1:") && ` + check + `.querySelector(".dot.bad") !== null && ` + visible("store-out"))
			for range 4 {
				if got := s.ask("user", "bob"); got != 503 {
					t.Errorf("answered %d, want 503", got)
				}
			}
			b.until(row("counted") + `.querySelectorAll(".n")[7].textContent === "4" && ` + row("counted") + `.lastElementChild.textContent === "error"`)
			b.until(`charts.past().failed.reduce((a, n) => a + n, 0) === 4 && charts.past().refused.every((n) => n === 0)`)
			b.until(content("offered") + ` !== "0" && ` + content("failed") + ` === ` + content("offered") + ` && ` + content("granted") + ` === "0"`)
			b.until(content("sources-legend") + `.includes("error 4 (100 %)")`)
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
			b.until(healthy + ` && !(` + visible("store-out") + `)`)
			if said := b.complaints(); len(said) > 0 {
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

const rollout = `domain: shop
descriptors:
  - key: user
    enforce: 25%
    rate_limit: {name: steady, requests_per_unit: 5, unit: minute, algorithm: gcra}
    trial: {name: tighter, requests_per_unit: 1, unit: minute, algorithm: gcra}
`

// TestRollOut: a limit for a part of the keys, and one on trial beside it, are told
// from those that refuse everybody.
func TestRollOut(t *testing.T) {
	t.Parallel()
	b, s := open(t), serve(t, "")
	s.write(rollout)
	b.do(chromedp.Navigate(s.admin + "/"))
	tags := func(list string) string {
		return `[...document.querySelectorAll("` + list + ` .tag")].filter((e) => !e.hidden).map((e) => e.textContent).join()`
	}
	b.until(tags("#rules-part") + ` === "enforced for 25%,on trial"`)
	b.until(row("steady") + ` && ` + tags("#limits") + ` === "enforced for 25%"`)
	s.count("user", "bob", 3)
	b.until(row("tighter (on trial)") + `.querySelectorAll(".n")[5].textContent === "2"`)
	b.do(chromedp.SetValue(chromedp.CSS("#domain"), "shop"), chromedp.SetValue(chromedp.CSS("#entry"), "user=bob"), chromedp.Click(chromedp.CSS("#look")))
	b.until(`/^enforced for 25%,(this key too|not this key),on trial$/.test(` + tags("#answer") + `)`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}
