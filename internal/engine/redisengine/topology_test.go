package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// hashSlot is the slot of a key in a cluster.
func hashSlot(t *testing.T, client *redis.ClusterClient, key string) int {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// TestSlotsMove moves a slot to and fro while callers charge keys in it: each single
// charge is made once, whatever the slot does, and nothing but what moves can have
// acts refused that charge several keys.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 3)
	client := dialCluster(t, cluster)
	store := open(t, client, redisengine.Options{Timeout: time.Minute})
	limit := fixedOf(1_000_000)
	single := weir.Charge{Key: "single", HashTag: "moving", Limit: limit, Cost: 1}
	two := []weir.Charge{{Key: "one", HashTag: "moving", Limit: limit, Cost: 1}, {Key: "two", HashTag: "moving", Limit: limit, Cost: 1}}
	slot := hashSlot(t, client, store.KeyOf(&single))
	var singles, pairs, refused, stopped atomic.Int64
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for stopped.Load() == 0 {
				acts := []*weir.Act{storetest.NewAct(single), storetest.NewAct(single)}
				if caller == 0 {
					acts = append(acts, storetest.NewAct(two...))
				}
				store.Take(context.Background(), acts)
				for _, a := range acts {
					switch {
					case a.Err == nil && len(a.Charges) == 1:
						singles.Add(1)
					case a.Err == nil:
						pairs.Add(1)
					case len(a.Charges) > 1 && errors.Is(a.Err, weir.ErrNotApplied):
						refused.Add(1)
					default:
						t.Error(a.Err)
					}
				}
			}
		})
	}
	from := cluster.Owner(slot)
	for i := 0; i < 10 || singles.Load() < 100; i++ {
		to := cluster.Masters[i%3]
		if to == from {
			continue
		}
		if err := cluster.Move(slot, from, to); err != nil {
			t.Error(err)
			break
		}
		from = to
	}
	stopped.Store(1)
	callers.Wait()
	if got := spent(t, store, "single", limit, "moving"); got != singles.Load() {
		t.Errorf("charged %d, granted %d", got, singles.Load())
	}
	if got := spent(t, store, "one", limit, "moving"); got != pairs.Load() {
		t.Errorf("charged %d, granted %d pairs", got, pairs.Load())
	}
	t.Logf("%d single charges, %d of pairs, %d pairs not applied", singles.Load(), pairs.Load(), refused.Load())
}

// TestSlotInBetween stops a slot half-way.
func TestSlotInBetween(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 2)
	client := dialCluster(t, cluster)
	store := open(t, client, redisengine.Options{})
	single := weir.Charge{Key: "single", HashTag: "moving", Limit: perDay, Cost: 1}
	slot := hashSlot(t, client, store.KeyOf(&single))
	from, to := cluster.Masters[0], cluster.Masters[1]
	if cluster.Owner(slot) == to {
		from, to = to, from
	}
	old := storetest.NewAct(single)
	if store.Take(t.Context(), []*weir.Act{old}); !old.Allowed() {
		t.Fatal(old.Err)
	}
	if err := cluster.Begin(slot, from, to); err != nil {
		t.Fatal(err)
	}
	fresh := single
	fresh.Key = "fresh"
	other := weir.Charge{Key: "elsewhere", Limit: perDay, Cost: 1}
	acts := []*weir.Act{storetest.NewAct(single), storetest.NewAct(fresh), storetest.NewAct(single, fresh), storetest.NewAct(fresh), storetest.NewAct(other)}
	store.Take(t.Context(), acts)
	for i, remains := range []int64{98, 99, 0, 98, 99} {
		a := acts[i]
		if len(a.Charges) > 1 {
			if !errors.Is(a.Err, weir.ErrNotApplied) {
				t.Errorf("two keys of a slot in between: %+v, %v", a.Decisions, a.Err)
			}
		} else if a.Err != nil || a.Decisions[0].Remaining != remains {
			t.Errorf("act %d: %+v, %v", i, a.Decisions, a.Err)
		}
	}
}

// TestAffectedSlotsDegrade kills a master that has no replica: only its slots are without
// answers, or all of them for a while if the cluster requires full coverage. Acts and probes
// name the master that decides them.
func TestAffectedSlotsDegrade(t *testing.T) {
	t.Parallel()
	for _, required := range []string{"no", "yes"} {
		t.Run("full coverage "+required, func(t *testing.T) {
			t.Parallel()
			slotsDegrade(t, required == "yes")
		})
	}
}

