package override_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// BenchmarkTake is what the decorator itself costs: over a Taker that does nothing.
func BenchmarkTake(b *testing.B) {
	limit := weir.PerHour(10).MustCompile()
	for _, c := range []struct {
		name   string
		others int
		set    bool
	}{{"none", 0, false}, {"others", 10_000, false}, {"its own", 9_999, true}} {
		b.Run(c.name, func(b *testing.B) {
			taker := override.Wrap(idle{}, override.Options{})
			var list []override.Override
			for i := range c.others {
				list = append(list, override.Override{Key: fmt.Sprint("other", i), Limit: limit, Until: time.Now().Add(time.Hour)})
			}
			taker.Replace(list)
			if c.set {
				set(b, taker, "k", weir.PerHour(20), time.Now().Add(time.Hour))
			}
			acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})}
			b.ReportAllocs()
			for b.Loop() {
				taker.Take(context.Background(), acts)
			}
		})
	}
}
