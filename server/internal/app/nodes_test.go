package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/dashboard"
)

func TestClusterView(t *testing.T) {
	t.Parallel()
	const text = `
a1 10.0.0.2:6379@16379,two.example master - 0 0 2 connected 5461-10922
a0 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460
b1 10.0.0.5:6379@16379 slave a1 0 0 2 disconnected
b0 10.0.0.4:6379@16379 slave,fail a0 0 0 1 disconnected
a2 10.0.0.3:6379@16379 master,fail? - 0 0 3 connected 10923-16000 16002-16383
n0 10.0.0.9:6379@16379 handshake - 0 0 0 disconnected
c0 10.0.0.7:6379@16379 master - 0 0 0 connected

too short
`
	want := []dashboard.Node{
		{Address: "10.0.0.1:6379", Role: "master", Detail: "slots 0-5460"},
		{Address: "10.0.0.4:6379", Role: "replica", Detail: "unreachable; of 10.0.0.1:6379", Bad: true},
		{Address: "10.0.0.2:6379", Role: "master", Detail: "slots 5461-10922"},
		{Address: "10.0.0.5:6379", Role: "replica", Detail: "not connected to another node; of 10.0.0.2:6379", Bad: true},
		{Address: "10.0.0.3:6379", Role: "master", Detail: "does not answer another node; slots 10923-16000 16002-16383", Bad: true},
		{Address: "10.0.0.7:6379", Role: "master", Detail: "no slots"},
		{Address: "10.0.0.9:6379", Role: "master", Detail: "not known well yet; no slots", Bad: true},
	}
	if diff := cmp.Diff(want, clusterView(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReplication(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		info string
		want []dashboard.Node
	}{
		"alone": {"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n", []dashboard.Node{{Address: "h:1", Role: "master"}}},
		"replicas": {"role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1,lag=0\r\nslave1:ip=10.0.0.3,port=6381,state=wait_bgsave,offset=0,lag=0\r\n", []dashboard.Node{
			{Address: "h:1", Role: "master"}, {Address: "10.0.0.2:6380", Role: "replica", Detail: "online"}, {Address: "10.0.0.3:6381", Role: "replica", Detail: "wait_bgsave", Bad: true},
		}},
		"a replica": {"role:slave\r\nslave_read_only:1\r\n", []dashboard.Node{{Address: "h:1", Role: "replica", Detail: "takes no writes", Bad: true}}},
	} {
		if diff := cmp.Diff(tc.want, replication("h:1", tc.info)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestSeen reads what sentinels say.
func TestSeen(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"master":                    "",
		"s_down,master":             "unreachable, as one sentinel says",
		"s_down,o_down,master":      "unreachable, as most sentinels say",
		"s_down,slave,disconnected": "unreachable, as one sentinel says",
		"master,disconnected":       "not connected to a sentinel",
	} {
		got := seen(roleMaster, map[string]string{"ip": "::1", "port": "1", "flags": flags})
		if got.Address != "[::1]:1" || got.Detail != want || got.Bad != (want != "") {
			t.Errorf("%s: %+v", flags, got)
		}
	}
	if got := seen(roleReplica, map[string]string{"flags": "slave", "master-link-status": "err"}); !got.Bad {
		t.Errorf("a replica without its master: %+v", got)
	}
}

// TestNodesAreAskedAtATime: many pages are one question, also where who asked has
// gone.
func TestNodesAreAskedAtATime(t *testing.T) {
	t.Parallel()
	asked := 0
	n := &nodes{ask: func(ctx context.Context) []dashboard.Node {
		asked++
		if ctx.Err() != nil {
			t.Errorf("asked with %v", ctx.Err())
		}
		return []dashboard.Node{{Address: "h:1"}}
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if got := n.look(gone); len(got) != 1 {
			t.Errorf("got %v", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// TestClusterNodes: a replica that was killed is told to be away, and so is a user who
// may not look.
func TestClusterNodes(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartReplicatedCluster(t, 3)
	app := start(t, Options{Store: cluster.URL()})
	roles := func(all []dashboard.Node) (masters, replicas, bad int) {
		for _, n := range all {
			switch {
			case n.Bad:
				bad++
			case n.Role == roleMaster:
				masters++
			default:
				replicas++
			}
		}
		return masters, replicas, bad
	}
	eventually(t, func() error {
		if m, r, bad := roles(app.storeState(t.Context()).Nodes); m != 3 || r != 3 || bad != 0 {
			return fmt.Errorf("%d masters, %d replicas, %d away", m, r, bad)
		}
		return nil
	})
	cluster.Replicas[1].Kill()
	eventually(t, func() error {
		all := app.storeState(t.Context()).Nodes
		at := slices.IndexFunc(all, func(n dashboard.Node) bool { return n.Address == cluster.Replicas[1].Addr() })
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
	want := []dashboard.Node{{Address: redis.Addr(), Role: "server", Detail: "cannot be looked at: want +info"}}
	if told := app.storeState(t.Context()); cmp.Diff(want, told.Nodes) != "" || told.Err != nil {
		t.Errorf("%+v", told)
	}
	if got := unknown("h:1", roleSentinel, errors.New("refused"), ""); !got.Bad || got.Detail != "unreachable: refused" {
		t.Errorf("%+v", got)
	}
}

// TestInstancesAreTold: as they count themselves, or as the operator says.
func TestInstancesAreTold(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	one, _ := start(t, Options{Store: redis.URL()}), start(t, Options{Store: redis.URL()})
	eventually(t, func() error {
		if got := one.instancesKnown(); got != "2 share this store" {
			return errors.New(got)
		}
		return nil
	})
	if got := start(t, Options{Store: redis.URL(), Fallback: FallbackOptions{Instances: 5}}).instancesKnown(); got != "5, as --instances says" {
		t.Error(got)
	}
}
