package redisengine_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// leastPrivileges is the user that the docs describe: what all topologies need, or
// what a row of the table adds.
func leastPrivileges(t *testing.T, row string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "user weir on ", "```"
	if row != "" {
		begin, end = "| "+row+" | `", "`"
	}
	_, rest, found := strings.Cut(string(text), begin)
	rule, _, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("docs/redis.md has no %q", begin)
	}
	return strings.Fields(strings.ReplaceAll(rule, `\|`, "|"))
}

// confine makes the user on a server.
func confine(t *testing.T, server *testserver.Redis, rules ...string) {
	t.Helper()
	if _, err := server.Do(append([]string{"ACL", "SETUSER", "weir", "on"}, rules...)...); err != nil {
		t.Fatal(err)
	}
}

// TestLeastPrivileges has the checks name each privilege of the docs that is missing.
func TestLeastPrivileges(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	confine(t, server, leastPrivileges(t, "")...)
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Username: "weir", Password: "PASSWORD", ContextTimeoutEnabled: true,
		ReadTimeout: time.Minute, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	store := open(t, client, redisengine.Options{})
	found, err := store.Check(t.Context())
	if err != nil || len(found) != 1 || found[0].Fatal || !strings.Contains(found[0].Detail, "+info") {
		t.Errorf("without +info: %v, %v", found, err)
	}
	confine(t, server, leastPrivileges(t, "all of the checks")...)
	if found, err := store.Check(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("with +info: %v, %v", found, err)
	}
	for _, rule := range leastPrivileges(t, "") {
		if !strings.HasPrefix(rule, "+") || rule == "+ping" || rule == "+eval" || rule == "+lrange" {
			continue
		}
		confine(t, server, "-"+rule[1:])
		if found, err := store.Check(t.Context()); err == nil && len(found) == 0 {
			t.Errorf("%s is not missed", rule)
		}
		confine(t, server, rule)
	}
	confine(t, server, "-time")
	if a := takeOne(store, "k"); !errors.Is(a.Err, weir.ErrMisconfigured) {
		t.Errorf("without +time: %v", a.Err)
	}
}

// TestRemoveWeir types what docs/redis.md has to remove Weir: its keys go, and others stay.
func TestRemoveWeir(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "xargs", "redis-cli"} {
		testserver.Require(t, program)
	}
	server := testserver.StartRedis(t)
	client := dial(t, server.Addr())
	if err := client.Set(t.Context(), "another program's", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	store := open(t, client, redisengine.Options{})
	for _, key := range []string{"a", "b", "with spaces"} {
		if a := takeOne(store, key); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for _, b := range pages.Mine(t, "docs/redis.md") {
		_, port, _ := net.SplitHostPort(server.Addr())
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(b.Text, "redis-cli", "redis-cli -p "+port)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	left, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(left) != 1 || left[0] != "another program's" {
		t.Errorf("%q are left, %v: want the key of another program", left, err)
	}
}

// TestLeastPrivilegesInCluster charges keys of several slots as such a user.
func TestLeastPrivilegesInCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 3)
	for _, server := range cluster.Masters {
		confine(t, server, leastPrivileges(t, "")...)
		confine(t, server, leastPrivileges(t, "a cluster")...)
		confine(t, server, leastPrivileges(t, "all of the checks")...)
		confine(t, server, leastPrivileges(t, "the check of a cluster's coverage")...)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), Username: "weir", Password: "PASSWORD", ContextTimeoutEnabled: true, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	store := open(t, client, redisengine.Options{Timeout: 5 * time.Second})
	// Redis's default.
	found, err := store.Check(t.Context())
	if err != nil || len(found) != len(cluster.Masters) || found[0].Setting != "cluster-require-full-coverage" || found[0].Fatal {
		t.Errorf("check: %v, %v", found, err)
	}
	for _, server := range cluster.Masters {
		if _, err := server.Do("CONFIG", "SET", "cluster-require-full-coverage", "no"); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := store.Check(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("check: %v, %v", found, err)
	}
	few := fixedOf(3)
	for i := range 5 {
		a := storetest.NewAct(weir.Charge{Key: "many", Limit: perDay, Cost: 1}, weir.Charge{Key: "few", Limit: few, Cost: 1}, weir.Charge{Key: "other", Limit: perDay, Cost: 1})
		if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil || a.Allowed() != (i < 3) {
			t.Errorf("take %d: %+v, %v", i, a.Decisions, a.Err)
		}
	}
	if got := spent(t, store, "many", perDay); got != 3 {
		t.Errorf("charged %d, granted 3", got)
	}
}

// TestCheck finds what is wrong with servers.
func TestCheck(t *testing.T) {
	t.Parallel()
	evicting := testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	replica := testserver.StartRedis(t, "--replicaof", "127.0.0.1 1")
	node := testserver.StartRedis(t, "--cluster-enabled", "yes")
	for setting, server := range map[string]*testserver.Redis{"maxmemory-policy": evicting, "role": replica, "topology": node} {
		found, err := open(t, dial(t, server.Addr()), redisengine.Options{}).Check(t.Context())
		if err != nil || len(found) != 1 || found[0].Setting != setting || found[0].Fatal == (setting == "maxmemory-policy") || found[0].Node != server.Addr() {
			t.Errorf("%s: %v, %v", setting, found, err)
		}
	}
	if size, err := evicting.Do("DBSIZE"); size != "0" {
		t.Errorf("the check left %s keys, %v", size, err)
	}
	evicting.Kill()
	client := redis.NewClient(&redis.Options{Addr: evicting.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	if _, err := open(t, client, redisengine.Options{}).Check(t.Context()); err == nil {
		t.Error("away: no error")
	}
}

// TestChecksAtOnce: stores that are checked at the same time do not disturb each other.
func TestChecksAtOnce(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	var checks sync.WaitGroup
	for range 8 {
		store := open(t, dial(t, server.Addr()), redisengine.Options{})
		checks.Go(func() {
			for range 30 {
				if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
					t.Errorf("%v, %v", found, err)
				}
			}
		})
	}
	checks.Wait()
	if size, err := server.Do("DBSIZE"); size != "0" {
		t.Errorf("the checks left %s keys, %v", size, err)
	}
}
