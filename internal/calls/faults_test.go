package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestCancelledBeforeAllElse(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := newRoad(memengine.New(memengine.Options{}), Options{})
	a := act("k", 1)
	r.Take(ctx, []*weir.Act{a})
	if !errors.Is(a.Err, weir.ErrNotApplied) || !errors.Is(a.Err, context.Canceled) || len(r.gate.calls()) != 0 {
		t.Errorf("%v, calls of the store %v", a.Err, r.gate.calls())
	}
}

// TestCancelledWhileWaiting cancels the middle one of three calls.
func TestCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{})
	open := r.block()
	ctx, cancel := context.WithCancel(context.Background())
	acts := []*weir.Act{act("k", 1), act("k", 10), act("k", 1)}
	var callers sync.WaitGroup
	quit := make(chan struct{})
	for i, a := range acts {
		callers.Go(func() {
			if i == 1 {
				defer close(quit)
				r.Take(ctx, []*weir.Act{a, act("k", 10)})
				return
			}
			r.Take(t.Context(), []*weir.Act{a})
		})
		r.until([]int64{1, 3, 4}[i])
	}
	cancel()
	<-quit // while the lane is still blocked
	if a := acts[1]; !errors.Is(a.Err, weir.ErrNotApplied) || errors.Is(a.Err, weir.ErrAmbiguous) || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("the cancelled call: %v", a.Err)
	}
	open()
	callers.Wait()
	if acts[0].Decisions[0].Remaining != 99 || acts[2].Decisions[0].Remaining != 98 {
		t.Errorf("its neighbours: %+v, %+v", acts[0], acts[2])
	}
	if s := r.Stats(); s.Withdrawn != 2 || s.Abandoned != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestAllCancelledWhileWaiting leaves a batch without acts behind.
func TestAllCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{})
	open := r.block()
	ctx, cancel := context.WithCancel(context.Background())
	var caller sync.WaitGroup
	caller.Go(func() { r.Take(ctx, []*weir.Act{act("k", 1)}) })
	r.until(1)
	cancel()
	caller.Wait()
	open()
	a := act("k", 1)
	if r.Take(context.Background(), []*weir.Act{a}); a.Decisions[0].Remaining != 99 {
		t.Errorf("afterwards: %+v, %v", a.Decisions, a.Err)
	}
	if calls := r.gate.calls(); len(calls) != 1 {
		t.Errorf("calls of the store: %v", calls)
	}
}

// TestCallersWithOneEnd has several callers wait in one batch for the same end, and others
// join the batch once they have left.
func TestCallersWithOneEnd(t *testing.T) {
	t.Parallel()
	later := deadline.NewPatience(time.Hour)
	cancelled := func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }
	for name, tc := range map[string]struct {
		context func(context.Context) (ctx context.Context, end func()) // end is nil if it ends by itself
		want    error
	}{
		"their caller's": {cancelled, context.Canceled},
		"their caller's before a timeout": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := cancelled(ctx)
			return later.Bound(ctx), cancel
		}, context.Canceled},
		"a timeout": {func(context.Context) (context.Context, func()) {
			return deadline.NewPatience(50 * time.Millisecond).Bound(context.Background()), nil
		}, context.DeadlineExceeded},
		"a timeout before their caller's": {func(ctx context.Context) (context.Context, func()) {
			return deadline.NewPatience(50 * time.Millisecond).Bound(ctx), nil
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoad(memengine.New(memengine.Options{}), Options{})
			open := r.block()
			var callers sync.WaitGroup
			join := func(ctx context.Context) (acts []*weir.Act) {
				for range 3 {
					a := act("k", 1)
					acts = append(acts, a)
					callers.Go(func() { r.Take(ctx, []*weir.Act{a}) })
				}
				return acts
			}
			ctx, end := tc.context(t.Context())
			quitters := join(ctx)
			if end != nil {
				r.until(3)
				end()
			}
			callers.Wait() // while the lane is still blocked
			for _, a := range quitters {
				if !errors.Is(a.Err, weir.ErrNotApplied) || !errors.Is(a.Err, tc.want) {
					t.Errorf("one who left: %v", a.Err)
				}
			}
			stayers := join(later.Bound(t.Context()))
			r.until(3)
			open()
			callers.Wait()
			for _, a := range stayers {
				if !a.Allowed() {
					t.Errorf("one who came later: %+v, %v", a.Decisions, a.Err)
				}
			}
		})
	}
}

