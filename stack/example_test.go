package stack_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/fallback"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/stack"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	limits := stack.New(store, stack.Options{Logger: slog.Default()})
	defer limits.Stop(context.Background())
	limiter, err := weir.NewLimiter(limits, weir.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(context.Background(), "user:42")
	if err != nil {
		log.Print(err) // Redis is unreachable, since when and why
		return
	}
	fmt.Println(d.Allowed(), d.RetryAfter)
}

func ExampleNew_fallback() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis

	limits := stack.New(store, stack.Options{Fallback: &fallback.Options{
		Instances: func() int { return 3 },
		Policy: func(c *weir.Charge) fallback.Policy {
			if c.Limit.Name == "logins" {
				return fallback.Deny
			}
			return fallback.Local
		},
	}})
	fmt.Println(limits.Fallback().Stats().Local, "decided without the store")
	fmt.Println("all settled:", limits.Stop(ctx) == nil)
	// Output:
	// 0 decided without the store
	// all settled: true
}

func ExampleNew_leases() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis

	limits := stack.New(store, stack.Options{Lease: lease.Options{
		Leased: func(l *weir.Limit) bool { return l.Name == "events" },
	}})
	limits.Start()
	limiter, err := weir.NewLimiter(limits, weir.Limit{Name: "events", Count: 1_000_000, Period: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 1000 {
		if _, err := limiter.Allow(ctx, "tenant:7"); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("without asking the store:", limits.Lease().Stats().Spent > 900)
	fmt.Println("given back:", limits.Stop(ctx) == nil)
	// Output:
	// without asking the store: true
	// given back: true
}
