package stack_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
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
	limiter, err := weir.NewLimiter(limits, "api", weir.PerMinute(100))
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

func ExampleNew_outages() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis

	limits := stack.New(store, stack.Options{
		Instances: func() int { return 3 },
		OnOutage: func(c *weir.Charge) stack.Policy {
			if c.Limit.Name == "logins" {
				return stack.Deny
			}
			return stack.Local
		},
	})
	fmt.Println(limits.Stats().Local, "decided without the store")
	fmt.Println("all recorded:", limits.Stop(ctx) == nil)
	// Output:
	// 0 decided without the store
	// all recorded: true
}

func ExampleNew_leases() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis

	limits := stack.New(store, stack.Options{
		Leased: func(l *weir.Limit) bool { return l.Name == "events" },
	})
	limits.Start()
	limiter, err := weir.NewLimiter(limits, "events", weir.Limit{Name: "events", Count: 1_000_000, Period: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 1000 {
		if _, err := limiter.Allow(ctx, "tenant:7"); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("without asking the store:", limits.Stats().LeaseSpent > 900)
	fmt.Println("returned:", limits.Stop(ctx) == nil)
	// Output:
	// without asking the store: true
	// returned: true
}

func Example_override() {
	ctx := context.Background()
	limits := stack.New(memstore.New(memstore.Options{}), stack.Options{})
	api, err := weir.NewLimiter(limits, "api", weir.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	more, none := weir.PerMinute(500), weir.PerMinute(0)
	for tenant, o := range map[string]weir.Override{
		"tenant:7": {Limit: &more, Until: tomorrow},
		"tenant:8": {Limit: &none, Until: tomorrow}, // blocked
		"tenant:9": {Until: tomorrow},               // no limit
	} {
		if err := api.SetOverride(tenant, o); err != nil {
			log.Fatal(err)
		}
	}
	for _, key := range []string{"tenant:6", "tenant:7", "tenant:8", "tenant:9"} {
		d, err := api.AllowN(ctx, key, 10)
		fmt.Println(key, d.Allowed(), d.Remaining, err)
	}
	fmt.Println(api.RemoveOverride("tenant:8"))
	// Output:
	// tenant:6 true 0 <nil>
	// tenant:7 true 490 <nil>
	// tenant:8 false 0 <nil>
	// tenant:9 true 1000000000 <nil>
	// true
}

func ExampleOptions_keyLimit() {
	ctx := context.Background()
	limits := stack.New(memstore.New(memstore.Options{}), stack.Options{
		KeyLimit: func(l *weir.Limit) stack.KeyLimit {
			return stack.KeyLimit{MaxKeys: 100_000, Overflow: "too many of " + l.Name}
		},
	})
	limiter, err := weir.NewLimiter(limits, "api", weir.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(ctx, "token:made-up")
	fmt.Println(d.Allowed(), limits.Stats().KeyLimits[0].Keys, err)
	// Output: true 1 <nil>
}
