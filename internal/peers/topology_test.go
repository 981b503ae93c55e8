package peers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/peers"
	"github.com/weirlimit/weir/internal/testserver"
)

// inCluster and bySentinels are clients as the server has them.
func inCluster(t *testing.T, c *testserver.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DisableIdentity: true, DialTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func bySentinels(t *testing.T, s *testserver.Sentinel) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: testserver.SentinelMaster, SentinelAddrs: s.Addrs(), MaxRetries: -1, DisableIdentity: true, DialTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// eventuallyHears repeats a message, which can get lost, until it is heard by all.
func eventuallyHears(t *testing.T, b peers.Bus, text string, ears ...*ear) {
	t.Helper()
	stopped := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	go func() {
		defer close(stopped)
		for i := 0; ctx.Err() == nil; i++ {
			// Nobody may be there to take it.
			_ = b.Publish(ctx, "topic", []byte(text))
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	for _, e := range ears {
		e.hears(t, text)
	}
	cancel()
	<-stopped
}

// subscribed returns a master that somebody has subscribed to.
func subscribed(t *testing.T, c *testserver.Cluster) *testserver.Redis {
	t.Helper()
	for _, node := range c.Masters {
		n, err := node.Do("PUBSUB", "NUMSUB", "weir:notice:topic")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(n, "\n0") {
			return node
		}
	}
	t.Fatal("nobody has subscribed to any master")
	return nil
}

// TestCluster publishes on each node, and is heard on all, also after a node went
// away that subscribers were connected to.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartReplicatedCluster(t, 3)
	client := inCluster(t, cluster)
	one, first := bus(t, client, peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	_, second := bus(t, inCluster(t, cluster), peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	first.joins(t, 1)
	second.joins(t, 1)
	for i, node := range append(cluster.Masters, cluster.Replicas...) {
		text := fmt.Sprint("from node ", i)
		if _, err := node.Do("PUBLISH", "weir:notice:topic", text); err != nil {
			t.Fatal(err)
		}
		first.hears(t, text)
		second.hears(t, text)
	}
	publish(t, one, "topic", "from an instance")
	first.hears(t, "from an instance")
	second.hears(t, "from an instance")
	subscribed(t, cluster).Kill()
	eventuallyHears(t, one, "after a failover", first, second)
}

// TestClusterWithoutANode: subscribers of a node that nothing takes the place of are
// reached by another one.
func TestClusterWithoutANode(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	client := inCluster(t, cluster)
	one, e := bus(t, client, peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	e.joins(t, 1)
	subscribed(t, cluster).Kill()
	eventuallyHears(t, one, "by another node", e)
}

// TestSentinel: the master that takes over is joined.
func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel := testserver.StartSentinel(t, 1)
	one, first := bus(t, bySentinels(t, sentinel), peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	_, second := bus(t, bySentinels(t, sentinel), peers.RedisOptions{Heartbeat: 100 * time.Millisecond})
	first.joins(t, 1)
	second.joins(t, 1)
	publish(t, one, "topic", "from the first master")
	second.hears(t, "from the first master")
	sentinel.Master.Kill()
	eventuallyHears(t, one, "from the second master", first, second)
	first.joins(t, 2)
	second.joins(t, 2)
}
