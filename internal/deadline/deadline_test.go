package deadline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/deadline"
)

type name struct{}

func TestContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := deadline.NewGroup(time.Second)
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "caller"))
		first := g.Context(parent)
		time.Sleep(50 * time.Millisecond)
		second := g.Context(parent)
		time.Sleep(20 * time.Millisecond)
		third := g.Context(parent)
		if first.Done() != second.Done() || second.Done() == third.Done() {
			t.Error("want the first two to end together, and the third by itself")
		}
		if first.Value(name{}) != "caller" || first.Value("other") != nil {
			t.Errorf("values: got %v and %v", first.Value(name{}), first.Value("other"))
		}
		cancel()
		if err := first.Err(); err != nil {
			t.Errorf("its caller's end: got %v", err)
		}
		for ctx, want := range map[context.Context]time.Duration{first: 930 * time.Millisecond, third: time.Second} {
			end, _ := ctx.Deadline()
			if got := time.Until(end); got != want {
				t.Errorf("got %v left, want %v", got, want)
			}
		}
		<-second.Done()
		if got := context.Cause(second); !errors.Is(got, context.DeadlineExceeded) || !errors.Is(second.Err(), context.DeadlineExceeded) {
			t.Errorf("got %v, %v", got, second.Err())
		}
		if third.Err() != nil {
			t.Error("the third ended with the others")
		}
	})
}

// TestDerived: what is derived ends with its parent, and no goroutine waits for that.
func TestDerived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := deadline.NewGroup(time.Second)
		child, cancel := context.WithCancel(g.Context(t.Context()))
		defer cancel()
		later, stop := context.WithTimeout(g.Context(t.Context()), time.Hour)
		defer stop()
		start := time.Now()
		<-child.Done()
		<-later.Done()
		if got := time.Since(start); got != time.Second {
			t.Errorf("ended after %v", got)
		}
		// A goroutine that waited would keep the bubble from ending.
	})
}

// TestBound: a context ends with its caller or its group, whichever is first, and so do
// those derived from it; the two can be told apart.
func TestBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			caller time.Duration
			ended  time.Duration
			want   error
			ours   bool
		}{
			"nobody can end it":      {0, time.Second, context.DeadlineExceeded, true},
			"the caller leaves":      {100 * time.Millisecond, 100 * time.Millisecond, context.Canceled, false},
			"the caller leaves late": {2 * time.Second, time.Second, context.DeadlineExceeded, true},
		} {
			caller, cancel := context.WithValue(context.Background(), name{}, "caller"), func() {}
			if c.caller > 0 {
				caller, cancel = context.WithCancel(caller)
				time.AfterFunc(c.caller, cancel)
			}
			start := time.Now()
			ctx := deadline.NewPatience(time.Second).Bound(caller)
			shared, alone := deadline.Apart(ctx)
			child, stop := context.WithCancel(ctx)
			if end, _ := ctx.Deadline(); end.Sub(start) != time.Second || ctx.Value(name{}) != "caller" || ctx.Err() != nil {
				t.Errorf("%s: ends in %v, %v", what, end.Sub(start), ctx.Err())
			}
			if shared == nil || shared.Done() == ctx.Done() == (c.caller > 0) || (alone != nil) != (c.caller > 0) {
				t.Errorf("%s: apart %v, %v", what, shared, alone)
			}
			<-ctx.Done()
			<-child.Done()
			if got := time.Since(start); got != c.ended || !errors.Is(ctx.Err(), c.want) || deadline.Ours(ctx) != c.ours {
				t.Errorf("%s: ended after %v, %v, by us: %v", what, got, ctx.Err(), deadline.Ours(ctx))
			}
			<-shared.Done()
			stop()
			cancel()
			time.Sleep(c.caller)
		}
	})
}

// TestManyAtOnce has many ask when a new end is due.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const after = 16 * time.Millisecond
	g := deadline.NewGroup(after)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 2000 {
				before := time.Now()
				end, _ := g.Context(t.Context()).Deadline()
				if end.Before(before.Add(after-after/8)) || end.After(time.Now().Add(after)) {
					t.Errorf("ends %v after it began", end.Sub(before))
				}
			}
		})
	}
	callers.Wait()
}

func BenchmarkContext(b *testing.B) {
	ctx := context.Background()
	b.Run("group", func(b *testing.B) {
		g := deadline.NewGroup(time.Second)
		b.ReportAllocs()
		for b.Loop() {
			_ = g.Context(ctx).Done()
		}
	})
	b.Run("timer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			_ = ctx.Done()
			cancel()
		}
	})
}
