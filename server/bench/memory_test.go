package bench

import (
	"context"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// MemoryPeers are the limiters that keep their state in the process.
var MemoryPeers = []Contestant{
	{Name: "sethvargo", Open: each(openSethvargo)},
	{Name: "throttled", Open: each(openThrottled)},
	{Name: "ulule", Open: each(openUlule)},
	{Name: "rate.Limiter in a map", Open: each(openRateMap)},
	{Name: "rate.Limiter", Keyless: true, Open: openRate},
	{Name: "failsafe-go bursty", Keyless: true, Open: openFailsafe},
	{Name: "uber", Keyless: true, Blocking: true, Open: openUber},
}

func openSethvargo(e Env) (Limiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(e.one().Count), Interval: e.one().Period})
	return Limiter{
		Allow: func(ctx context.Context, key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		Release: func() error { return store.Close(context.Background()) },
	}, err
}

func openThrottled(e Env) (Limiter, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return Limiter{}, err
	}
	return gcra(e, store, nil)
}

// gcra is throttled on a store.
func gcra(e Env, store throttled.GCRAStoreCtx, release func() error) (Limiter, error) {
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(e.one().Count, e.one().Period), MaxBurst: e.one().Count - 1,
	})
	return Limiter{Release: release, Allow: func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}}, err
}

func openUlule(e Env) (Limiter, error) { return ulule(e, memory.NewStore(), nil), nil }

// ulule is ulule's limiter on a store.
func ulule(e Env, store limiter.Store, release func() error) Limiter {
	l := limiter.New(store, limiter.Rate{Period: e.one().Period, Limit: int64(e.one().Count)})
	return Limiter{Release: release, Allow: func(ctx context.Context, key string) (bool, error) {
		res, err := l.Get(ctx, key)
		return !res.Reached, err
	}}
}

// openRateMap is what programs write around golang.org/x/time/rate to limit by key.
func openRateMap(e Env) (Limiter, error) {
	var mu sync.Mutex
	byKey := make(map[string]*rate.Limiter)
	return Limiter{Allow: func(_ context.Context, key string) (bool, error) {
		mu.Lock()
		l := byKey[key]
		if l == nil {
			l = newRate(e.one())
			byKey[key] = l
		}
		mu.Unlock()
		return l.Allow(), nil
	}}, nil
}

func newRate(l Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(l.Count)/l.Period.Seconds()), l.Count)
}

// keyless is a limiter of one budget.
func keyless(allow func() bool) Limiter {
	return Limiter{Allow: func(context.Context, string) (bool, error) { return allow(), nil }}
}

func openRate(e Env) (Limiter, error) { return keyless(newRate(e.one()).Allow), nil }

func openFailsafe(e Env) (Limiter, error) {
	return keyless(ratelimiter.NewBursty[any](uint(e.one().Count), e.one().Period).TryAcquirePermit), nil
}

func openUber(e Env) (Limiter, error) {
	l := uber.New(e.one().Count, uber.Per(e.one().Period), uber.WithSlack(e.one().Count))
	return keyless(func() bool { return l.Take() != time.Time{} }), nil
}
