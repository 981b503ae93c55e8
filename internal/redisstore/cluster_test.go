package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// dialCluster connects to a cluster that may be slow.
func dialCluster(t testing.TB, c *testserver.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 8 * time.Millisecond,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestStoreOnCluster runs the suite on a cluster, where charges of one act that name
// no slot lie apart.
func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	for _, program := range testserver.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			suiteOnCluster(t, program.Cluster(t, 3))
		})
	}
}

func suiteOnCluster(t *testing.T, cluster *testserver.Cluster) {
	t.Helper()
	client := dialCluster(t, cluster)
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