// TestCancelledUnderWay cancels a call whose batch is in the store, and reuses
// its memory while it is.
func TestCancelledUnderWay(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{})
	entered, resume := make(chan struct{}), make(chan struct{})
	r.gate.onTake = func(acts []*weir.Act) {
		if len(acts) == 2 {
			close(entered)
			<-resume
		}
	}
	open := r.block()
	ctx, cancel := context.WithCancel(context.Background())
	quitter, stayer := act("k", 10), act("k", 1)
	var callers, quitting sync.WaitGroup
	quitting.Go(func() { r.Take(ctx, []*weir.Act{quitter}) })
	r.until(1)
	callers.Go(func() { r.Take(t.Context(), []*weir.Act{stayer}) })
	r.until(2)
	open()
	<-entered
	cancel()
	quitting.Wait()
	if err := quitter.Err; !errors.Is(err, weir.ErrAmbiguous) || errors.Is(err, weir.ErrNotApplied) || !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call: %v", err)
	}
	*quitter = weir.Act{} // its caller's again
	close(resume)
	callers.Wait()
	if stayer.Decisions[0].Remaining != 89 {
		t.Errorf("who stayed: %+v, %v; the other was charged once", stayer.Decisions, stayer.Err)
	}
	if quitter.Decisions != nil || quitter.Err != nil || r.Stats().Abandoned != 1 {
		t.Errorf("the memory of who has gone was written to: %+v, %+v", quitter, r.Stats())
	}
}

// TestBatchHasADeadline blocks the store until a batch's own deadline.
func TestBatchHasADeadline(t *testing.T) {
	t.Parallel()
	slow := acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
		if acts[0].Charges[0].Key != gateKey {
			<-ctx.Done()
		}
		for _, a := range acts {
			a.Err = fmt.Errorf("%w: %w", weir.ErrAmbiguous, ctx.Err())
		}
	})
	r := newRoad(slow, Options{Timeout: 20 * time.Millisecond})
	a := act("k", 1)
	r.jam(context.Background(), []*weir.Act{a})
	if !errors.Is(a.Err, weir.ErrAmbiguous) || !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("%v", a.Err)
	}
}

// TestStoreThatDoesNotReturn has a store that panics or ends its goroutine, for a
// lone call and for a batch. The lane goes on.
func TestStoreThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("broken") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoad(memengine.New(memengine.Options{}), Options{})
			r.gate.next = acts.TakerFunc(func(_ context.Context, acts []*weir.Act) {
				if acts[0].Charges[0].Key == "bad" {
					end()
				}
			})
			take := func(a *weir.Act) (caught any) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { caught = recover() }()
					r.Take(context.Background(), []*weir.Act{a})
				}()
				<-done
				return caught
			}
			want := any(nil)
			if name == "panic" {
				want = "broken"
			}
			for range 3 {
				if got := take(act("bad", 1)); got != want {
					t.Errorf("a lone call: %v", got)
				}
			}
			open := r.block()
			a, b := act("bad", 1), act("good", 1)
			var callers sync.WaitGroup
			callers.Go(func() {
				if got := take(a); got != want {
					t.Errorf("a call in a batch: %v", got)
				}
			})
			r.until(1)
			callers.Go(func() { _ = take(b) })
			r.until(2)
			open()
			callers.Wait()
			for _, a := range []*weir.Act{a, b} {
				if !errors.Is(a.Err, weir.ErrAmbiguous) {
					t.Errorf("in the batch: %v", a.Err)
				}
			}
			if c := act("good", 1); take(c) != nil || c.Err != nil {
				t.Errorf("afterwards: %v", c.Err)
			}
		})
	}
}

