package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
)

// hold holds an estimate for an hour, which has to be granted.
func hold(t testing.TB, l *weir.Limiter, estimate int64) *weir.Hold {
	t.Helper()
	h, err := l.Hold(context.Background(), "k", estimate, time.Hour)
	if err != nil || !h.OK() || !h.Decision().Allowed() {
		t.Fatalf("hold: %+v, %v", h, err)
	}
	return h
}

// TestKeptEnds: an end that a layer will deliver is no error, unless it has numbers.
func TestKeptEnds(t *testing.T) {
	t.Parallel()
	store, calls := memstore.New(memstore.Options{}), 0
	l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
		if calls++; all[0].Kind == acts.KindTake {
			store.Take(ctx, all)
		} else {
			all[0].Err = &acts.KeptError{Kind: all[0].Kind, Reason: weir.ErrNotApplied}
		}
	}), weir.PerDay(100))
	ctx := t.Context()
	free, spent := hold(t, l, 10), hold(t, l, 10)
	reserved, err := l.Reserve(ctx, "k", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := free.Release(ctx); err != nil || calls != 4 {
			t.Errorf("released: %v, %d calls", err, calls)
		}
	}
	if _, err := spent.Settle(ctx, 5); !errors.Is(err, weir.ErrAmbiguous) || errors.Is(err, weir.ErrNotApplied) {
		t.Errorf("settled: %v", err)
	}
	if n, err := reserved.Cancel(ctx); n != 0 || err != nil {
		t.Errorf("cancelled: %d, %v", n, err)
	}
	if n, err := l.Refund(ctx, "k", reserved.Decision(), 1); n != 0 || err != nil {
		t.Errorf("refunded: %d, %v", n, err)
	}
}

// TestReleaseAfterAFailedSettle: a deferred Release must not give back what was
// spent, but may be repeated where it failed itself.
func TestReleaseAfterAFailedSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := memstore.New(memstore.Options{Now: time.Now})
		var failure error
		l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
			if acts[0].Err = failure; failure == nil {
				store.Take(ctx, acts)
			}
		}), weir.PerDay(100))
		spent, free, odd := hold(t, l, 50), hold(t, l, 10), hold(t, l, 10)
		failure = weir.ErrNotApplied
		if _, err := spent.Settle(ctx, 40); !errors.Is(err, failure) {
			t.Error(err)
		}
		if err := free.Release(ctx); !errors.Is(err, failure) {
			t.Error(err)
		}
		failure = nil
		if _, err := odd.Settle(ctx, -1); !errors.Is(err, weir.ErrInvalid) {
			t.Error(err)
		}
		for _, h := range []*weir.Hold{spent, free, odd} {
			if err := h.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		if left := remaining(t, l, "k"); left != 50 {
			t.Errorf("%d remain of 100, with 50 held", left)
		}
		if d, err := spent.Settle(ctx, 40); err != nil || d.Remaining != 60 {
			t.Errorf("settled again: %+v, %v", d, err)
		}
	})
}

func TestHoldRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := limiter(t, weir.PerDay(10), weir.PerHour(100))
	h, err := l.Hold(ctx, "k", 11, time.Minute)
	if err != nil || h.OK() || h.Decision().RetryAfter != weir.Never {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := h.Release(ctx); err != nil {
		t.Error(err)
	}
	if _, err := h.Settle(ctx, 5); !errors.Is(err, weir.ErrUnknownID) {
		t.Error(err)
	}
	if err := h.Renew(ctx, time.Minute); !errors.Is(err, weir.ErrUnknownID) {
		t.Error(err)
	}
	if left := remaining(t, l, "k"); left != 10 {
		t.Errorf("%d remain", left)
	}
	for _, d := range []time.Duration{-1, weir.MaxWait + time.Millisecond, time.Nanosecond} {
		if h, err := l.Hold(ctx, "k", 1, d); h != nil || !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("held for %v: %v", d, err)
		}
	}
}

// TestHoldUnitsInAPlace holds tokens and a place together.
func TestHoldUnitsInAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := limiter(t, weir.PerDay(1000), weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Minute})
		for _, end := range []func(*weir.Hold) error{
			func(h *weir.Hold) error { _, err := h.Settle(ctx, 50); return err },
			func(h *weir.Hold) error { return h.Release(ctx) },
		} {
			h := hold(t, l, 400)
			if other, err := l.Hold(ctx, "k", 1, 0); err != nil || other.OK() {
				t.Errorf("two in one place: %v", err)
			}
			if err := h.Renew(ctx, 0); err != nil {
				t.Error(err)
			}
			if err := end(h); err != nil {
				t.Error(err)
			}
		}
		last := hold(t, l, 950)
		if last.Decision().Granted > 950 {
			t.Errorf("%+v", last.Decision())
		}
		if err := last.Renew(ctx, 2*time.Hour); err != nil {
			t.Error(err)
		}
		time.Sleep(90 * time.Minute)
		if err := last.Renew(ctx, 0); err != nil {
			t.Errorf("a lease was renewed for two hours, and ended after one: %v", err)
		}
	})
}

