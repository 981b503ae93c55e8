package redisengine_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
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
// no slot lie apart. [TestTwinsOnCluster] compares it with a store in memory.
func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	onPrograms(t, func(t *testing.T, program testserver.Spec) {
		storetest.Run(t, onOne(dialCluster(t, program.Cluster(t, 3))))
	})
}
