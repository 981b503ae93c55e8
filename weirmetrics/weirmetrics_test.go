package weirmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirmetrics"
)

// seen notes each answer as text.
type seen struct {
	mu  sync.Mutex
	all []string
}

func (s *seen) Observe(a weirmetrics.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Err != nil {
		s.all = append(s.all, fmt.Sprintf("%s: %v after %v", a.Limiter, errors.Is(a.Err, weir.ErrAmbiguous), a.Took))
		return
	}
	s.all = append(s.all, fmt.Sprintf("%s: %v by %v, %d of %v", a.Limiter, a.Decision.Outcome, a.Decision.Source, a.Decision.Granted, a.Decision.Limit.Count))
}

func (s *seen) expect(t *testing.T, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(s.all, want) {
		t.Errorf("%q\nwant %q", s.all, want)
	}
	s.all = nil
}

func limiter(t *testing.T, store weir.Taker, name string, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(store, name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	var got seen
	store := weirmetrics.Wrap(memstore.New(memstore.Options{}), &got)
	one := limiter(t, store, "one", weir.PerHour(2))
	named := limiter(t, store, "two", weir.Limit{Name: "day", Count: 5, Period: time.Hour}, weir.PerHour(9))

	for range 3 {
		_, _ = one.Allow(t.Context(), "a:b")
	}
	got.expect(t, "one: granted by store, 1 of 2", "one: granted by store, 1 of 2", "one: refused by store, 0 of 2")
	_, _ = named.AllowN(t.Context(), "k", 5)
	got.expect(t, "two#day: granted by store, 5 of 5", "two#1: granted by store, 5 of 9")
	_, _ = weir.Together(one.Cost("a:b", 1), named.Cost("j", 1)).Allow(t.Context())
	got.expect(t, "one: refused by store, 0 of 2", "two#day: not_charged by store, 0 of 5", "two#1: not_charged by store, 0 of 9")

	// What charges nothing, or ends what was charged, is no answer of a limit.
	_, _ = one.Peek(t.Context(), "c")
	_, _ = one.Would(t.Context(), "c", 1)
	h, _ := one.Hold(t.Context(), "c", 2, time.Minute)
	got.expect(t, "one: granted by store, 2 of 2")
	_, _ = h.Settle(t.Context(), 1)
	_ = one.Reset(t.Context(), "c")
	got.expect(t)

	// The alternative that decided is reported, and the other one is not.
	first := limiter(t, store, "free", weir.PerHour(1))
	either, err := first.Otherwise(limiter(t, store, "paid", weir.PerHour(2)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, _ = either.Allow(t.Context(), "k")
	}
	got.expect(t, "free: granted by store, 1 of 1", "paid: granted by store, 1 of 2")
}

// late loses its answer after a second.
type late struct{}

func (late) Take(_ context.Context, list []*weir.Act) {
	time.Sleep(time.Second)
	for _, a := range list {
		a.Err = fmt.Errorf("weir: take: %w", weir.ErrAmbiguous)
	}
}

func TestErrorsAndTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got seen
		l := limiter(t, weirmetrics.Wrap(late{}, &got), "api", weir.PerHour(2))
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, weir.ErrAmbiguous) {
			t.Fatal(err)
		}
		got.expect(t, "api: true after 1s")
		if err := l.SetOverride("k", weir.Override{Until: time.Now().Add(time.Hour)}); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("an override of a store without overrides: %v", err)
		}
	})
}

// TestOverrides sets an override through the wrapped store, and sees the limit that decided.
func TestOverrides(t *testing.T) {
	t.Parallel()
	var got seen
	l := limiter(t, weirmetrics.Wrap(memstore.New(memstore.Options{}), &got), "api", weir.PerHour(2))
	more := weir.PerHour(7)
	if err := l.SetOverride("k", weir.Override{Limit: &more, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	_, _ = l.AllowN(t.Context(), "k", 6)
	got.expect(t, "api: granted by store, 6 of 7")
}

// counts is an observer in a few lines.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) Observe(a weirmetrics.Answer) {
	outcome := a.Decision.Outcome.String()
	if a.Err != nil {
		outcome = "error"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[a.Limiter+" "+outcome]++
}

func ExampleWrap() {
	seen := &counts{n: map[string]int{}}
	store := weirmetrics.Wrap(memstore.New(memstore.Options{}), seen) // or one in Redis
	limiter, err := weir.NewLimiter(store, "api", weir.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		_, _ = limiter.Allow(context.Background(), "user:42")
	}
	fmt.Println(seen.n)
	// Output: map[api granted:2 api refused:3]
}
