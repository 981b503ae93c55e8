package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// A shape is a use of a limiter that could cost more than a plain decision.
type shape struct {
	name    string
	limits  []weir.Limit                               // besides those of the scenario
	prepare func(context.Context, *weir.Limiter) error // nil: nothing
	options memstore.Options
	ask     askFunc
}

// An askFunc is what a contestant asks of a limiter for one decision.
type askFunc func(ctx context.Context, l *weir.Limiter, key string) (bool, error)

func allowOne(ctx context.Context, l *weir.Limiter, key string) (bool, error) {
	d, err := l.Allow(ctx, key)
	return d.Allowed(), err
}

// holdAndSettle holds ten units and settles them at five, as a token budget does.
func holdAndSettle(ctx context.Context, l *weir.Limiter, key string) (bool, error) {
	h, err := l.Hold(ctx, key, 10, 0)
	if err != nil || !h.OK() {
		return false, err
	}
	_, err = h.Settle(ctx, 5)
	return true, err
}

// holdAndRelease takes a slot and returns it.
func holdAndRelease(ctx context.Context, l *weir.Limiter, key string) (bool, error) {
	h, err := l.Hold(ctx, key, 1, 0)
	if err != nil || !h.OK() {
		return false, err
	}
	return true, h.Release(ctx)
}

// manyBuckets is a window of a counter for each second, with one take, granted or refused.
func manyBuckets(kind Kind) []Contestant {
	limit := func(count int64) []weir.Limit {
		return []weir.Limit{{Algorithm: weir.RollingWindow, Count: count, Period: time.Hour, Buckets: 3600}}
	}
	plain := func(count int64) []weir.Limit { return []weir.Limit{{Count: count, Period: time.Hour}} }
	return []Contestant{
		shape{name: "weir", ask: allowOne, limits: plain(50_000_000)}.on(kind),
		shape{name: "weir, rolling_window of 3600", ask: allowOne, limits: limit(50_000_000)}.on(kind),
		shape{name: "weir, refused", ask: allowOne, limits: plain(1)}.on(kind),
		shape{name: "weir, rolling_window of 3600, refused", ask: allowOne, limits: limit(1)}.on(kind),
	}
}

// severalKeys are acts of one key and of several, under a limit each.
func severalKeys(kind Kind) []Contestant {
	var all []Contestant
	for _, n := range []int{1, 8, 64} {
		limits := slices.Repeat([]weir.Limit{{Count: 50_000_000, Period: time.Hour}}, n)
		all = append(all, shape{name: fmt.Sprintf("weir, %d keys", n), ask: allowOne, limits: limits}.on(kind))
	}
	return all
}

// BenchmarkRedisShapes compares uses of a limiter on Redis with the plain one.
func BenchmarkRedisShapes(b *testing.B) {
	r := startServer(b)
	buckets := scenario{name: "buckets", keys: Uniform(1000), callers: []int{64}, warm: 1000}
	buckets.run(b, manyBuckets(Redis), r)
	keys := scenario{name: "keys of an act", keys: Uniform(1000), callers: []int{64}, warm: 1000}
	keys.run(b, severalKeys(Redis), r)
	held := scenario{name: "10 000 keys", limits: []Limit{Ample}, keys: Uniform(10_000), callers: []int{64}}
	held.run(b, []Contestant{
		shape{name: "weir", ask: allowOne}.on(Redis),
		shape{name: "weir, hold and settle", ask: holdAndSettle}.on(Redis),
	}, r)
	alone := scenario{name: "first example", limits: []Limit{Ample}, keys: Hot(), callers: []int{1}}
	alone.run(b, []Contestant{
		{Name: "weir", Kind: Redis, Open: openFirstExample(true)},
		{Name: "weir, client without ContextTimeoutEnabled", Kind: Redis, Open: openFirstExample(false)},
		{Name: "redis_rate", Kind: Redis, Open: openRedisRate},
	}, r)
}

// openFirstExample opens a store with the code of the first example in docs/library.md.
func openFirstExample(ends bool) func(Env) (Limiter, error) {
	return func(e Env) (Limiter, error) {
		client := redis.NewClient(&redis.Options{Addr: e.Address, ContextTimeoutEnabled: ends})
		store, err := redisstore.New(client, redisstore.Options{Prefix: e.Prefix})
		if err != nil {
			return Limiter{}, err
		}
		release := func() error { return errors.Join(store.Stop(context.Background()), client.Close()) }
		return newWeir(e, store, release, shape{ask: allowOne})
	}
}

