package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

	"github.com/weirlimit/weir/internal/testserver"
)

// patience is how long a browser may take before the test fails.
const patience = 60 * time.Second

// TestBrowser opens the page in a browser, light and dark: every chart that has
// values is drawn, nothing is complained about, and nothing is asked of the
// network.
func TestBrowser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path := testserver.Require(t, "chromium")
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(write(t, sample().WriteHTML)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := browser(t, path)
	b := &overheard{}
	for what, err := range map[string]error{
		"start": chromedp.Do(ctx), "listen": chromedp.Listen(ctx, b.hear),
		"network": call(ctx, network.Enable, network.EnableParams{}), "log": call(ctx, log.Enable, cdp.Empty{}),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for scheme, background := range map[string]string{"light": "rgb(251, 251, 250)", "dark": "rgb(17, 19, 21)"} {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
		if err := call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate("file://"+file), chromedp.WaitVisible(chromedp.CSS(".chart canvas"))); err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		if got, err := chromedp.Run(ctx, chromedp.Evaluate[string](painted)); err != nil || got != "painted,painted," {
			t.Errorf("%s: the charts are %q, %v", scheme, got, err)
		}
		if got, err := chromedp.Run(ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`)); err != nil || got != background {
			t.Errorf("%s: the background is %q, %v", scheme, got, err)
		}
	}
	if complaints := b.all(); len(complaints) > 0 {
		t.Errorf("the browser says %q", complaints)
	}
}

func call[P, R any](ctx context.Context, cmd cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, cmd, params)
	return err
}

// painted says of each chart whether any of its pixels has a colour: axes and
// grids are grey.
const painted = `[...document.querySelectorAll(".chart")].map((chart) => {
  const canvas = chart.querySelector("canvas");
  if (!canvas) return "";
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 200 && Math.max(pixels[i], pixels[i + 1], pixels[i + 2]) - Math.min(pixels[i], pixels[i + 1], pixels[i + 2]) > 60) return "painted";
  return "blank";
}).join()`

// browser starts one that ends with the test.
func browser(t *testing.T, path string) context.Context {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.Headless, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	t.Cleanup(stop)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(closed)
	return ctx
}

// overheard is what a browser says beside the page.
type overheard struct {
	mu    sync.Mutex
	words []string
}

func (b *overheard) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.words = append(b.words, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.words = append(b.words, fmt.Sprint(e.Type))
	case *log.EventEntryAdded:
		b.words = append(b.words, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, "file://") && !strings.HasPrefix(url, "data:") {
			b.words = append(b.words, url)
		}
	}
}

func (b *overheard) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.words
}
