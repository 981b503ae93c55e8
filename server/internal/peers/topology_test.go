package peers

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

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

// TestOverridesInTopologies: overrides spread in each topology, survive the end of the
// server that had them, and spread again.
func TestOverridesInTopologies(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T) fleet{"cluster": clusterFleet, "sentinel": sentinelFleet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := begin(t)
			dial := func() redis.UniversalClient {
				client := fleet.dial()
				t.Cleanup(func() { _ = client.Close() })
				return client
			}
			one, other := start(t, dial()), start(t, dial())
			must(t, one.set("a", fast))
			must(t, other.set("b", block))
			before := `"a" 100/min burst 20, "b" 0/h fixed_window charge_refused`
			one.learns(t, before)
			other.learns(t, before)
			testserver.Eventually(t, "two instances", func() bool { return one.group.Count() == 2 && other.group.Count() == 2 })
			fleet.kill()
			// A change in between holds here, and reaches the others in the end.
			if err := one.set("c", nil); err != nil {
				t.Logf("while nobody has taken over: %v", err)
			}
			after := before + `, "c" none`
			for _, i := range []*instance{one, other} {
				i.learns(t, after)
			}
			start(t, dial()).learns(t, after)
		})
	}
}