// BenchmarkMemoryShapes compares uses of a limiter in memory with the plain one.
func BenchmarkMemoryShapes(b *testing.B) {
	buckets := scenario{name: "buckets", keys: Uniform(1000), callers: []int{1}, warm: 1000}
	buckets.run(b, manyBuckets(Memory), nil)
	keys := scenario{name: "keys of an act", keys: Uniform(1000), callers: []int{1}, warm: 1000}
	keys.run(b, severalKeys(Memory), nil)

	slots := scenario{name: "slots", keys: Hot(), callers: []int{1}}
	var holders []Contestant
	for _, n := range []int{10, 10_000, 100_000} {
		holders = append(holders, shape{
			name:   strconv.Itoa(n) + " holders",
			limits: []weir.Limit{{Algorithm: weir.Concurrency, Count: 1_000_000, Period: time.Hour}},
			ask:    holdAndRelease,
			prepare: func(ctx context.Context, l *weir.Limiter) error {
				for range n {
					if _, err := l.Hold(ctx, "user:hot", 1, 0); err != nil {
						return err
					}
				}
				return nil
			},
		}.on(Memory))
	}
	slots.run(b, holders, nil)

	hot := scenario{name: "overrides", limits: []Limit{Ample}, keys: Hot(), callers: []int{1}}
	hot.run(b, []Contestant{
		shape{name: "weir", ask: allowOne}.on(Memory),
		shape{name: "weir, 1 override of another key", ask: allowOne, prepare: setOverrides(1)}.on(Memory),
		shape{name: "weir, 10 000 overrides of other keys", ask: allowOne, prepare: setOverrides(9999)}.on(Memory),
	}, nil)
	set := scenario{name: "setting an override", limits: []Limit{Ample}, keys: Hot(), callers: []int{1}}
	set.run(b, []Contestant{
		shape{name: "the first", ask: setOverride}.on(Memory),
		shape{name: "the 10 000th", ask: setOverride, prepare: setOverrides(9999)}.on(Memory),
	}, nil)
}

// BenchmarkMemoryKeyLimit compares decisions under a bound on the keys of a limit, which is not
// reached, with those without one.
func BenchmarkMemoryKeyLimit(b *testing.B) {
	many := Uniform(1_000_000)
	bounded := memstore.Options{KeyLimit: func(*weir.Limit) weir.KeyLimit { return weir.KeyLimit{MaxKeys: 2_000_000, Overflow: "more"} }}
	for _, s := range []scenario{
		{name: "one key", limits: []Limit{Ample}, keys: Hot(), callers: []int{1, 2}},
		{name: "1 000 000 uniform keys", limits: []Limit{Ample}, keys: many, callers: []int{1, 2}, warm: len(many.draws)},
	} {
		s.run(b, []Contestant{
			shape{name: "weir", ask: allowOne}.on(Memory),
			shape{name: "weir, KeyLimit", ask: allowOne, options: bounded}.on(Memory),
		}, nil)
	}
}

// setOverrides sets so many overrides of other keys.
func setOverrides(n int) func(context.Context, *weir.Limiter) error {
	return func(ctx context.Context, l *weir.Limiter) error {
		for i := range n {
			if _, err := setOverride(ctx, l, "other:"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func setOverride(_ context.Context, l *weir.Limiter, key string) (bool, error) {
	more := weir.PerMinute(500)
	return true, l.SetOverride(key, weir.Override{Limit: &more, Until: time.Now().Add(time.Hour)})
}

// on returns the contestant that is used in the shape.
func (s shape) on(kind Kind) Contestant {
	if kind == Redis {
		return Contestant{Name: s.name, Kind: kind, Open: openWeirRedisShape(&stack.Options{}, s)}
	}
	return Contestant{Name: s.name, Kind: kind, Open: func(e Env) (Limiter, error) {
		o := s.options
		o.MaxBytes = 4 << 30
		return newWeir(e, memstore.New(o), nil, s)
	}}
}
