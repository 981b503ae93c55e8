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

func TestFixed(t *testing.T) {
	t.Parallel()
	g := deadline.NewGroup(time.Hour)
	own := g.Context(t.Context())
	valued := context.WithValue(own, name{}, 1)
	cancelled, cancel := context.WithCancel(valued)
	defer cancel()
	for what, c := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"nothing ends it":       {context.Background(), true},
		"a group's":             {own, true},
		"with a value":          {valued, true},
		"within another":        {deadline.NewGroup(time.Minute).Context(valued), true},
		"a caller can end it":   {cancelled, false},
		"another's deadline":    {t.Context(), false},
		"without its end":       {context.WithoutCancel(cancelled), true},
		"a caller's, and again": {context.WithValue(cancelled, name{}, 2), false},
	} {
		if got := deadline.Fixed(c.ctx); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
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
