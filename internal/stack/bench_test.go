package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// BenchmarkAllow is what a limiter costs over a stack that need not ask its store: of a
// key that is known to be refused, and of one that has a share.
func BenchmarkAllow(b *testing.B) {
	all := func(*weir.Limit) bool { return true }
	for name, work := range map[string]struct {
		limit weir.Limit
		o     stack.Options
		from  weir.Source
	}{
		"refused": {weir.PerDay(1), stack.Options{DenyCacheMaxAge: time.Hour}, acts.SourceDenyCache},
		"leased":  {weir.PerHour(1_000_000_000), stack.Options{Leased: all}, acts.SourceLease},
	} {
		b.Run(name, func(b *testing.B) {
			limiter, err := weir.NewLimiter(stack.New(storetest.Alone{Taker: memengine.New(memengine.Options{})}, work.o), "test", work.limit)
			if err != nil {
				b.Fatal(err)
			}
			var d weir.Decision
			for range 100_000 {
				d, _ = limiter.Allow(context.Background(), "user:42")
			}
			if d.Source != work.from {
				b.Fatalf("%+v", d)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := limiter.Allow(context.Background(), "user:42"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
