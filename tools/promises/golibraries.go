package promises

import (
	"context"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// goLibraries are the limiters of other authors that a Go program imports, at the versions of
// go.mod.
func goLibraries() []Limiter {
	return []Limiter{
		{Name: "redis_rate", Version: moduleVersion("github.com/go-redis/redis_rate/v10"), Redis: true, Open: redisRate},
		{Name: "throttled, Redis", Version: moduleVersion("github.com/throttled/throttled/v2"), Redis: true, Open: throttledRedis},
		{Name: "ulule/limiter, Redis", Version: moduleVersion("github.com/ulule/limiter/v3"), Family: Window, Redis: true, Open: ululeLimiter},
		{Name: "go-limiter, memory", Version: moduleVersion("github.com/sethvargo/go-limiter"), Family: Window, NoCosts: true, Open: goLimiter},
	}
}

// theirClient is go-redis as its users have it, which repeats commands.
func theirClient(t testing.TB, s Setting) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Redis})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var background = context.Background()

func redisRate(t testing.TB, s Setting, _ func(string) string) Target {
	l := redis_rate.NewLimiter(theirClient(t, s))
	return &library{change: func(n Setting) { s = n }, take: func(key string, cost int, _ string) Answer {
		r, err := l.AllowN(background, key, redis_rate.Limit{Rate: s.Count, Burst: s.Burst, Period: s.Period}, cost)
		if err != nil {
			return failed(err)
		}
		return Answer{Granted: r.Allowed > 0, Retry: r.RetryAfter}
	}}
}

func throttledRedis(t testing.TB, s Setting, _ func(string) string) Target {
	store, err := throttledredis.NewCtx(theirClient(t, s), "throttled:")
	if err != nil {
		t.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(s.Count, s.Period), MaxBurst: s.Burst - 1})
	if err != nil {
		t.Fatal(err)
	}
	return &library{take: func(key string, cost int, _ string) Answer {
		limited, r, err := l.RateLimitCtx(background, key, cost)
		if err != nil {
			return failed(err)
		}
		return Answer{Granted: !limited, Retry: r.RetryAfter}
	}}
}

func ululeLimiter(t testing.TB, s Setting, _ func(string) string) Target {
	store, err := ululeredis.NewStore(theirClient(t, s))
	if err != nil {
		t.Fatal(err)
	}
	l := ulule.New(store, ulule.Rate{Period: s.Period, Limit: int64(s.Count)})
	return &library{take: func(key string, cost int, _ string) Answer {
		r, err := l.Increment(background, key, int64(cost))
		if err != nil {
			return failed(err)
		}
		return Answer{Granted: !r.Reached, Retry: time.Until(time.Unix(r.Reset, 0))}
	}}
}

func goLimiter(t testing.TB, s Setting, _ func(string) string) Target {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.Count), Interval: s.Period})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(background) })
	return &library{take: func(key string, _ int, _ string) Answer {
		_, _, reset, ok, err := store.Take(background, key)
		if err != nil {
			return failed(err)
		}
		return Answer{Granted: ok, Retry: time.Until(time.Unix(0, int64(reset)))}
	}}
}
