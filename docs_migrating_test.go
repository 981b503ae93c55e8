package weir_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirhttp"
)

// The code of docs/migrating.md and docs/customers.md stands here to be compiled and
// run; TestGoInPages looks for it.

func fromRate(ctx context.Context) error {
	store := memstore.New(memstore.Options{})
	limiter, err := weir.NewLimiter(store, "api", weir.Limit{Count: 10, Period: time.Second, Burst: 20})
	if err != nil {
		return err
	}
	err = limiter.Wait(ctx, "mailbox")
	return err
}

func fromRedisRate(ctx context.Context, client redis.UniversalClient, retry func(time.Duration)) error {
	store, err := redisstore.New(client, redisstore.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer store.Stop(ctx)
	limiter, err := weir.NewLimiter(store, "api", weir.PerSecond(10))
	if err != nil {
		return err
	}
	d, err := limiter.Allow(ctx, "project:123")
	if err == nil && !d.Allowed() {
		retry(d.RetryAfter)
	}
	return err
}

func fromThrottled(store weir.Taker, next http.Handler, use func(http.Handler)) error {
	limiter, err := weir.NewLimiter(store, "api", weir.Limit{Count: 20, Period: time.Minute, Burst: 6})
	if err != nil {
		return err
	}
	handler := weirhttp.Middleware(limiter, weirhttp.Options{Key: weirhttp.KeyByPath})(next)
	use(handler)
	return nil
}

func fromUlule(store weir.Taker, next http.Handler, use func(http.Handler)) error {
	limit, err := weir.ParseLimit("100/min fixed_window anchor first")
	if err != nil {
		return err
	}
	limiter, err := weir.NewLimiter(store, "api", limit)
	if err != nil {
		return err
	}
	handler := weirhttp.Middleware(limiter, weirhttp.Options{})(next)
	use(handler)
	return nil
}

// A plans gives each customer the limit that the database has for it.
type plans struct {
	store weir.Taker
	load  func(ctx context.Context, customer string) (perMinute int64, err error) // from the database
	cache sync.Map                                                                // perMinute: *weir.Limiter
}

func (p *plans) allow(ctx context.Context, customer string) (weir.Decision, error) {
	perMinute, err := p.load(ctx, customer) // cache it for as long as a change may take
	if err != nil {
		return weir.Decision{}, err
	}
	limiter, found := p.cache.Load(perMinute)
	if !found {
		made, err := weir.NewLimiter(p.store, "customer", weir.PerMinute(perMinute))
		if err != nil {
			return weir.Decision{}, err
		}
		limiter, _ = p.cache.LoadOrStore(perMinute, made)
	}
	return limiter.(*weir.Limiter).Allow(ctx, customer)
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if err := fromRate(ctx); err != nil {
		t.Error(err)
	}
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr()})
	defer client.Close()
	// On a machine that is late, Redis may count as silent.
	err := fromRedisRate(ctx, client, func(time.Duration) { t.Error("refused") })
	if err != nil && !errors.Is(err, weir.ErrNotApplied) && !errors.Is(err, weir.ErrAmbiguous) {
		t.Error(err)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	for name, tc := range map[string]struct {
		from func(weir.Taker, http.Handler, func(http.Handler)) error
		want int
	}{"throttled": {fromThrottled, 6}, "ulule": {fromUlule, 100}} {
		granted := 0
		err := tc.from(memstore.New(memstore.Options{}), ok, func(h http.Handler) {
			for range 200 {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/a", nil)); w.Code == http.StatusOK {
					granted++
				}
			}
		})
		// A machine that is late refills one.
		if err != nil || granted < tc.want || granted > tc.want+1 {
			t.Errorf("%s: granted %d, %v: want %d", name, granted, err, tc.want)
		}
	}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	perMinute := int64(2)
	p := &plans{
		store: memstore.New(memstore.Options{}),
		load:  func(context.Context, string) (int64, error) { return perMinute, nil },
	}
	for i, want := range []bool{true, true, false, true} {
		if i == 3 {
			perMinute = 600 // which keeps the two that were used
		}
		if d, err := p.allow(t.Context(), "acme"); err != nil || d.Allowed() != want {
			t.Errorf("request %d: %v, %v: want %v", i, d.Allowed(), err, want)
		}
	}
	if d, err := p.allow(t.Context(), "acme"); err != nil || d.Remaining < 590 || d.Remaining > 596 {
		t.Errorf("%d remain, %v", d.Remaining, err)
	}
}
