package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, weir.Limit{Count: 1, Period: time.Second, Burst: 2})
		for i, step := range []struct {
			sleep   time.Duration
			n       int64
			maxWait time.Duration
			ok      bool
			delay   time.Duration
		}{
			{0, 2, 0, true, 0},
			{0, 1, 0, false, weir.Never},
			{0, 1, 999 * time.Millisecond, false, weir.Never},
			{0, 1, time.Second, true, time.Second},
			{0, 2, 10 * time.Second, true, 3 * time.Second},
			{0, 3, weir.MaxWait, false, weir.Never},
			{2500 * time.Millisecond, 1, time.Second, false, weir.Never},
			{0, 1, 2 * time.Second, true, 1500 * time.Millisecond},
			{4 * time.Second, 1, 0, true, 0},
		} {
			time.Sleep(step.sleep)
			r, err := l.Reserve(context.Background(), "k", step.n, step.maxWait)
			if err != nil || r.OK() != step.ok || r.Delay() != step.delay {
				t.Fatalf("step %d: ok %v, delay %v, %v", i, r.OK(), r.Delay(), err)
			}
			if d := r.Decision(); d.Allowed() != step.ok || step.ok && d.Delay != step.delay {
				t.Errorf("step %d: %+v", i, d)
			}
			if !step.ok {
				if given, err := r.Cancel(context.Background()); given != 0 || err != nil {
					t.Errorf("step %d: gave %d back of nothing, %v", i, given, err)
				}
			}
		}
		if d, err := l.AllowN(context.Background(), "other", 2); err != nil || !d.Allowed() {
			t.Fatal(d, err)
		}
		r, err := l.Reserve(context.Background(), "other", 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		if left := r.Delay(); left != 300*time.Millisecond {
			t.Errorf("%v left of a delay of 1s", left)
		}
		if time.Sleep(time.Second); r.Delay() != 0 {
			t.Errorf("%v left of what is due", r.Delay())
		}
	})
}

func TestReserveRefuses(t *testing.T) {
	t.Parallel()
	l := limiter(t, of(5, time.Second, windows...)...)
	for _, wait := range []time.Duration{-1, weir.MaxWait + 1} {
		if r, err := l.Reserve(context.Background(), "k", 1, wait); !errors.Is(err, weir.ErrInvalid) || r != nil {
			t.Errorf("max wait %v: %v, %v", wait, r, err)
		}
	}
	for _, limit := range of(5, time.Second, weir.GCRA, weir.TokenBucket, weir.LeakyBucket) {
		l := limiter(t, limit)
		if _, err := l.Reserve(context.Background(), "k", 1, time.Second); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%v booked ahead: %v", limit, err)
		}
		if r, err := l.Reserve(context.Background(), "k", 1, 0); err != nil || !r.OK() {
			t.Errorf("%v, now: %v, %v", limit, r, err)
		}
	}
}

// TestReserveNowFromALeakyBucket: what would have to wait is refused, where Allow
// grants it with a delay.
func TestReserveNowFromALeakyBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, weir.Limit{Algorithm: weir.LeakyBucket, Count: 1, Period: time.Second, Burst: 9}, weir.PerDay(9))
		for i, wait := range []time.Duration{0, 0, 500 * time.Nanosecond, time.Second} {
			r, err := l.Reserve(context.Background(), "k", 1, wait)
			if err != nil || r.OK() != (i == 0 || i == 3) {
				t.Errorf("reservation %d: %+v, %v", i, r.Decision(), err)
			}
		}
		if d, err := l.Allow(context.Background(), "k"); err != nil || d.Delay != 2*time.Second {
			t.Errorf("the longest delay is not said: %+v, %v", d, err)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, several := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			limits := []weir.Limit{{Count: 10, Period: 10 * time.Second}}
			if several {
				limits = append(limits, weir.PerDay(1000))
			}
			l := limiter(t, limits...)
			reserve := func(n int64) *weir.Reservation {
				r, err := l.Reserve(ctx, "k", n, weir.MaxWait)
				if err != nil || !r.OK() {
					t.Fatal(r, err)
				}
				return r
			}
			cancel := func(r *weir.Reservation, want int64) {
				t.Helper()
				if given, err := r.Cancel(ctx); given != want || err != nil {
					t.Errorf("several %v: gave %d back, want %d, %v", several, given, want, err)
				}
			}
			now := reserve(4)
			time.Sleep(time.Second)
			cancel(now, 3)
			cancel(now, 0)
			reserve(10)
			first, last := reserve(5), reserve(2)
			cancel(first, 0)
			cancel(last, 2)
			if again := reserve(2); again.Delay() != last.Delay() {
				t.Errorf("several %v: due in %v, not in %v", several, again.Delay(), last.Delay())
			}
		})
	}
}

func TestCancelAgainAfterAnError(t *testing.T) {
	t.Parallel()
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			store := memstore.New(memstore.Options{Now: time.Now})
			down := false
			l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
				if down {
					acts[0].Err = fmt.Errorf("down: %w", class)
					return
				}
				store.Take(ctx, acts)
			}), weir.PerDay(10))
			r, err := l.Reserve(ctx, "k", 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			down = true
			if _, err := r.Cancel(ctx); !errors.Is(err, class) {
				t.Error(err)
			}
			down = false
			given, err := r.Cancel(ctx)
			if err != nil || (given == 4) != (class == weir.ErrNotApplied) {
				t.Errorf("%v: a second cancel gave %d back, %v", class, given, err)
			}
		})
	}
}

