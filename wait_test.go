package weir_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// arrivals lets callers wait for one unit each at the same time, and returns
// after how long they got it.
func arrivals(t *testing.T, l *weir.Limiter, callers int) []time.Duration {
	t.Helper()
	start := time.Now()
	var mu sync.Mutex
	var all []time.Duration
	var waiting sync.WaitGroup
	for range callers {
		waiting.Go(func() {
			if err := l.Wait(context.Background(), "k"); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Since(start))
		})
	}
	waiting.Wait()
	slices.Sort(all)
	return all
}

func TestWaitBooksTurns(t *testing.T) {
	t.Parallel()
	for _, limit := range of(1, time.Second, windows...) {
		if limit.Burst = 0; limit.Algorithm == weir.LeakyBucket {
			limit.Burst = 5
		}
		synctest.Test(t, func(t *testing.T) {
			for i, after := range arrivals(t, limiter(t, limit), 5) {
				if after != time.Duration(i)*time.Second {
					t.Errorf("%v: caller %d got in after %v", limit, i, after)
				}
			}
		})
	}
}

func TestWaitTriesAgainUnderWindows(t *testing.T) {
	t.Parallel()
	for _, limit := range of(2, time.Second, weir.GCRA, weir.TokenBucket, weir.LeakyBucket) {
		synctest.Test(t, func(t *testing.T) {
			all := arrivals(t, limiter(t, limit), 6)
			if all[1] != 0 || all[2] == 0 || all[5] < 2*time.Second || all[5] > 4*time.Second {
				t.Errorf("%v: callers got in after %v", limit, all)
			}
		})
	}
}

// TestWaitUnderSeveralLimits: the longest delay counts, booked or not.
func TestWaitUnderSeveralLimits(t *testing.T) {
	t.Parallel()
	slow := weir.Per(1, 10*time.Second)
	for _, fast := range of(1, time.Second) {
		synctest.Test(t, func(t *testing.T) {
			if all := arrivals(t, limiter(t, fast, slow), 3); all[1] != 10*time.Second || all[2] != 20*time.Second {
				t.Errorf("%v beside 1/10s: callers got in after %v", fast, all)
			}
		})
	}
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

// TestWaitGivesItsBookingBack: the next caller takes the turn of the one who
// left, but nobody who has a turn gets an earlier one.
func TestWaitGivesItsBookingBack(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			l := limiter(t, weir.Limit{Algorithm: algorithm, Count: 1, Period: 10 * time.Second})
			reserve := func() time.Duration {
				r, err := l.Reserve(ctx, "k", 1, weir.MaxWait)
				if err != nil || !r.OK() {
					t.Fatal(r, err)
				}
				return r.Delay()
			}
			reserve()
			impatient, cancel := context.WithTimeout(ctx, 12*time.Second)
			defer cancel()
			time.AfterFunc(4*time.Second, cancel)
			if err := l.Wait(impatient, "k"); err == nil {
				t.Fatal("did not wait")
			}
			if again := reserve(); again != 6*time.Second {
				t.Errorf("%v: the turn was not given back: %v", algorithm, again)
			}
			impatient, cancel = context.WithCancel(ctx)
			time.AfterFunc(time.Second, func() {
				if after := reserve(); after != 25*time.Second {
					t.Errorf("%v: the turn after: %v", algorithm, after)
				}
				cancel()
			})
			if err := l.Wait(impatient, "k"); err == nil {
				t.Fatal("did not wait")
			}
			if again := reserve(); again != 35*time.Second {
				t.Errorf("%v: a turn with one behind it was given away: %v", algorithm, again)
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
