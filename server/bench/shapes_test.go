package bench

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/stack"
)

// A shape is a use of a limiter that could cost more than a plain decision.
type shape struct {
	name string
	ask  askFunc
}

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

// BenchmarkRedisShapes compares uses of a limiter on Redis with the plain one.
func BenchmarkRedisShapes(b *testing.B) {
	r := startServer(b)
	for _, s := range []struct {
		scenario
		shapes []shape
	}{
		{
			scenario{name: "holds of 10 000 keys", limits: []Limit{Ample}, keys: Uniform(10_000), callers: []int{64}},
			[]shape{{"weir", allowOne}, {"weir, hold and settle", holdAndSettle}},
		},
	} {
		var all []Contestant
		for _, sh := range s.shapes {
			all = append(all, Contestant{Name: sh.name, Kind: Redis, Open: openWeirRedisShape(&stack.Options{}, sh.ask)})
		}
		s.run(b, all, r)
	}
}
