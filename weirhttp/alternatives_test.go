package weirhttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirhttp"
)

// TestAlternatives: headers name the alternative and what one request could take, and a
// correction concerns only the alternative that was granted.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	store := frozen()
	free := newLimiter(t, store, weir.Limit{Name: "free", Count: 10, Period: time.Hour})
	credits := newLimiter(t, store, weir.Limit{Name: "credits", Count: 100, Period: time.Hour})
	both, err := free.Otherwise(credits.Keeping(20))
	if err != nil {
		t.Fatal(err)
	}
	for _, headers := range []weirhttp.HeaderStyle{weirhttp.HeadersDraft11, weirhttp.HeadersXRateLimit, weirhttp.HeadersNone} {
		if err := both.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		cost, charged := int64(0), int64(0)
		h := weirhttp.Middleware(both, weirhttp.Options{
			Key:     func(*http.Request) (string, error) { return "k", nil },
			Cost:    func(*http.Request) int64 { return cost },
			Charge:  func(weirhttp.Response) int64 { return charged },
			Headers: headers,
			OnError: func(_ *http.Request, err error) { t.Error(err) },
		})(http.HandlerFunc(ok))
		for i, step := range []struct {
			cost, charged int64
			alternative   string
			status        int
			free, credits int64 // remain afterwards
		}{
			{8, 8, "1", 200, 2, 100},
			{5, 3, "2", 200, 2, 97},
			{5, 7, "2", 200, 2, 90},
			{0, 1, "1", 200, 1, 90},
			{0, 3, "1", 200, -2, 90},
			{0, 2, "2", 200, -2, 88},
			{68, 68, "2", 200, -2, 20},
			{1, 1, "2", 429, -2, 20}, // sooner than the third unit of the free ones
		} {
			cost, charged = step.cost, step.charged
			w := get(h)
			want := step.alternative
			if headers == weirhttp.HeadersNone {
				want = ""
			}
			if got := w.Header().Get("Weir-Alternative"); w.Code != step.status || got != want {
				t.Errorf("step %d: %d by alternative %q, want %d by %q", i, w.Code, got, step.status, want)
			}
			for l, left := range map[*weir.Limiter]int64{free: step.free, credits: step.credits} {
				if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != max(0, left) {
					t.Errorf("step %d: %v, %v, want %d remaining", i, d, err, left)
				}
			}
		}
	}
}

// TestKeep: what a request has cost is charged without regard to what it keeps free.
func TestKeep(t *testing.T) {
	t.Parallel()
	all := newLimiter(t, frozen(), weir.PerHour(10))
	cost, charged := int64(5), int64(3)
	h := weirhttp.Middleware(all.Keeping(4), weirhttp.Options{
		Key:     func(*http.Request) (string, error) { return "k", nil },
		Cost:    func(*http.Request) int64 { return cost },
		Charge:  func(weirhttp.Response) int64 { return charged },
		OnError: func(_ *http.Request, err error) { t.Error(err) },
	})(http.HandlerFunc(ok))
	for i, step := range []struct {
		cost, charged int64
		status        int
		left          int64
	}{{5, 3, 200, 7}, {4, 4, 429, 7}, {3, 6, 200, 1}, {0, 1, 429, 1}} {
		cost, charged = step.cost, step.charged
		if w := get(h); w.Code != step.status || w.Header().Get("Weir-Alternative") != "" {
			t.Errorf("step %d: %d, want %d", i, w.Code, step.status)
		}
		if d, err := all.Peek(t.Context(), "k"); err != nil || d.Remaining != step.left {
			t.Errorf("step %d: %v, %v, want %d remaining", i, d, err, step.left)
		}
	}
}
