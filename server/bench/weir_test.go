package bench

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
)

// Weir is Weir itself: on memory, and on Redis with one decorator more from line
// to line.
var Weir = []Contestant{
	{Name: "weir", Open: openWeirMemory},
	{Name: "weir", Kind: Redis, Open: openWeirRedis(&stack.Options{})},
	{Name: "weir with leases", Kind: Redis, Open: openWeirRedis(&stack.Options{Leased: everyLimit})},
	{Name: "weir without decorators", Kind: Redis, Open: openWeirRedis(nil)},
}

// Patient is Weir with leases of a minute: a share is half of what is asked for in that time.
var Patient = Contestant{
	Name: "weir with leases", Kind: Redis,
	Open: openWeirRedis(&stack.Options{Leased: everyLimit, LeaseTime: time.Minute}),
}

func everyLimit(*weir.Limit) bool { return true }

func openWeirMemory(e Env) (Limiter, error) {
	return newWeir(e, memengine.New(memengine.Options{MaxBytes: 4 << 30}), nil, shape{ask: allowOne})
}

// openWeirRedis opens a store on go-redis, as docs/library.md recommends, with the
// server's decorators around it unless their options are nil.
func openWeirRedis(decorators *stack.Options) func(Env) (Limiter, error) {
	return openWeirRedisShape(decorators, shape{ask: allowOne})
}

func openWeirRedisShape(decorators *stack.Options, use shape) func(Env) (Limiter, error) {
	return func(e Env) (Limiter, error) {
		c := redis.NewClient(&redis.Options{Addr: e.Address, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second})
		store, err := redisengine.New(c, redisengine.Options{Prefix: e.Prefix})
		if err != nil {
			return Limiter{}, err
		}
		if decorators == nil {
			return newWeir(e, store, c.Close, use)
		}
		o := *decorators
		o.Remote.Policy = func(*weir.Charge) remote.Policy { return remote.Error }
		s := stack.New(store, o)
		s.Start()
		return newWeir(e, s, func() error { return cmp.Or(s.Stop(context.Background()), c.Close()) }, use)
	}
}

func newWeir(e Env, taker weir.Taker, release func() error, use shape) (Limiter, error) {
	limits := slices.Clone(use.limits)
	for _, l := range e.Limits {
		limits = append(limits, weir.Limit{Count: int64(l.Count), Period: l.Period})
	}
	l, err := weir.NewLimiter(taker, "test", limits...)
	if err == nil && use.prepare != nil {
		err = use.prepare(context.Background(), l)
	}
	return Limiter{Release: release, Allow: func(ctx context.Context, key string) (bool, error) { return use.ask(ctx, l, key) }}, err
}
