package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: storetest.StartRedis(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	var opened atomic.Int64
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		prefix := fmt.Sprintf("suite%d:", opened.Add(1))
		store, err := redisstore.NewWithClock(client, redisstore.Options{Prefix: prefix, Timeout: time.Minute}, clock.Micros)
		if err != nil {
			t.Fatal(err)
		}
		return store
	})
}
