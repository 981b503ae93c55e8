package redisengine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// counted counts the acts that were granted, under its own key, and answers how
// many were before; it stops at three, and then the act is not charged either.
const counted = `
local most = 3

-- @before
local before = tonumber(call('GET', XKEYS[1]) or 0)
if before == most then
  return pack('>I2', foreign) .. table.concat(reply) .. XARGV[1]
end

-- @after
call('SET', XKEYS[1], before + 1)
reply[answers + 1] = tostring(before)
`

func TestAnExtensionDecidesWithTheAct(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{})
	x := redisengine.NewExtension("counted", counted)
	key := x.Key(store, "tag", 'n', "number")
	if want := "weir:counted:{tag}n1:number"; key != want {
		t.Errorf("key %q, want %q", key, want)
	}
	run := func() (string, weir.Decision, error) {
		act := storetest.NewAct(weir.Charge{Key: "k", Limit: perDay, Cost: 1})
		got, err := x.Run(context.Background(), store, act, "tag", []string{key}, []any{"stopped"})
		return got, act.Decisions[0], err
	}
	for i, want := range []string{"0", "1", "2", "stopped", "stopped"} {
		got, d, err := run()
		if got != want || err != nil || d.Remaining != int64(99-min(i, 3)) {
			t.Errorf("run %d: %q, %+v, %v; want %q", i+1, got, d, err, want)
		}
	}
	if keys := client.Keys(context.Background(), "*").Val(); len(keys) != 2 {
		t.Errorf("keys %q, want the extension's and the limit's", keys)
	}
	// An error in the section before leaves everything as it was.
	client.Del(context.Background(), key)
	client.RPush(context.Background(), key, "not a number")
	if _, _, err := run(); !errors.Is(err, weir.ErrBackend) {
		t.Errorf("an error in the Lua: %v", err)
	}
	client.Del(context.Background(), key)
	if _, d, err := run(); err != nil || d.Remaining != 96 {
		t.Errorf("after the error: %+v, %v", d, err)
	}
}

func TestAnExtensionIsNotRunForAnInvalidAct(t *testing.T) {
	t.Parallel()
	store := open(t, dial(t, "127.0.0.1:1"), redisengine.Options{})
	_, err := redisengine.NewExtension("x", counted).Run(context.Background(), store, &weir.Act{}, "tag", nil, nil)
	if !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("an act without charges: %v", err)
	}
}

func TestAnExtensionNeedsItsSections(t *testing.T) {
	t.Parallel()
	for _, lua := range []string{"", "-- @before\n", "-- @after\n", "-- @after\n-- @before\n"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q: no panic", lua)
				}
			}()
			redisengine.NewExtension("x", lua)
		}()
	}
}

// TestHashTagsPlaceKeys asks Redis where the keys of a tag are.
func TestHashTagsPlaceKeys(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t, "--cluster-enabled", "yes").Addr())
	store := open(t, client, redisengine.Options{})
	x := redisengine.NewExtension("x", counted)
	slot := func(key string) int64 { return client.ClusterKeySlot(context.Background(), key).Val() }
	for key, want := range map[string]bool{
		"q": true, "{a}q": true, "{{a}q": true, "a{b}{c}": true, "a{b": true, "{": true, "\x00{\n}\xff": true, strings.Repeat("k", 1000): true,
		"": false, "}": false, "a}b": false, "a{}b": false, "{}{a}": false, "a}{b": false,
	} {
		tag, ok := redisengine.HashTag(key)
		if ok != want {
			t.Errorf("%q: %v", key, ok)
		}
		for _, name := range []string{"", "{x}", "}", strings.Repeat("{n}", 100)} {
			if got := x.Key(store, tag, 'n', name); ok && slot(got) != slot(key) {
				t.Errorf("%q does not lie beside %q", got, key)
			}
		}
	}
}
