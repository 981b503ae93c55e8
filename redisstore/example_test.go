package redisstore_test

import (
	"context"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/stack"
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
	limits := stack.New(store, stack.Options{Logger: slog.Default()})
	defer limits.Stop(context.Background())
	limiter, err := weir.NewLimiter(limits, "api", weir.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	_, _ = limiter.Allow(context.Background(), "user:42")
}
