package contest

import (
	"context"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// MemoryPeers are the limiters that keep their state in the process.
var MemoryPeers = []Contestant{
	{Name: "sethvargo", Module: "github.com/sethvargo/go-limiter", Open: openSethvargo},
	{Name: "throttled", Module: "github.com/throttled/throttled/v2", Open: openThrottled},
	{Name: "ulule", Module: "github.com/ulule/limiter/v3", Open: openUlule},
	{Name: "x/time/rate in a map", Module: "golang.org/x/time", Open: openRateMap},
	{Name: "x/time/rate", Module: "golang.org/x/time", Keyless: true, Open: openRate},
	{Name: "failsafe-go bursty", Module: "github.com/failsafe-go/failsafe-go", Keyless: true, Open: openFailsafe},
	{Name: "uber", Module: "go.uber.org/ratelimit", Keyless: true, Blocking: true, Open: openUber},
}

type sethvargo struct{ store limiter.Store }

func openSethvargo(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(e.one().Count), Interval: e.one().Period})
		return &sethvargo{store}, err
	})
}

// Allow decides one unit.
func (s *sethvargo) Allow(ctx context.Context, key string) (bool, error) {
	_, _, _, ok, err := s.store.Take(ctx, key)
	return ok, err
}

// Close gives back what it holds.
func (s *sethvargo) Close() error { return s.store.Close(context.Background()) }

func openThrottled(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(e.one()))
		return &throttledGCRA{l, nothing}, err
	})
}

func openUlule(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		limit := ululelimiter.Rate{Period: e.one().Period, Limit: int64(e.one().Count)}
		return &ulule{ululelimiter.New(memory.NewStore(), limit), nothing}, nil
	})
}

func nothing() error { return nil }

// rateMap is what programs write around x/time/rate to limit by key.
type rateMap struct {
	limit    Limit
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func openRateMap(e Env) (Limiter, error) {
	return each(e, func(e Env) (Limiter, error) {
		return &rateMap{limit: e.one(), limiters: make(map[string]*rate.Limiter)}, nil
	})
}

// Allow decides one unit.
func (m *rateMap) Allow(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	l := m.limiters[key]
	if l == nil {
		l = newRate(m.limit)
		m.limiters[key] = l
	}
	m.mu.Unlock()
	return l.Allow(), nil
}

// Close gives back what it holds.
func (m *rateMap) Close() error { return nil }

func newRate(l Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(l.Count)/l.Period.Seconds()), l.Count)
}

// allow is a limiter of one budget.
type allow func() bool

// Allow decides one unit.
func (a allow) Allow(context.Context, string) (bool, error) { return a(), nil }

// Close gives back what it holds.
func (a allow) Close() error { return nil }

func openRate(e Env) (Limiter, error) { return allow(newRate(e.one()).Allow), nil }

func openFailsafe(e Env) (Limiter, error) {
	return allow(ratelimiter.NewBursty[any](uint(e.one().Count), e.one().Period).TryAcquirePermit), nil
}

func openUber(e Env) (Limiter, error) {
	l := uber.New(e.one().Count, uber.Per(e.one().Period), uber.WithSlack(e.one().Count))
	return allow(func() bool { return l.Take() != time.Time{} }), nil
}
