//lint:file-ignore SA4006 this is how the pages of the other limiters show them

package bench

import (
	"context"
	"net/http"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	sredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"
)

// How other limiters are used, as docs/migrating.md shows it: it has to compile.
var (
	_ = beforeTimeRate
	_ = beforeRedisRate
	_ = beforeThrottled
	_ = beforeUlule
)

func beforeTimeRate(ctx context.Context) error {
	limiter := rate.NewLimiter(10, 20) // 10 per second, burst 20
	err := limiter.Wait(ctx)
	return err
}

func beforeRedisRate(ctx context.Context, client *redis.Client, retry func(time.Duration)) error {
	limiter := redis_rate.NewLimiter(client)
	res, err := limiter.Allow(ctx, "project:123", redis_rate.PerSecond(10))
	if err == nil && res.Allowed == 0 {
		retry(res.RetryAfter)
	}
	return err
}

func beforeThrottled(store throttled.GCRAStoreCtx, next http.Handler) (http.Handler, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
	h := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{Path: true}}
	handler := h.RateLimit(next)
	return handler, err
}

func beforeUlule(client *redis.Client, next http.Handler) (http.Handler, error) {
	rate, err := limiter.NewRateFromFormatted("100-M")
	store, err := sredis.NewStore(client)
	middleware := stdlib.NewMiddleware(limiter.New(store, rate))
	handler := middleware.Handler(next)
	return handler, err
}
