package peers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
func eventuallyHears(t *testing.T, b *bus, text string, ears ...*ear) {
	t.Helper()
	stopped := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	go func() {
		defer close(stopped)
		for i := 0; ctx.Err() == nil; i++ {
			// Nobody may be there to take it.
			_ = b.publish(ctx, []byte(text))
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
		n, err := node.Do("PUBSUB", "NUMSUB", "weir:peers")
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
	one, first, _ := startBus(t, client, Options{}, 100*time.Millisecond)
	_, second, _ := startBus(t, inCluster(t, cluster), Options{}, 100*time.Millisecond)
	first.joins(t, 1)
	second.joins(t, 1)
	for i, node := range append(cluster.Masters, cluster.Replicas...) {
		text := fmt.Sprint("from node ", i)
		if _, err := node.Do("PUBLISH", "weir:peers", text); err != nil {
			t.Fatal(err)
		}
		first.hears(t, text)
		second.hears(t, text)
	}
	publish(t, one, "from an instance")
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
	one, e, _ := startBus(t, client, Options{}, 100*time.Millisecond)
	e.joins(t, 1)
	subscribed(t, cluster).Kill()
	eventuallyHears(t, one, "by another node", e)
}

// TestSentinel: the master that takes over is joined.
func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel := testserver.StartSentinel(t, 1)
	one, first, _ := startBus(t, bySentinels(t, sentinel), Options{}, 100*time.Millisecond)
	_, second, _ := startBus(t, bySentinels(t, sentinel), Options{}, 100*time.Millisecond)
	first.joins(t, 1)
	second.joins(t, 1)
	publish(t, one, "from the first master")
	second.hears(t, "from the first master")
	sentinel.Master.Kill()
	eventuallyHears(t, one, "from the second master", first, second)
	first.joins(t, 2)
	second.joins(t, 2)
}

// A fleet makes instances in one topology, and takes away the server that has the
// overrides.
type fleet struct {
	dial func() redis.UniversalClient
	kill func()
}

func clusterFleet(t *testing.T) fleet {
	cluster := testserver.StartReplicatedCluster(t, 3)
	dial := func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), DialTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true})
	}
	return fleet{dial, func() {
		client := dial()
		defer client.Close()
		slot, err := client.ClusterKeySlot(context.Background(), limitsAndEnds[0]).Result()
		must(t, err)
		cluster.Owner(int(slot)).Kill()
	}}
}

func sentinelFleet(t *testing.T) fleet {
	sentinel := testserver.StartSentinel(t, 1)
	return fleet{func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: testserver.SentinelMaster, SentinelAddrs: sentinel.Addrs(), MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		})
	}, sentinel.Master.Kill}
}

// TestOverridesInTopologies: overrides spread in each topology, survive the end of the server that
// had them, and spread again.
func TestOverridesInTopologies(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) fleet{"cluster": clusterFleet, "sentinel": sentinelFleet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := start(t)
			const look = 100 * time.Millisecond
			one, other := startOn(t, fleet.dial(), look, Options{}), startOn(t, fleet.dial(), look, Options{})
			must(t, one.set("a", fast))
			must(t, other.set("b", block))
			before := `"a" 100/min burst 20, "b" 0/h fixed_window charge_refused`
			one.learns(t, before)
			other.learns(t, before)
			fleet.kill()
			// A change in between holds here, and the others hear of it in the end.
			if err := one.set("c", nil); err != nil {
				t.Logf("while nobody has taken over: %v", err)
			}
			after := before + `, "c" none`
			for _, i := range []*instance{one, other} {
				i.learns(t, after)
			}
			startOn(t, fleet.dial(), seldom, Options{}).learns(t, after)
		})
	}
}
