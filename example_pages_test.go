package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/stack"
)

// The code of pages that is part of something else stands here to be compiled and
// run; TestGoInPages looks for it.

// inReadme is README.md's.
func inReadme(ctx context.Context, w http.ResponseWriter) error {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerMinute(100))
	if err != nil {
		return err
	}
	d, err := limiter.Allow(ctx, "user:42")
	if err == nil && !d.Allowed() {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
	}
	return err
}

// simplest is docs/library.md's first.
func simplest(store weir.Taker) (*weir.Limiter, error) {
	limiter, err := weir.NewLimiter(store, weir.PerMinute(100))
	return limiter, err
}

// stacked is README.md's, for all hosts of a service.
func stacked(ctx context.Context, client redis.UniversalClient, logger *slog.Logger) error {
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return err
	}
	limits := stack.New(store, stack.Options{Logger: logger})
	defer limits.Stop(ctx)
	limiter, err := weir.NewLimiter(limits, weir.PerMinute(100))
	if err != nil {
		return err
	}
	_, err = limiter.Allow(ctx, "user:42")
	return err
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
	if err := inReadme(ctx, httptest.NewRecorder()); err != nil {
		t.Error(err)
	}
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr()})
	defer client.Close()
	// On a machine that is late, Redis may count as silent.
	if err := stacked(ctx, client, slog.New(slog.DiscardHandler)); err != nil && !errors.Is(err, weir.ErrNotApplied) && !errors.Is(err, weir.ErrAmbiguous) {
		t.Error(err)
	}
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