// TestCallerLeaves: Release, Settle, Renew and Cancel are carried out although their caller's
// context has ended before. Their own context ends a second later.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ctx context.Context, l *weir.Limiter) error{
		"release": func(ctx context.Context, l *weir.Limiter) error {
			h, _ := l.Hold(context.Background(), "k", 4, 0)
			return h.Release(ctx)
		},
		"settle": func(ctx context.Context, l *weir.Limiter) error {
			h, _ := l.Hold(context.Background(), "k", 4, 0)
			_, err := h.Settle(ctx, 0)
			return err
		},
		"renew": func(ctx context.Context, l *weir.Limiter) error {
			h, _ := l.Hold(context.Background(), "k", 4, 0)
			if err := h.Renew(ctx, time.Hour); err != nil {
				return err
			}
			return h.Release(ctx)
		},
		"cancel": func(ctx context.Context, l *weir.Limiter) error {
			r, _ := l.Reserve(context.Background(), "k", 4, 0)
			_, err := r.Cancel(ctx)
			return err
		},
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, end := range ends {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{Now: time.Now})
			l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
				if store.Take(ctx, all); all[0].Kind == acts.KindTake {
					return
				}
				begun := time.Now()
				if <-ctx.Done(); time.Since(begun) != time.Second {
					t.Errorf("%s: a store that hangs is left after %v, want a second", name, time.Since(begun))
				}
			}), weir.PerDay(4))
			if err := end(left, l); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestCallerLeavesPatientStore: a store that waits for a second at most gets a context that never
// ends, and other stores get one that ends a second after the caller's.
func TestCallerLeavesPatientStore(t *testing.T) {
	t.Parallel()
	type key struct{}
	for patience, ends := range map[time.Duration]bool{0: false, time.Second: false, time.Second + 1: true} {
		store := &patientStore{memstore.New(memstore.Options{}), patience, nil}
		h, err := limiterOver(t, store, weir.PerDay(4)).Hold(t.Context(), "k", 4, 0)
		if err != nil {
			t.Fatal(err)
		}
		left, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		leave()
		if _, err := h.Settle(left, 1); err != nil || store.last.Value(key{}) != "value" || (store.last.Done() != nil) != ends {
			t.Errorf("patience of %v: %v, in %v", patience, err, store.last)
		}
	}
}

// A patientStore keeps the context of its last call.
type patientStore struct {
	weir.Taker
	patience time.Duration
	last     context.Context
}

func (s *patientStore) Patience() time.Duration { return s.patience }

func (s *patientStore) Take(ctx context.Context, all []*weir.Act) {
	s.last = ctx
	s.Taker.Take(ctx, all)
}

// TestSlotsAreHeld: the calls that cannot release a slot say how to take one.
func TestSlotsAreHeld(t *testing.T) {
	t.Parallel()
	l := limiter(t, weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Hour})
	_, allowed := l.Allow(t.Context(), "k")
	_, upTo := l.AllowUpTo(t.Context(), "k", 2)
	_, reserved := l.Reserve(t.Context(), "k", 1, 0)
	for i, err := range []error{allowed, upTo, reserved, l.Wait(t.Context(), "k")} {
		if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), "use Hold") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 2 {
		t.Errorf("a peek: %v, %v", d, err)
	}
}

// TestHoldOfNothing: a hold of 0 with alternatives is settled on the one that its answer names,
// which is the one with most room.
func TestHoldOfNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store weir.Taker) {
		small, large := limiterOf(t, store, "small", weir.PerDay(10)), limiterOf(t, store, "large", weir.PerDay(20))
		for key, c := range map[string]struct {
			used        int64 // of the larger one
			alternative uint8
		}{"mostly free": {5, 2}, "mostly used": {15, 1}, "equal": {10, 1}} {
			if _, err := large.AllowN(t.Context(), key, c.used); err != nil {
				t.Fatal(err)
			}
			either, err := small.Otherwise(large)
			if err != nil {
				t.Fatal(err)
			}
			h, err := either.Hold(t.Context(), key, 0, time.Minute)
			if err != nil || !h.OK() || h.Decision().Alternative != c.alternative {
				t.Errorf("%s: %v of alternative %d, %v", key, h.Decision(), h.Decision().Alternative, err)
			}
			if _, err := h.Settle(t.Context(), 6); err != nil {
				t.Error(err)
			}
			for i, want := range []int64{0, c.used} {
				if i+1 == int(c.alternative) {
					want += 6
				}
				l := []*weir.Limiter{small, large}[i]
				d, err := l.Peek(t.Context(), key)
				if used := d.Limit.Count - d.Remaining; err != nil || used != want {
					t.Errorf("%s: alternative %d is charged %d, want %d: %v", key, i+1, used, want, err)
				}
			}
		}
	})
}
