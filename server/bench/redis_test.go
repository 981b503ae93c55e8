package bench

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
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
	{Name: "redis_rate", Kind: Redis, Open: each(openRedisRate)},
	{Name: "ulule (redis)", Kind: Redis, Open: each(openUluleRedis)},
	{Name: "throttled (redis)", Kind: Redis, Open: each(openThrottledRedis)},
	{Name: "bare EVALSHA, go-redis", Kind: Redis, Open: each(openFloorGoRedis)},
	{Name: "bare EVALSHA, rueidis", Kind: Redis, Open: each(openFloorRueidis)},
}

// client is go-redis with as many connections as it would open by itself on two
// cores, and no fewer than callers need not to time out waiting for one.
func client(e Env) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: e.Address, PoolTimeout: 10 * time.Second})
}

func openRedisRate(e Env) (Limiter, error) {
	c := client(e)
	l, limit := redis_rate.NewLimiter(c), redis_rate.Limit{Rate: e.one().Count, Burst: e.one().Count, Period: e.one().Period}
	return Limiter{Release: c.Close, Allow: func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, e.Prefix+key, limit)
		if err != nil {
			return false, err
		}
		return res.Allowed > 0, nil
	}}, nil
}

func openUluleRedis(e Env) (Limiter, error) {
	c := client(e)
	store, err := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: e.Prefix})
	if err != nil {
		return Limiter{}, err
	}
	return ulule(e, store, c.Close), nil
}

func openThrottledRedis(e Env) (Limiter, error) {
	c := client(e)
	store, err := throttledredis.NewCtx(c, e.Prefix)
	if err != nil {
		return Limiter{}, err
	}
	return gcra(e, store, c.Close)
}

// floorArgs are the emission interval and the tolerance in µs, and the life of a
// key in ms.
func floorArgs(l Limit) []string {
	emission := (l.Period.Microseconds() + int64(l.Count) - 1) / int64(l.Count)
	return []string{
		strconv.FormatInt(emission, 10), strconv.FormatInt(emission*int64(l.Count), 10), strconv.FormatInt(l.Period.Milliseconds()+1000, 10),
	}
}

func openFloorGoRedis(e Env) (Limiter, error) {
	c, script := client(e), redis.NewScript(floorLua)
	var args []any
	for _, arg := range floorArgs(e.one()) {
		args = append(args, arg)
	}
	return Limiter{Release: c.Close, Allow: func(ctx context.Context, key string) (bool, error) {
		n, err := script.Run(ctx, c, []string{e.Prefix + key}, args...).Int()
		return n == 1, err
	}}, nil
}

func openFloorRueidis(e Env) (Limiter, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{e.Address}, DisableCache: true})
	if err != nil {
		return Limiter{}, err
	}
	script, args := rueidis.NewLuaScript(floorLua), floorArgs(e.one())
	return Limiter{
		Allow: func(ctx context.Context, key string) (bool, error) {
			n, err := script.Exec(ctx, c, []string{e.Prefix + key}, args).AsInt64()
			return n == 1, err
		},
		Release: func() error { c.Close(); return nil },
	}, nil
}
