package weir_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestWould holds dry runs to what takes say, and to charging nothing: neither what would be
// granted, nor what a limit charges for a refusal, nor a slot.
func TestWould(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10/min", "10/min fixed_window charge_refused", "10/min sliding_log", "10/min leaky_bucket", "1/min concurrency"} {
		clock := storetest.NewClock()
		limit, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		l, err := weir.NewLimiter(memengine.New(memengine.Options{Now: clock.Now}), "test", limit)
		if err != nil {
			t.Fatal(err)
		}
		n := limit.Capacity()
		for range 3 {
			if d, err := l.Would(t.Context(), "k", n); err != nil || !d.Allowed() || d.Granted != 0 || d.Remaining != n {
				t.Errorf("%s: %d units: %+v, %v", text, n, d, err)
			}
			if n == 1 {
				continue
			}
			if d, err := l.Would(t.Context(), "k", n+1); err != nil || d.Allowed() || d.RetryAfter != weir.Never {
				t.Errorf("%s: more than ever fits: %+v, %v", text, d, err)
			}
		}
		if n == 1 {
			continue
		}
		if d, err := l.AllowN(t.Context(), "k", n-2); err != nil || !d.Allowed() {
			t.Fatalf("%s: %+v, %v", text, d, err)
		}
		for range 3 {
			d, err := l.Would(t.Context(), "k", 3)
			if err != nil || d.Allowed() || d.RetryAfter <= 0 || d.RetryAfter > time.Minute || d.Remaining != 2 {
				t.Errorf("%s: 3 units: %+v, %v", text, d, err)
			}
		}
		if d, err := l.AllowN(t.Context(), "k", 2); err != nil || !d.Allowed() || d.Granted != 2 {
			t.Errorf("%s: a dry run has charged: %+v, %v", text, d, err)
		}
	}
}

// TestDryRunsAreTakes refuses dry runs of what cannot be tried.
func TestDryRunsAreTakes(t *testing.T) {
	t.Parallel()
	l := newLimiter(weir.PerMinute(10))
	for name, change := range map[string]func(a *weir.Act){
		"an id":       func(a *weir.Act) { a.ID = "a" },
		"a wait":      func(a *weir.Act) { a.MaxWait = time.Second },
		"best effort": func(a *weir.Act) { a.Charges[0].UpTo = 2 },
		"a refund":    func(a *weir.Act) { a.Kind, a.Charges[0].At = 1, 1 },
	} {
		a := l.Act(0, "k", 1)
		a.Dry = true
		change(a)
		if l.Take(t.Context(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrInvalid) {
			t.Errorf("%s: %v", name, a.Err)
		}
	}
}
