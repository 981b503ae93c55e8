package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

func Example() {
	options, err := redis.ParseURL("redis://redis.internal:6379/0")
	if err != nil {
		log.Fatal(err)
	}
	options.ContextTimeoutEnabled = true   // a call ends when its caller leaves,
	options.ReadTimeout = 10 * time.Second // and a late reply is read all the same
	client := redis.NewClient(options)
	defer client.Close()

	store, err := redisstore.New(client, redisstore.Options{Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Stop(context.Background())
	limiter, err := weir.NewLimiter(store, "api", weir.PerMinute(100))
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
	client := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{
		Instances: func() int { return 3 },
		OnOutage: func(l *weir.Limit) redisstore.Policy {
			if l.Name == "logins" {
				return redisstore.Deny
			}
			return redisstore.Local
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Stats().Local, "decided without Redis")
	fmt.Println("all recorded:", store.Stop(context.Background()) == nil)
	// Output:
	// 0 decided without Redis
	// all recorded: true
}

func ExampleNew_leases() {
	client := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{
		Leased: func(l *weir.Limit) bool { return l.Name == "events" },
	})
	if err != nil {
		log.Fatal(err)
	}
	store.Start()
	defer store.Stop(context.Background()) // returns what is not spent
	limiter, err := weir.NewLimiter(store, "ingest", weir.Limit{Name: "events", Count: 1_000_000, Period: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 {
		if _, err := limiter.Allow(context.Background(), "tenant:7"); err != nil {
			log.Print(err)
		}
	}
	fmt.Println(store.Stats().LeaseSpent, "paid without asking Redis")
}
