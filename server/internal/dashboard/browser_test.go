package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// patience is how long a browser may take before the test fails.
const patience = 8 * time.Minute

// A browser shows one page, and remembers what it complained about.
type browser struct {
	*testing.T
	ctx  context.Context
	mu   sync.Mutex
	said []string
}

// open starts a browser that ends with the test. Where there is none, the test is
// skipped.
func open(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path := testserver.Require(t, "chromium")
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.Headless, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
	}
	life := patience
	if *update {
		life *= 4
	}
	ctx, stop := context.WithTimeout(context.Background(), life)
	t.Cleanup(stop)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(closed)
	b := &browser{T: t, ctx: ctx}
	b.do()
	b.must("listen", chromedp.Listen(ctx, b.hear))
	b.must("network", call(ctx, network.Enable, network.EnableParams{}))
	b.must("log", call(ctx, log.Enable, cdp.Empty{}))
	return b
}

func call[P, R any](ctx context.Context, cmd cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, cmd, params)
	return err
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprint(e.Type))
	case *log.EventEntryAdded:
		b.said = append(b.said, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, "http://127.0.0.1:") && !strings.HasPrefix(url, "data:") {
			b.said = append(b.said, "asked for "+url)
		}
	}
}

// complaints returns what the browser said, once, without what is meant to be said.
func (b *browser) complaints(but ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := slices.DeleteFunc(b.said, func(words string) bool {
		return slices.ContainsFunc(but, func(known string) bool { return strings.Contains(words, known) })
	})
	b.said = nil
	return said
}

func (b *browser) must(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	b.must("browser", chromedp.Do(b.ctx, steps...))
}

// text returns what an expression is, as text.
func (b *browser) text(expression string) string {
	b.Helper()
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	b.must(expression, err)
	return got
}

// lookUp presses the first of the most refused keys. The lists move as figures arrive, so a
// click on the place of the button could miss it.
func (b *browser) lookUp() {
	b.Helper()
	b.do(chromedp.WaitVisible(chromedp.CSS("#top-refused button.key")))
	b.text(`document.querySelector("#top-refused button.key").click()`)
	b.do(chromedp.WaitVisible(chromedp.CSS("#answer .known")))
}

// until waits for an expression to be true. The page's policy forbids what
// [chromedp.Poll] would run.
func (b *browser) until(expression string) {
	b.Helper()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(patience / 8); b.text(expression) != "true"; <-pause.C {
		if time.Now().After(deadline) {
			b.Fatalf("never true: %s; the page says\n%s", expression, b.text("document.body.innerText"))
		}
	}
}

func (b *browser) scheme(name string) {
	b.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	b.must(name, call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}))
}
