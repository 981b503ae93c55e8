package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/store"
)

// TestClusterNodes: a replica that was killed is told to be away, and so is a user who
// may not look.
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
			return fmt.Errorf("%d masters, %d replicas, %d away", m, r, bad)
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

// TestNodesMayNotBeLookedAt: it is said what is missing, and nothing is wrong.
func TestNodesMayNotBeLookedAt(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	if _, err := redis.Do("ACL", "SETUSER", "weir", "on", ">password", "~*", "&*", "+@all", "-info"); err != nil {
		t.Fatal(err)
	}
	app := start(t, Options{Store: strings.Replace(redis.URL(), "://", "://weir:password@", 1)})
	want := []store.Node{{Address: redis.Addr(), Role: "server", Detail: "cannot be looked at: want +info"}}
	if told := app.engine.describe(t.Context()); cmp.Diff(want, told.Nodes) != "" || told.Err != nil {
		t.Errorf("%+v", told)
	}
}

// TestInstancesAreTold: as they count themselves, or as the operator says.
func TestInstancesAreTold(t *testing.T) {
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
