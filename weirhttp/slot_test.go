package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// places is a limit of so many requests at a time.
func places(n int64) weir.Limit {
	return weir.Limit{Name: "places", Algorithm: weir.Concurrency, Count: n, Period: 30 * time.Second}
}

func byName(*http.Request) (string, error) { return "k", nil }

// free is how many places are left, and how many units of the first limit.
func free(t *testing.T, l *weir.Limiter) (places, units int64) {
	t.Helper()
	act := l.Act(acts.KindTake, "k", 0)
	if l.Take(context.Background(), []*weir.Act{act}); act.Err != nil {
		t.Fatal(act.Err)
	}
	return act.Decisions[len(act.Decisions)-1].Remaining, act.Decisions[0].Remaining
}

// TestPlaces: a place is held while the handler runs, however it ends.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]http.HandlerFunc{
		"returns": ok,
		"fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for kind, charge := range map[string]func(weirhttp.Response) int64{"charged": nil, "settled": failures} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				l := newLimiter(t, frozen(), weir.PerDay(1000), places(1))
				var again *httptest.ResponseRecorder
				var h http.Handler
				nested := false
				h = weirhttp.Middleware(l, weirhttp.Options{Key: byName, Charge: charge})(http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						if nested {
							t.Error("two at a time")
							return
						}
						nested = true
						again = get(h)
						end(w, r)
					}))
				func() {
					defer func() { _ = recover() }()
					get(h)
				}()
				if again.Code != 429 || again.Header().Get("Retry-After") == "" {
					t.Errorf("a second at the same time: %d %v", again.Code, again.Header())
				}
				left, units := free(t, l)
				want := int64(999)
				if charge != nil && name == "returns" {
					want = 1000
				}
				if left != 1 || units != want {
					t.Errorf("%d places and %d units left, want 1 and %d", left, units, want)
				}
			})
		}
	}
}

// TestLongHandlers: a place outlives its lease as long as the handler runs, even without its
// client, and not much longer than the host.
func TestLongHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fragile{Taker: memstore.New(memstore.Options{})}
		l := newLimiter(t, store, places(1))
		told := make(chan error, 100)
		h := weirhttp.Middleware(l, weirhttp.Options{
			Key: byName, OnError: func(_ *http.Request, err error) { told <- err },
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		done := make(chan struct{})
		go func() {
			defer close(done)
			get(h, func(r *http.Request) {
				gone, leave := context.WithCancel(r.Context())
				leave()
				*r = *r.WithContext(gone)
			})
		}()
		time.Sleep(59 * time.Minute)
		if left, _ := free(t, l); left != 0 || len(told) > 0 {
			t.Errorf("after 59 minutes: %d places left, told %d errors", left, len(told))
		}
		<-done
		if left, _ := free(t, l); left != 1 || len(told) > 0 {
			t.Errorf("once it is done: %d places left, told %d errors", left, len(told))
		}

		done = make(chan struct{})
		go func() {
			defer close(done)
			get(h)
		}()
		time.Sleep(time.Minute)
		store.down.Store(true)
		time.Sleep(time.Minute)
		store.down.Store(false)
		if left, _ := free(t, l); left != 1 {
			t.Errorf("after a minute without the store: %d places left", left)
		}
		<-done
		close(told)
		var last error
		for err := range told {
			last = err
		}
		if !errors.Is(last, weir.ErrUnknownID) {
			t.Errorf("told last: %v", last)
		}
	})
}

// fragile is a store that can be away.
type fragile struct {
	weir.Taker
	down atomic.Bool
}

func (f *fragile) Take(ctx context.Context, acts []*weir.Act) {
	if !f.down.Load() {
		f.Taker.Take(ctx, acts)
		return
	}
	for _, act := range acts {
		act.Err = weir.ErrNotApplied
	}
}