// A ledger is what callers were told about one key.
type ledger struct{ granted, refused, unknown, untouched atomic.Int64 }

func (l *ledger) note(a *weir.Act) {
	cost := a.Charges[0].Cost
	switch {
	case a.Err == nil && a.Allowed():
		l.granted.Add(cost)
	case a.Err == nil:
		l.refused.Add(1)
	case errors.Is(a.Err, weir.ErrNotApplied):
		l.untouched.Add(1)
	default:
		l.unknown.Add(cost)
	}
}

// check compares the ledger with what the store says was used.
func (l *ledger) check(t *testing.T, used int64) {
	t.Helper()
	if granted, most := l.granted.Load(), l.granted.Load()+l.unknown.Load(); used < granted || used > most {
		t.Errorf("the store counts %d, callers were granted %d and perhaps %d more", used, granted, most-granted)
	}
}

var everlasting = weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 1_000_000, Period: 96 * time.Hour}.MustCompile()

func used(t *testing.T, store weir.Taker, key string) int64 {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, Limit: everlasting})
	if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	return everlasting.Count - a.Decisions[0].Remaining
}

// TestImpatientCallers has many callers who give up at any moment, over a store
// that takes its time.
func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	memory := memengine.New(memengine.Options{})
	slow := acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
		for range rand.IntN(50) {
			runtime.Gosched()
		}
		memory.Take(ctx, acts)
	})
	c := New(spread{storetest.Alone{Taker: slow}, 3}, Options{MaxBatch: 8, Silence: time.Hour})
	t.Cleanup(func() { _ = c.Stop(over) })
	books := make([]ledger, 5)
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(400))*time.Microsecond)
				impatient(ctx, c, books)
				cancel()
			}
		})
	}
	callers.Wait()
	drained(c)
	for i := range books {
		books[i].check(t, used(t, memory, fmt.Sprint("key ", i)))
	}
	if s := c.Stats(); s.Withdrawn == 0 || s.Abandoned == 0 || s.Largest < 2 {
		t.Errorf("%+v: not everything happened", s)
	}
}

// impatient takes one to three keys, and notes what it is told.
func impatient(ctx context.Context, c weir.Taker, books []ledger) {
	var acts []*weir.Act
	for _, k := range rand.Perm(len(books))[:1+rand.IntN(3)] {
		acts = append(acts, storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", k), Limit: everlasting, Cost: 1 + int64(k)}))
	}
	c.Take(ctx, acts)
	for _, a := range acts {
		books[a.Charges[0].Cost-1].note(a)
	}
}

// drained waits until nothing is under way in any lane: whatever is asked there
// comes after it.
func drained(c *Lanes) {
	for i := range 64 {
		c.Take(context.Background(), []*weir.Act{storetest.NewAct(weir.Charge{Key: fmt.Sprint("drain ", i), Limit: everlasting})})
	}
}

// TestGrantsExactly has two processes' worth of callers share a key.
func TestGrantsExactly(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	limit := weir.Per(1000, 24*time.Hour).MustCompile()
	var granted atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
		t.Cleanup(func() { _ = client.Close() })
		store, err := redisengine.New(client, redisengine.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		c := New(store, Options{Timeout: time.Minute, Silence: time.Hour})
		t.Cleanup(func() { _ = c.Stop(over) })
		for range 32 {
			callers.Go(func() {
				for range 150 {
					a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
					if c.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
						t.Error(a.Err)
					} else if a.Allowed() {
						granted.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	if granted.Load() != 1000 {
		t.Errorf("%d granted, want 1000", granted.Load())
	}
}
