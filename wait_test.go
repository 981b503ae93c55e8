package weir_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/memstore"
)

// limiter returns a Limiter over a new memory store at the time of the test's
// bubble, or of the machine outside of one.
func limiter(t testing.TB, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	return limiterOver(t, memstore.New(memstore.Options{Now: time.Now}), limits...)
}

func limiterOver(t testing.TB, taker weir.Taker, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	return limiterOf(t, taker, "test", limits...)
}

// limiterOf returns the limiter of a name.
func limiterOf(t testing.TB, taker weir.Taker, name string, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(taker, name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// remaining looks, which has to be allowed.
func remaining(t testing.TB, l *weir.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), key)
	if err != nil || !d.Allowed() {
		t.Fatalf("look: %+v, %v", d, err)
	}
	return d.Remaining
}

// needed is the wait that an error of Wait carries.
func needed(t testing.TB, err error) time.Duration {
	t.Helper()
	late, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err)
	if !ok {
		t.Fatalf("error %v carries no wait", err)
	}
	return late.RetryAfter()
}

// of are limits of all algorithms with units, but for some.
func of(count int64, period time.Duration, except ...weir.Algorithm) []weir.Limit {
	var all []weir.Limit
	for id := range algo.Steps {
		l := weir.Per(count, period)
		l.Algorithm = weir.Algorithm(id)
		if l.Algorithm != weir.Concurrency && !slices.Contains(except, l.Algorithm) {
			all = append(all, l)
		}
	}
	return all
}

var windows = []weir.Algorithm{weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.SlidingCounter}

// TestWaitAsksSeldom: between two calls of the store, WaitN pauses as long as the last refusal
// says, and the longest wait of several limits is the one that it needs.
func TestWaitAsksSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		store := memstore.New(memstore.Options{Now: time.Now})
		l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
			asked++
			store.Take(ctx, all)
		}), weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: time.Minute}, weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: time.Second})
		for range 2 {
			if err := l.WaitN(context.Background(), "k", 1); err != nil {
				t.Fatal(err)
			}
		}
		if asked > 4 {
			t.Errorf("the store was asked %d times", asked)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if left := needed(t, l.WaitN(ctx, "k", 1)); left < 50*time.Second {
			t.Errorf("needs %v", left)
		}
	})
}

func TestWaitFailsAtOnce(t *testing.T) {
	t.Parallel()
	for _, limit := range of(2, time.Minute) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, limit)
			if err := l.WaitN(context.Background(), "k", 2); err != nil {
				t.Fatal(err)
			}
			plain, err := l.AllowN(context.Background(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			want := plain.RetryAfter
			if limit.Algorithm == weir.LeakyBucket {
				want = time.Minute
			}
			ctx, cancel := context.WithTimeout(context.Background(), want-time.Millisecond)
			defer cancel()
			start := time.Now()
			err = l.Wait(ctx, "k")
			if need := needed(t, err); need != want || time.Since(start) != 0 {
				t.Errorf("%v: needs %v after %v, want %v at once", limit, need, time.Since(start), want)
			}
			// What the failed wait had charged would make this one wait longer.
			ctx, cancel = context.WithTimeout(context.Background(), want+time.Millisecond)
			defer cancel()
			if err := l.Wait(ctx, "k"); err != nil || time.Since(start) != want {
				t.Errorf("%v: %v after %v", limit, err, time.Since(start))
			}
		})
	}
}

func TestWaitForWhatNeverFits(t *testing.T) {
	t.Parallel()
	for _, limit := range append(of(2, time.Second), weir.PerSecond(0)) {
		l := limiter(t, limit)
		if need := needed(t, l.WaitN(context.Background(), "k", 3)); need != weir.Never {
			t.Errorf("%v: needs %v", limit, need)
		}
	}
	month := weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: 90 * 24 * time.Hour}
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, month)
		if err := l.Wait(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
		if need := needed(t, l.Wait(context.Background(), "k")); need <= weir.MaxWait {
			t.Errorf("needs %v", need)
		}
	})
	places := weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Minute}
	if err := limiter(t, places).Wait(context.Background(), "k"); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a place: %v", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, limit := range of(1, time.Minute) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, limit)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(20*time.Millisecond, cancel)
			if err := l.Wait(ctx, "k"); err != nil {
				t.Fatal(err)
			}
			if err := l.Wait(ctx, "k"); err != context.Canceled {
				t.Errorf("%v: cancelled while it slept: %v", limit, err)
			}
			if err := l.Wait(ctx, "fresh"); err != context.Canceled || remaining(t, l, "fresh") != 1 {
				t.Errorf("%v: cancelled before: %v", limit, err)
			}
		})
	}
}

// TestWaitUndoesWithAContextOfItsOwn watches the refund of a wait whose context
// has ended.
func TestWaitUndoesWithAContextOfItsOwn(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{Now: time.Now})
		refunds := 0
		l := limiterOver(t, acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
			if all[0].Kind != acts.KindRefund {
				store.Take(ctx, all)
				return
			}
			refunds++
			begun := time.Now()
			if <-ctx.Done(); time.Since(begun) != time.Second {
				t.Errorf("a refund ends after %v, want a second", time.Since(begun))
			}
			all[0].Err = down
		}), weir.PerMinute(1))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if err := l.Wait(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, down) || refunds != 1 {
			t.Errorf("%v, %d refunds", err, refunds)
		}
	})
}

// TestWaitDoesNotSpin asks a Taker that refuses and names no wait.
func TestWaitDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := limiterOver(t, acts.TakerFunc(func(_ context.Context, acts []*weir.Act) {
			asked++
			acts[0].Decisions[0] = weir.Decision{Outcome: weir.Refused}
		}), weir.PerMinute(1))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || asked > 1001 {
			t.Errorf("%v after %d questions", err, asked)
		}
		l = limiterOver(t, failing{errors.New("down")}, weir.PerMinute(1))
		if err := l.Wait(context.Background(), "k"); err == nil {
			t.Error("a Taker that is down let it in")
		}
	})
}
