package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
)

var _ weir.Taker = (*weir.Limiter)(nil)

// TestLimiterActSharesTheBudget charges by an act and by the limiter's own verbs.
func TestLimiterActSharesTheBudget(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][]weir.Limit{
		"one":     {weir.PerHour(5)},
		"several": {weir.PerHour(5), {Name: "day", Count: 9, Period: 24 * time.Hour}},
	} {
		limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "test", limits...)
		if err != nil {
			t.Fatal(err)
		}
		act := limiter.Act(acts.KindTake, "k", 3)
		limiter.Take(context.Background(), []*weir.Act{act})
		if !act.Allowed() || act.Decisions[0].Remaining != 2 || len(act.Decisions) != len(limits) {
			t.Errorf("%s: %v, %+v", name, act.Err, act.Decisions)
		}
		if d, err := limiter.AllowN(context.Background(), "k", 3); err != nil || d.Allowed() || d.Remaining != 2 {
			t.Errorf("%s: after the act: %+v, %v", name, d, err)
		}
	}
}
