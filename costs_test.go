package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// metered returns a limiter of requests, input, output and slots.
func metered(t *testing.T, store weir.Taker) *weir.Limiter {
	t.Helper()
	limit := func(name, meter string, count int64) weir.Limit {
		return weir.Limit{Name: name, Meter: meter, Count: count, Period: time.Hour}
	}
	slots := weir.Limit{Name: "slots", Algorithm: weir.Concurrency, Count: 2, Period: time.Minute}
	l, err := weir.NewLimiter(store, "test", limit("rpm", "", 3), limit("in", "input", 1000), limit("out", "output", 500), slots)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCosts(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	shared, err := redisstore.New(client, redisstore.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]weir.Taker{"memory": memstore.New(memstore.Options{}), "redis": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := metered(t, store)
			left := func() (left [4]int64) {
				act := l.Act(weir.KindTake, "k", 0)
				l.Take(ctx, []*weir.Act{act})
				if act.Err != nil {
					t.Fatal(act.Err)
				}
				for i := range left {
					left[i] = act.Decisions[i].Remaining
				}
				return left
			}
			h, err := l.HoldCosts(ctx, "k", weir.Costs{"input": 100, "output": 400, "usd": 7}, time.Hour)
			if err != nil || !h.OK() {
				t.Fatal(h, err)
			}
			if got := left(); got != [4]int64{2, 900, 100, 1} {
				t.Errorf("held: %v remain", got)
			}
			// One number does not fit, so none is charged.
			refused, err := l.HoldCosts(ctx, "k", weir.Costs{"input": 1, "output": 101}, time.Hour)
			if err != nil || refused.OK() {
				t.Fatal(refused, err)
			}
			if got := left(); got != [4]int64{2, 900, 100, 1} {
				t.Errorf("refused: %v remain", got)
			}
			// More than was held is charged all the same, less is refunded.
			for range 2 {
				if _, err := h.SettleCosts(ctx, weir.Costs{"input": 150, "output": 10}); err != nil {
					t.Fatal(err)
				}
			}
			if got := left(); got != [4]int64{2, 850, 490, 2} {
				t.Errorf("settled: %v remain", got)
			}
			if _, err := h.SettleCosts(ctx, weir.Costs{"input": 150, "output": 11}); !errors.Is(err, weir.ErrSettled) {
				t.Errorf("settled with another number: %v", err)
			}
		})
	}
}

func TestCostsInvalid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := metered(t, memstore.New(memstore.Options{}))
	for _, costs := range []weir.Costs{nil, {"input": 1}, {"input": -1, "output": 1}, {"input": 1, "output": weir.MaxCost + 1}} {
		var invalid *weir.InvalidError
		if _, err := l.HoldCosts(ctx, "k", costs, time.Hour); !errors.As(err, &invalid) || invalid.Field != "costs" {
			t.Errorf("%v: %v", costs, err)
		}
	}
	if d, err := l.Peek(ctx, "k"); err != nil || d.Remaining != 3 {
		t.Errorf("something was charged: %+v, %v", d, err)
	}
}
