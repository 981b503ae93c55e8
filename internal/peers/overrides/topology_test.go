package overrides_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/peers/overrides"
	"github.com/weirlimit/weir/internal/testserver"
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

// TestTopologies: overrides spread in each topology, survive the end of the server that
// had them, and spread again.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) fleet{"cluster": clusterFleet, "sentinel": sentinelFleet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := start(t)
			look := overrides.Options{Poll: 100 * time.Millisecond}
			one, other := startOn(t, fleet.dial(), look), startOn(t, fleet.dial(), look)
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
			startOn(t, fleet.dial(), overrides.Options{Poll: seldom}).learns(t, after)
		})
	}
}
