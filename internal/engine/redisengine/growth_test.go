package redisengine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// content returns the names of all keys with the sizes of their values.
func content(t testing.TB, client *redis.Client) string {
	t.Helper()
	keys, err := client.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	for i, key := range keys {
		keys[i] = fmt.Sprint(key, " ", len(client.Dump(context.Background(), key).Val()))
	}
	return strings.Join(keys, ", ")
}

// TestRefusalsLeaveNothing: no refused take grows a store, but for the seconds in which
// a client may repeat it.
func TestRefusalsLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, ids := range []bool{false, true} {
		client := dial(t, testserver.StartRedis(t).Addr())
		store := open(t, client, redisengine.Options{Timeout: time.Minute})
		if err := storetest.RefuseAll(store, 500, ids, func() string { return content(t, client) }); err != nil {
			t.Error(err)
		}
		grants := 0
		for _, key := range client.Keys(t.Context(), "*}i5:*").Val() {
			if client.PTTL(t.Context(), key).Val() > acts.RefusedIDLife {
				grants++
			}
		}
		if grants != len(algo.Steps) {
			t.Errorf("ids of clients %v: %d ids are remembered as grants are, want %d", ids, grants, len(algo.Steps))
		}
	}
}

// TestRefusalsLeaveNothingApart is the same of a cluster, where a take is granted by
// one slot before another refuses it.
func TestRefusalsLeaveNothingApart(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 3)
	var nodes []*redis.Client
	for _, address := range cluster.Addrs() {
		nodes = append(nodes, dial(t, address))
	}
	store := open(t, dialCluster(t, cluster), redisengine.Options{Timeout: time.Minute})
	err := storetest.RefuseAll(store, 300, false, func() string {
		var all []string
		for _, node := range nodes {
			all = append(all, content(t, node))
		}
		return strings.Join(all, "; ")
	})
	if err != nil {
		t.Error(err)
	}
}
