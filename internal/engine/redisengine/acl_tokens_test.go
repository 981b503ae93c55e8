package redisengine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestEveryPrivilegeIsNeeded takes each word of the user that the docs describe away,
// one at a time: something that the user has to do fails then, and nothing does while
// all are there.
func TestEveryPrivilegeIsNeeded(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	words := leastPrivileges(t, "")
	try := func(t *testing.T, without string) error {
		t.Helper()
		name := "without" + strings.NewReplacer("+", "-", "~", "-", "*", "", ":", "", ">", "-").Replace(without)
		rules := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == without })
		rules = append([]string{"ACL", "SETUSER", name, "on"}, rules...)
		if _, err := server.Do(rules...); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		return everything(t, redis.NewClient(&redis.Options{
			Addr: server.Addr(), Username: name, Password: "PASSWORD", ContextTimeoutEnabled: true, ReadTimeout: time.Minute, DisableIdentity: true,
		}))
	}
	if err := try(t, ""); err != nil {
		t.Fatalf("with all of them: %v", err)
	}
	for _, word := range words {
		switch word {
		case "resetkeys", "resetchannels", "-@all":
			continue // these take away: without them a user may do more
		}
		if err := try(t, word); err == nil {
			t.Errorf("%s is not missed", word)
		}
	}
}

// everything is what a store does as a user, and the error that it meets with.
func everything(t *testing.T, client *redis.Client) error {
	t.Helper()
	defer client.Close()
	ctx := context.Background()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	name := client.Options().Username
	store := open(t, client, redisengine.Options{Prefix: "weir:" + name + ":", Timeout: time.Minute})
	if a := takeOne(store, "k"); a.Err != nil {
		return a.Err
	}
	clock := storetest.NewClock()
	twin, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: "weir:twin:" + name + ":", Timeout: time.Minute}, clock.Micros)
	if err != nil {
		t.Fatal(err)
	}
	twins := storetest.Twins{A: memengine.New(memengine.Options{Now: clock.Now}), B: twin, Clock: clock, Seed: 1}
	if err := twins.Compare(1500); err != nil {
		return err
	}
	// A slot is returned without a name rarely among all others.
	house := weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour}.MustCompile()
	for _, kind := range []weir.Kind{acts.KindTake, acts.KindRefund} {
		a := storetest.NewAct(weir.Charge{Key: "house", Limit: house, Cost: 1})
		a.Kind, a.Anonymous = kind, true
		if store.Take(ctx, []*weir.Act{a}); a.Err != nil {
			return a.Err
		}
	}
	return nil
}

// TestForbidden asks as such a user for what it must not do.
func TestForbidden(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--enable-debug-command", "yes")
	confine(t, server, leastPrivileges(t, "")...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "weir", Password: "PASSWORD", MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	for _, command := range []string{
		"keys *", "scan 0", "config get *", "config set maxmemory 1", "info", "debug sleep 0", "flushall", "flushdb",
		"script load return", "script flush", "script kill", "function load x", "client list", "client kill type normal",
		"monitor", "acl list", "acl setuser weir +@all", "shutdown nosave", "replicaof no one", "save", "bgrewriteaof", "module list",
		"get other:key", "set other:key 1", "del other:key", "eval return 1 other:key", "dump weir:key", "migrate h 1 k 0 1",
	} {
		args := strings.Fields(command)
		if args[0] == "eval" {
			args = []string{"eval", "return redis.call('GET', KEYS[1])", "1", "other:key"}
		}
		words := make([]any, len(args))
		for i, a := range args {
			words[i] = a
		}
		if err := client.Do(t.Context(), words...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s: %v", command, err)
		}
	}
	script := "return redis.call('GET', 'other:undeclared')"
	if err := client.Eval(t.Context(), script, nil).Err(); err == nil || !strings.Contains(err.Error(), "can't access") {
		t.Errorf("a key that a script names by itself: %v", err)
	}
}