func TestRefund(t *testing.T) {
	t.Parallel()
	day := weir.Limit{Algorithm: weir.FixedWindow, Count: 10, Period: 24 * time.Hour}
	for _, limit := range of(10, time.Hour) {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			for _, limits := range [][]weir.Limit{{limit}, {day, limit}} {
				l := limiter(t, limits...)
				d, err := l.AllowN(ctx, "k", 6)
				if err != nil {
					t.Fatal(err)
				}
				if given, err := l.Refund(ctx, "k", d, 4); given != 4 || err != nil || remaining(t, l, "k") != 8 {
					t.Errorf("%v: gave %d back, %v", limits, given, err)
				}
				// The day still counts all of it, the hour nothing.
				time.Sleep(3 * time.Hour)
				if given, err := l.Refund(ctx, "k", d, 2); given != 0 || err != nil {
					t.Errorf("%v: gave %d back of what counts no more, %v", limits, given, err)
				}
			}
		})
	}
}

func TestRefundRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := limiter(t, weir.PerDay(5))
	granted, _ := l.AllowN(ctx, "k", 3)
	refused, _ := l.AllowN(ctx, "k", 3)
	for name, c := range map[string]struct {
		d weir.Decision
		n int64
	}{"more than granted": {granted, 4}, "less than nothing": {granted, -1}, "refused": {refused, 1}, "no decision": {weir.Decision{}, 0}} {
		if given, err := l.Refund(ctx, "k", c.d, c.n); given != 0 || !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%s: %d, %v", name, given, err)
		}
	}
	if left := remaining(t, l, "k"); left != 2 {
		t.Errorf("%d remain", left)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := limiter(t, of(5, time.Hour)...)
	for _, key := range []string{"k", "other"} {
		if d, err := l.AllowN(ctx, key, 5); err != nil || !d.Allowed() {
			t.Fatal(d, err)
		}
	}
	if err := l.Reset(ctx, "k"); err != nil || remaining(t, l, "k") != 5 || remaining(t, l, "other") != 0 {
		t.Error(err, remaining(t, l, "k"), remaining(t, l, "other"))
	}
	if err := limiterOver(t, failing{weir.ErrBackend}, weir.PerDay(5)).Reset(ctx, "k"); !errors.Is(err, weir.ErrBackend) {
		t.Error(err)
	}
}

// TestAllowOnceBelongsToTheKey: a repeat after a change of the limits gets the first answer;
// another limiter, key or class has the ID to itself.
func TestAllowOnceBelongsToTheKey(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	shares, err := weir.Shares{Limit: weir.PerDay(100), Guarantees: map[string]int64{"a": 20}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	day, hour := weir.Limit{Name: "day", Count: 10, Period: 24 * time.Hour}, weir.Limit{Name: "hour", Count: 10, Period: time.Hour}
	once := func(l *weir.Limiter, key string, n int64) {
		t.Helper()
		if d, err := l.AllowOnce(context.Background(), key, n, "order"); err != nil || !d.Allowed() {
			t.Errorf("%+v, %v", d, err)
		}
	}
	before, after := limiterOf(t, store, "api", day), limiterOf(t, store, "api", hour, day)
	once(before, "k", 6)
	once(after, "k", 6)
	if _, err := after.AllowOnce(context.Background(), "k", 5, "order"); !errors.Is(err, weir.ErrIDReused) {
		t.Error(err)
	}
	once(after, "other", 1)
	once(limiterOf(t, store, "other", day), "k", 5)
	once(shares.Limiter(store, "api", "a"), "k", 3)
	once(shares.Limiter(store, "api", "b"), "k", 4)
	for l, want := range map[*weir.Limiter]int64{before: 4, limiterOf(t, store, "api", hour): 10, shares.Limiter(store, "api", "b"): 100 - 7 - shares.Keep()} {
		if n := remaining(t, l, "k"); n != want {
			t.Errorf("%d remain, want %d", n, want)
		}
	}
}

func TestAllowOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := limiter(t, weir.PerDay(10), weir.Limit{Algorithm: weir.SlidingLog, Count: 10, Period: time.Hour})
	for range 3 {
		if d, err := l.AllowOnce(ctx, "k", 6, "order 1"); err != nil || !d.Allowed() || d.Remaining != 4 {
			t.Errorf("granted: %+v, %v", d, err)
		}
		if d, err := l.AllowOnce(ctx, "k", 6, "order 2"); err != nil || d.Allowed() {
			t.Errorf("refused: %+v, %v", d, err)
		}
	}
	if _, err := l.AllowOnce(ctx, "k", 5, "order 1"); !errors.Is(err, weir.ErrIDReused) {
		t.Error(err)
	}
	if _, err := l.AllowOnce(ctx, "k", 5, ""); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	if left := remaining(t, l, "k"); left != 4 {
		t.Errorf("%d remain", left)
	}
}
