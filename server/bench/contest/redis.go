package contest

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// floorLua is the least that an exact GCRA costs: TIME, GET, SET.
//
//go:embed floor.lua
var floorLua string

// RedisPeers are the limiters that keep their state in Redis, and the floor: a
// bare script without names, headers or anything but a yes or no.
var RedisPeers = []Contestant{
	{Name: "redis_rate", Module: "github.com/go-redis/redis_rate/v10", Kind: Redis, Open: openRedisRate},
	{Name: "ulule (redis)", Module: "github.com/ulule/limiter/v3", Kind: Redis, Open: openUluleRedis},
	{Name: "throttled (redis)", Module: "github.com/throttled/throttled/v2", Kind: Redis, Open: openThrottledRedis},
	{Name: "bare EVALSHA, go-redis", Module: "github.com/redis/go-redis/v9", Kind: Redis, Open: openFloorGoRedis},
	{Name: "bare EVALSHA, rueidis", Module: "github.com/redis/rueidis", Kind: Redis, Open: openFloorRueidis},
}

// client is go-redis with as many connections as it would open by itself on two
// cores, and no fewer than callers need not to time out waiting for one.
func client(e Env) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: e.Address, PoolTimeout: 10 * time.Second})
}

type redisRate struct {
	client  *redis.Client
	limiter *redis_rate.Limiter
	prefix  string
	limit   redis_rate.Limit
}

func openRedisRate(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		c := client(e)
		limit := redis_rate.Limit{Rate: e.one().Count, Burst: e.one().Count, Period: e.one().Period}
		return &redisRate{c, redis_rate.NewLimiter(c), e.Prefix, limit}, nil
	})
}

// Allow decides one unit.
func (r *redisRate) Allow(ctx context.Context, key string) (bool, error) {
	res, err := r.limiter.Allow(ctx, r.prefix+key, r.limit)
	if err != nil {
		return false, err
	}
	return res.Allowed > 0, nil
}

// Close gives back what it holds.
func (r *redisRate) Close() error { return r.client.Close() }

type ulule struct {
	limiter *limiter.Limiter
	closing func() error
}

func openUluleRedis(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		c := client(e)
		store, err := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: e.Prefix})
		if err != nil {
			return nil, err
		}
		return &ulule{limiter.New(store, limiter.Rate{Period: e.one().Period, Limit: int64(e.one().Count)}), c.Close}, nil
	})
}

// Allow decides one unit.
func (u *ulule) Allow(ctx context.Context, key string) (bool, error) {
	res, err := u.limiter.Get(ctx, key)
	return !res.Reached, err
}

// Close gives back what it holds.
func (u *ulule) Close() error { return u.closing() }

type throttledGCRA struct {
	limiter *throttled.GCRARateLimiterCtx
	closing func() error
}

func throttledQuota(l Limit) throttled.RateQuota {
	return throttled.RateQuota{MaxRate: throttled.PerDuration(l.Count, l.Period), MaxBurst: l.Count - 1}
}

func openThrottledRedis(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		c := client(e)
		store, err := throttledredis.NewCtx(c, e.Prefix)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(e.one()))
		return &throttledGCRA{l, c.Close}, err
	})
}

// Allow decides one unit.
func (t *throttledGCRA) Allow(ctx context.Context, key string) (bool, error) {
	limited, _, err := t.limiter.RateLimitCtx(ctx, key, 1)
	return !limited, err
}

// Close gives back what it holds.
func (t *throttledGCRA) Close() error { return t.closing() }

// floorArgs are the emission interval and the tolerance in µs, and the life of a
// key in ms.
func floorArgs(l Limit) (emission, tolerance, life int64) {
	emission = (l.Period.Microseconds() + int64(l.Count) - 1) / int64(l.Count)
	return emission, emission * int64(l.Count), l.Period.Milliseconds() + 1000
}

type floorGoRedis struct {
	client *redis.Client
	script *redis.Script
	prefix string
	args   []any
}

func openFloorGoRedis(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		emission, tolerance, life := floorArgs(e.one())
		return &floorGoRedis{client(e), redis.NewScript(floorLua), e.Prefix, []any{emission, tolerance, life}}, nil
	})
}

// Allow decides one unit.
func (f *floorGoRedis) Allow(ctx context.Context, key string) (bool, error) {
	n, err := f.script.Run(ctx, f.client, []string{f.prefix + key}, f.args...).Int()
	return n == 1, err
}

// Close gives back what it holds.
func (f *floorGoRedis) Close() error { return f.client.Close() }

type floorRueidis struct {
	client rueidis.Client
	script *rueidis.Lua
	prefix string
	args   []string
}

func openFloorRueidis(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{e.Address}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		emission, tolerance, life := floorArgs(e.one())
		args := []string{strconv.FormatInt(emission, 10), strconv.FormatInt(tolerance, 10), strconv.FormatInt(life, 10)}
		return &floorRueidis{c, rueidis.NewLuaScript(floorLua), e.Prefix, args}, nil
	})
}

// Allow decides one unit.
func (f *floorRueidis) Allow(ctx context.Context, key string) (bool, error) {
	n, err := f.script.Exec(ctx, f.client, []string{f.prefix + key}, f.args).AsInt64()
	return n == 1, err
}

// Close gives back what it holds.
func (f *floorRueidis) Close() error {
	f.client.Close()
	return nil
}
