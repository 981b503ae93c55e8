package contest

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/stack"
)

// Weir is Weir itself: on memory, and on Redis with one decorator more from line
// to line.
var Weir = []Contestant{
	{Name: "weir", Open: openWeirMemory},
	{Name: "weir", Kind: Redis, Open: openWeirRedis(stacked(stack.Options{}))},
	{Name: "weir with leases", Kind: Redis, Open: openWeirRedis(stacked(stack.Options{Leased: everyLimit}))},
	{Name: "weir without decorators", Kind: Redis, Open: openWeirRedis(nil)},
}

// Patient is Weir with leases of a minute: a share is half of what is asked for in that time.
var Patient = Contestant{
	Name: "weir with leases", Kind: Redis,
	Open: openWeirRedis(stacked(stack.Options{Leased: everyLimit, LeaseTime: time.Minute})),
}

func everyLimit(*weir.Limit) bool { return true }

// stacked puts decorators around a store, as the server does.
func stacked(o stack.Options) func(Env, *redisstore.Store) (weir.Taker, func() error) {
	return func(_ Env, store *redisstore.Store) (weir.Taker, func() error) {
		s := stack.New(store, o)
		s.Start()
		return s, func() error { return s.Stop(context.Background()) }
	}
}

type weirLimiter struct {
	limiter *weir.Limiter
	closing func() error
}

func openWeirMemory(e Env) (Limiter, error) {
	return newWeir(e, memstore.New(memstore.Options{MaxBytes: 4 << 30}), nothing)
}

// openWeirRedis opens a store on go-redis, as docs/library.md recommends, with whatever
// wrap puts around it. Wrap also says how to stop that.
func openWeirRedis(wrap func(Env, *redisstore.Store) (weir.Taker, func() error)) func(Env) (Limiter, error) {
	return func(e Env) (Limiter, error) {
		keeper := redisstore.NewKeeper()
		o := &redis.Options{Addr: e.Address, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second}
		o.Dialer = keeper.Dial(redis.NewDialer(o))
		c := redis.NewClient(o)
		store, err := redisstore.New(c, redisstore.Options{Prefix: e.Prefix, Keeper: keeper})
		if err != nil {
			return nil, err
		}
		if wrap == nil {
			return newWeir(e, store, c.Close)
		}
		taker, stop := wrap(e, store)
		return newWeir(e, taker, func() error {
			if err := stop(); err != nil {
				return err
			}
			return c.Close()
		})
	}
}

func newWeir(e Env, taker weir.Taker, closing func() error) (Limiter, error) {
	var limits []weir.Limit
	for _, l := range e.Limits {
		limits = append(limits, weir.Limit{Count: int64(l.Count), Period: l.Period})
	}
	l, err := weir.NewLimiter(taker, limits...)
	return &weirLimiter{l, closing}, err
}

// Allow decides one unit.
func (w *weirLimiter) Allow(ctx context.Context, key string) (bool, error) {
	d, err := w.limiter.Allow(ctx, key)
	return d.Outcome == weir.Granted, err
}

// Close gives back what it holds.
func (w *weirLimiter) Close() error { return w.closing() }