func slotsDegrade(t *testing.T, coverage bool) {
	t.Helper()
	required := "no"
	if coverage {
		required = "yes"
	}
	cluster := testserver.StartCluster(t, 3, "--cluster-require-full-coverage", required)
	client := dialCluster(t, cluster)
	store := open(t, client, redisengine.Options{Timeout: 3 * time.Second})
	if a := takeOne(store, "locates the slots"); !a.Allowed() {
		t.Fatal(a.Err)
	}
	var well, ill []*weir.Act
	for i := range 60 {
		a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", i), Limit: perDay, Cost: 1})
		owner := cluster.Owner(hashSlot(t, client, store.KeyOf(&a.Charges[0])))
		if owner == cluster.Masters[1] {
			ill = append(ill, a)
		} else {
			well = append(well, a)
		}
		// A client that asked for the slots too early names any node for slots whose
		// master it does not know.
		testserver.Eventually(t, a.Charges[0].Key+" is at "+owner.Addr(), func() bool {
			node, _, alone := store.Locate(a)
			if node != owner.Addr() {
				client.ReloadState(t.Context())
			}
			return node == owner.Addr() && alone
		})
	}
	nodes := store.Nodes(storetest.NewAct(ill[0].Charges[0], well[0].Charges[0]))
	if len(nodes) != 2 || nodes[0] != cluster.Masters[1].Addr() || nodes[1] == nodes[0] {
		t.Errorf("two charges are at %v", nodes)
	}
	cluster.Masters[1].Kill()
	for i, node := range nodes {
		if err := store.Probe(t.Context(), node); (err == nil) != (i == 1) {
			t.Errorf("probe of %s, of which %s was killed: %v", node, nodes[0], err)
		}
	}
	store.Take(t.Context(), append(append([]*weir.Act(nil), ill...), well...))
	for _, a := range well {
		if !a.Allowed() {
			t.Errorf("a slot that is well: %v", a.Err)
		}
	}
	if coverage {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if a := takeOne(store, well[0].Charges[0].Key); errors.Is(a.Err, weir.ErrNotApplied) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("a slot of another master has answers although the cluster requires full coverage")
			}
		}
	}
	for _, a := range ill {
		if !errors.Is(a.Err, weir.ErrNotApplied) && !errors.Is(a.Err, weir.ErrAmbiguous) {
			t.Errorf("a slot that is not: %v", a.Err)
		}
	}
}

// TestFailoverInCluster kills a master that has a replica: what was granted since is
// counted, and at most what was not replicated is granted again.
func TestFailoverInCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartReplicatedCluster(t, 3)
	client := dialCluster(t, cluster)
	store := open(t, client, redisengine.Options{Timeout: time.Second})
	master := cluster.Owner(hashSlot(t, client, store.KeyOf(&weir.Charge{Key: "k", Limit: perDay})))
	after(t, store, master)
}

// after takes half of a limit, kills the master when that is replicated, and takes
// the rest.
func after(t *testing.T, store *redisengine.Store, master *testserver.Redis) {
	t.Helper()
	for range 50 {
		if a := takeOne(store, "k"); !a.Allowed() {
			t.Fatal(a.Err)
		}
	}
	replicated(t, master)
	master.Kill()
	granted, unknown := 0, 0
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		a := takeOne(store, "k")
		if a.Err != nil {
			if errors.Is(a.Err, weir.ErrAmbiguous) {
				unknown++
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if !a.Allowed() {
			break
		}
		granted++
	}
	if granted > 50 || granted+unknown < 50 {
		t.Errorf("granted %d after the failover, %d unknown: want 50 together", granted, unknown)
	}
}

// replicated waits until replicas have everything.
func replicated(t *testing.T, master *testserver.Redis) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		info, err := master.Do("INFO", "replication")
		if err != nil {
			t.Fatal(err)
		}
		fields := make(map[string]string)
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			fields[name] = value
		}
		if strings.Contains(fields["slave0"], "offset="+fields["master_repl_offset"]+",") {
			return
		}
	}
	t.Fatal("the replica does not catch up")
}

// TestSentinel demands the answers of memory from a master that sentinels name, and goes on
// with the one that takes its place.
func TestSentinel(t *testing.T) {
	t.Parallel()
	onPrograms(t, func(t *testing.T, program testserver.Spec) { onSentinel(t, program.Sentinel(t, 1)) })
}

func onSentinel(t *testing.T, sentinel *testserver.Sentinel) {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: testserver.SentinelMaster, SentinelAddrs: sentinel.Addrs(), ContextTimeoutEnabled: true,
		DialTimeout: 200 * time.Millisecond,
	})
	t.Cleanup(func() { _ = client.Close() })
	if err := twinsOf(t, client, "twin:", same).Compare(storetest.Length(4000)); err != nil {
		t.Error(err)
	}
	after(t, open(t, client, redisengine.Options{Timeout: time.Second}), sentinel.Master)
}
