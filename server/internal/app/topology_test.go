package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/store"
)

// TestTopologies has two instances share limits in each topology of Redis.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"one":      testserver.StartRedis(t).URL(),
		"cluster":  testserver.StartCluster(t, 3, "--cluster-require-full-coverage", "no").URL(),
		"sentinel": testserver.StartSentinel(t, 1).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serves(t, start(t, Options{Store: url}), start(t, Options{Store: url}))
		})
	}
}

// serves demands that instances are ready and share the limits of their store.
func serves(t *testing.T, apps ...*App) {
	t.Helper()
	for _, app := range apps {
		eventually(t, func() error {
			if status, body := details(t, app); status != http.StatusOK || !strings.Contains(body, `{"name":"store settings","ok":true}`) {
				return fmt.Errorf("readyz: %d %s", status, body)
			}
			return nil
		})
	}
	for i, want := range []int{204, 204, 204, 204, 204, 429} {
		if status, body := get(t, apps[i%len(apps)], "/v1/auth?domain=demo&user=alice"); status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
}

// TestStorePasswords: passwords that a store cannot have are refused, and not repeated.
func TestStorePasswords(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, "first\n")
	for _, o := range []Options{
		{Store: "redis://weir:hunter2@h", StorePasswords: store.Passwords{File: file}},
		{Store: "redis://weir@h", StorePasswords: store.Passwords{File: file + "?"}},
		{Store: "redis://weir@h", StorePasswords: store.Passwords{SentinelFile: file}},
		{Store: "memory", StorePasswords: store.Passwords{File: file}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "store") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", o.StorePasswords, err)
		}
	}
}

// TestFindingsInReadiness: a store that cannot work keeps the server from being
// ready; one that works badly is told.
func TestFindingsInReadiness(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]*testserver.Redis{
		"503 a node of a cluster": testserver.StartRedis(t, "--cluster-enabled", "yes"),
		"503 a replica":           testserver.StartRedis(t, "--replicaof", "127.0.0.1 1"),
		"200 allkeys-lru":         testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
	} {
		app := start(t, Options{Store: server.URL()})
		status, body := details(t, app)
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(status) != code || !strings.Contains(body, text) || !strings.Contains(body, `"name":"store settings","ok":false`) {
			t.Errorf("%s: %d %s", want, status, body)
		}
	}
}

// TestClusterNodes: a replica that was killed is listed as unreachable, with its master.
func TestClusterNodes(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartReplicatedCluster(t, 3)
	app := start(t, Options{Store: cluster.URL()})
	roles := func(all []store.Node) (masters, replicas, bad int) {
		for _, n := range all {
			switch {
			case n.Bad:
				bad++
			case n.Role == "master":
				masters++
			default:
				replicas++
			}
		}
		return masters, replicas, bad
	}
	eventually(t, func() error {
		if m, r, bad := roles(app.engine.describe(t.Context()).Nodes); m != 3 || r != 3 || bad != 0 {
			return fmt.Errorf("%d masters, %d replicas, %d unreachable", m, r, bad)
		}
		return nil
	})
	cluster.Replicas[1].Kill()
	eventually(t, func() error {
		all := app.engine.describe(t.Context()).Nodes
		at := slices.IndexFunc(all, func(n store.Node) bool { return n.Address == cluster.Replicas[1].Addr() })
		if m, r, bad := roles(all); m != 3 || r != 2 || bad != 1 || !strings.HasPrefix(all[at].Detail, "unreachable; of "+cluster.Masters[1].Addr()) {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// TestNodesWithoutInfo: a node names the permission that the user lacks, and is no bad one.
func TestNodesWithoutInfo(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	if _, err := redis.Do("ACL", "SETUSER", "weir", "on", ">password", "~*", "&*", "+@all", "-info"); err != nil {
		t.Fatal(err)
	}
	app := start(t, Options{Store: strings.Replace(redis.URL(), "://", "://weir:password@", 1)})
	want := []store.Node{{Address: redis.Addr(), Role: "server", Detail: "cannot be looked at: want +info"}}
	if got := app.engine.describe(t.Context()); cmp.Diff(want, got.Nodes) != "" || got.Err != nil {
		t.Errorf("%+v", got)
	}
}

// TestInstancesText: the number of instances is what they count, or what the operator sets.
func TestInstancesText(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	one, _ := start(t, Options{Store: redis.URL()}), start(t, Options{Store: redis.URL()})
	eventually(t, func() error {
		if got := one.engine.instancesText(); got != "2 share this store" {
			return errors.New(got)
		}
		return nil
	})
	if got := start(t, Options{Store: redis.URL(), Fallback: FallbackOptions{Instances: 5}}).engine.instancesText(); got != "5, as --instances says" {
		t.Error(got)
	}
}
