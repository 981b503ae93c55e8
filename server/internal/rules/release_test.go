package rules_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestUndecidedTakesAreReleased: if the store decides only a part of a request, what it has
// granted is released, unless the caller has an ID to repeat the request with.
func TestUndecidedTakesAreReleased(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {name: user, requests_per_unit: 10, unit: hour, algorithm: gcra}}
  - {key: job, rate_limit: {name: job, requests_per_unit: 10, period: 1h, algorithm: concurrency}}
  - {key: alone, rate_limit: {name: alone, requests_per_unit: 10, unit: hour}}
`)
	for name, c := range map[string]struct {
		key  string
		ask  rules.Request
		left int64
	}{
		"a hold":       {"user", rules.Request{Hold: time.Minute}, 10},
		"a slot":       {"job", rules.Request{}, 10},
		"an ID":        {"user", rules.Request{ID: "x", Hold: time.Minute}, 9},
		"nothing held": {"user", rules.Request{}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memengine.New(memengine.Options{})
			broken := acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
				store.Take(ctx, all)
				for _, a := range all {
					if a.Charges[0].Limit.Name == "alone" {
						a.Err = weir.ErrAmbiguous
					}
				}
			})
			take := func(taker weir.Taker, ask rules.Request, keys ...string) (*rules.Plan, error) {
				ask.Domain = "d"
				for _, key := range keys {
					ask.Descriptors = append(ask.Descriptors, []rules.Entry{{Key: key, Value: "1"}})
				}
				plan, err := set.Plan(&ask)
				if err != nil {
					t.Fatal(err)
				}
				return plan, plan.Take(t.Context(), taker)
			}
			c.ask.Cost = 1
			if _, err := take(broken, c.ask, c.key, "alone"); !errors.Is(err, weir.ErrAmbiguous) {
				t.Errorf("got %v", err)
			}
			plan, err := take(store, rules.Request{}, c.key)
			if left := plan.Applied[0].Decision().Remaining; err != nil || left != c.left {
				t.Errorf("%d remain, %v, want %d", left, err, c.left)
			}
		})
	}
}
