package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/memstore"
)

// The code of pages that is part of something else stands here to be compiled and
// run; TestGoInPages looks for it.

// simplest is docs/library.md's first.
func simplest(store weir.Taker) (*weir.Limiter, error) {
	limiter, err := weir.NewLimiter(store, weir.PerMinute(100))
	return limiter, err
}

// overridden is docs/library.md's, of other limits for a while.
func overridden(store weir.Taker, tomorrow time.Time) (*weir.Limiter, error) {
	limits := override.Wrap(store, override.Options{}) // or stack.New(…).Override()
	limiter, err := weir.NewLimiter(limits, weir.PerMinute(10))
	// …
	more, none := weir.PerMinute(500), weir.PerMinute(0)
	err = errors.Join(err, limits.Set(override.Override{Key: "tenant:7", Limit: &more, Until: tomorrow}))
	err = errors.Join(err, limits.Set(override.Override{Key: "tenant:8", Limit: &none, Until: tomorrow})) // blocked
	err = errors.Join(err, limits.Set(override.Override{Key: "tenant:9", Until: tomorrow}))               // no limit
	return limiter, err
}

func TestCodeOfPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, made := range map[string]func(weir.Taker) (*weir.Limiter, error){
		"simplest":   simplest,
		"overridden": func(s weir.Taker) (*weir.Limiter, error) { return overridden(s, time.Now().Add(24*time.Hour)) },
	} {
		limiter, err := made(memstore.New(memstore.Options{}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		granted := map[string]int{}
		for _, key := range []string{"tenant:7", "tenant:8", "tenant:9"} {
			for range 11 {
				if d, err := limiter.Allow(ctx, key); err != nil {
					t.Fatal(err)
				} else if d.Allowed() {
					granted[key]++
				}
			}
		}
		want := map[string]int{"tenant:7": 11, "tenant:8": 11, "tenant:9": 11}
		if name == "overridden" {
			delete(want, "tenant:8")
		}
		if fmt.Sprint(granted) != fmt.Sprint(want) {
			t.Errorf("%s: granted %v, want %v", name, granted, want)
		}
	}
}
