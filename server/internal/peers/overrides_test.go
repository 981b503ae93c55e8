package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// announce makes a change as an administrator does, also of an instance that was not
// started.
func (i *instance) announce(c override.Change) error {
	if i.group.cancel != nil {
		return i.group.Announce(context.Background(), c)
	}
	waiting := i.group.enqueue(c)
	i.group.synchronize(context.Background(), true)
	return <-waiting.done
}

func (i *instance) set(key string, limit *weir.Limit) error {
	o := override.Override{Key: key, Limit: limit, Until: time.Now().Add(time.Hour)}
	if err := i.Set(o); err != nil {
		return err
	}
	return i.announce(override.Change{Override: o})
}

func (i *instance) end(key string) error {
	i.Delete(key)
	return i.announce(override.Change{Override: override.Override{Key: key}, Ended: true})
}

// String says what an instance has, in short.
func (i *instance) String() string {
	var all []string
	for _, o := range i.List() {
		limit := "none"
		if o.Limit != nil {
			limit = o.Limit.String()
		}
		all = append(all, fmt.Sprintf("%q %s", o.Key, limit))
	}
	return strings.Join(all, ", ")
}

// has holds what an instance has against what it should have.
func (i *instance) has(t *testing.T, want string) {
	t.Helper()
	if got := i.String(); got != want {
		t.Errorf("has %s, want %s", got, want)
	}
}

// learns waits until an instance that was started has that.
func (i *instance) learns(t *testing.T, want string) {
	t.Helper()
	testserver.Eventually(t, want, func() bool { return i.String() == want })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	fast  = weir.Limit{Count: 100, Period: time.Minute, Burst: 20}.MustCompile()
	block = weir.Limit{Algorithm: weir.FixedWindow, Period: time.Hour, ChargeRefused: true}.MustCompile()
	odd   = weir.Limit{Algorithm: weir.FixedWindow, Count: 1<<32 - 1, Period: 24 * time.Hour, ChargeRefused: true, TimeZone: "Asia/Tokyo"}.MustCompile()
)

// TestSpreads: every change reaches an instance that is there and one that comes later.
func TestSpreads(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := start(t, client), start(t, client)
	stranger := open(t, client, Options{Prefix: "other:", Timeout: patience})
	must(t, one.set("a\x00{}", fast))
	must(t, one.set("", block))
	must(t, other.set("c", nil))
	must(t, one.set("d", odd))
	all := `"" 0/h fixed_window charge_refused, "a\x00{}" 100/min burst 20, "c" none, "d" 4294967295/day fixed_window time_zone Asia/Tokyo charge_refused`
	one.learns(t, all)
	other.learns(t, all)
	start(t, client).learns(t, all)
	must(t, other.end("d"))
	must(t, other.end("a\x00{}"))
	must(t, other.set("", fast))
	for _, i := range []*instance{one, other} {
		i.learns(t, `"" 100/min burst 20, "c" none`)
	}
	synchronize(t, stranger)
	stranger.has(t, "")
}

// TestMeterSpreads: other instances know what the limit of an override counts.
func TestMeterSpreads(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := start(t, client), start(t, client)
	dollars := weir.Limit{Algorithm: weir.FixedWindow, Count: 7_000_000_000, Period: 720 * time.Hour, TimeZone: "Europe/Berlin", Meter: "usd"}.MustCompile()
	must(t, one.set("a", dollars))
	other.learns(t, `"a" 7000000000/month fixed_window time_zone Europe/Berlin`)
	if o, _ := other.Get("a"); o.Limit.Meter != "usd" {
		t.Errorf("%+v", o.Limit)
	}
}

// TestManyAtOnce: changes made at once by two instances leave both with the same.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := start(t, client), start(t, client)
	done := make(chan error)
	for n := range 40 {
		go func() {
			i, key := []*instance{one, other}[n%2], fmt.Sprint(n%4)
			if n >= 20 && n < 36 {
				done <- i.end(key)
				return
			}
			done <- i.set(key, []*weir.Limit{fast, block, nil}[n%3])
		}()
	}
	for range 40 {
		must(t, <-done)
	}
	must(t, one.set("last", nil))
	testserver.Eventually(t, "both know the last one", func() bool { return strings.Contains(other.String(), `"last"`) })
	testserver.Eventually(t, "both have the same", func() bool { return one.String() == other.String() })
}

// TestLaterChange: a change takes the place of an earlier one of its key that waits.
func TestLaterChange(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	i := open(t, client, Options{Timeout: patience})
	set := i.group.enqueue(override.Change{Override: override.Override{Key: "k", Until: time.Now().Add(time.Hour)}})
	must(t, i.end("k"))
	must(t, <-set.done)
	i.has(t, "")
	if n := changesOf(i.group.known); n != 1 {
		t.Errorf("%d changes were written, want 1", n)
	}
}

// answered calls a function after each reply to HGETALL.
type answered func()

func (answered) DialHook(next redis.DialHook) redis.DialHook { return next }

func (answered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (then answered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hgetall" {
			then()
		}
		return err
	}
}

// TestReadBeforeAChange: overrides that were read before changes of this instance reached
// Redis do not undo them.
func TestReadBeforeAChange(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	i := open(t, client, Options{Timeout: patience})
	must(t, i.set("ended", fast))
	must(t, i.set("replaced", fast))
	i.group.known = ""
	client.AddHook(answered(func() {
		until := time.Now().Add(time.Hour)
		i.group.enqueue(override.Change{Override: override.Override{Key: "ended"}, Ended: true})
		i.group.enqueue(override.Change{Override: override.Override{Key: "replaced", Until: until}})
		i.group.enqueue(override.Change{Override: override.Override{Key: "new", Until: until}})
	}))
	for range 2 {
		synchronize(t, i)
		i.has(t, `"new" none, "replaced" none`)
	}
	if i.group.known == "" {
		t.Error("what was read later was not adopted")
	}
}

// TestUndone: a change is made once more when it is announced, because the overrides that
// were read before may have undone it.
func TestUndone(t *testing.T) {
	t.Parallel()
	i := open(t, connect(t, testserver.StartRedis(t)), Options{Timeout: patience})
	must(t, i.announce(override.Change{Override: override.Override{Key: "set", Until: time.Now().Add(time.Hour)}}))
	i.has(t, `"set" none`)
	must(t, i.announce(override.Change{Override: override.Override{Key: "set"}, Ended: true}))
	i.has(t, "")
}

// TestAway: with Redis unreachable a change holds at once, and is written later.
func TestAway(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	one, other := start(t, client), start(t, client)
	must(t, one.set("old", fast))
	other.learns(t, `"old" 100/min burst 20`)
	server.Kill()
	if err := one.set("new", block); err == nil {
		t.Error("announced to nobody")
	}
	if err := one.end("gone"); err == nil {
		t.Error("announced to nobody")
	}
	want := `"new" 0/h fixed_window charge_refused, "old" 100/min burst 20`
	one.has(t, want)
	// It has forgotten everything, too.
	server.Restart()
	for _, i := range []*instance{one, other, start(t, client)} {
		i.learns(t, want)
	}
}

// TestForgotten: what Redis loses, the instances write again, but nothing that had ended.
func TestForgotten(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := open(t, client, Options{Timeout: patience}), open(t, client, Options{Timeout: patience})
	must(t, one.set("kept", fast))
	must(t, one.set("ended", fast))
	synchronize(t, other)
	must(t, one.end("ended"))
	synchronize(t, other)
	must(t, client.FlushAll(t.Context()).Err())
	// It notices, and then writes.
	synchronize(t, one, one)
	must(t, other.set("more", nil))
	synchronize(t, other, one)
	for _, i := range []*instance{one, other} {
		i.has(t, `"kept" 100/min burst 20, "more" none`)
	}
}

// TestForgottenAtOnce: what Redis loses before anything was read of it is written again.
func TestForgottenAtOnce(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	i := open(t, client, Options{Timeout: patience})
	i.group.enqueue(override.Change{Override: override.Override{Key: "k", Until: time.Now().Add(time.Hour)}})
	must(t, i.group.push(t.Context()))
	must(t, client.FlushAll(t.Context()).Err())
	synchronize(t, i, i)
	i.has(t, `"k" none`)
	late := open(t, client, Options{Timeout: patience})
	synchronize(t, late)
	late.has(t, `"k" none`)
}

// limitsAndEnds are the keys in Redis.
var limitsAndEnds = []string{"weir:override:{override}:limits", "weir:override:{override}:ends"}

// losesLast returns two instances, after Redis has lost the last of their two changes.
func losesLast(t *testing.T, client *redis.Client) (one, other *instance) {
	t.Helper()
	one, other = open(t, client, Options{Timeout: patience}), open(t, client, Options{Timeout: patience})
	must(t, one.set("replicated", nil))
	var replica []string
	for _, key := range limitsAndEnds {
		dump, err := client.Dump(t.Context(), key).Result()
		must(t, err)
		replica = append(replica, dump)
	}
	must(t, one.set("lost", fast))
	synchronize(t, other)
	other.has(t, `"lost" 100/min burst 20, "replicated" none`)
	for n, key := range limitsAndEnds {
		must(t, client.RestoreReplace(t.Context(), key, time.Hour, replica[n]).Err())
	}
	return one, other
}

// TestForgottenInPart: a replica takes over that lacks the last change, and is given it.
func TestForgottenInPart(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := losesLast(t, client)
	late := open(t, client, Options{Timeout: patience})
	synchronize(t, one, one, other, late)
	late.has(t, `"lost" 100/min burst 20, "replicated" none`)
	must(t, late.set("new", block))
	synchronize(t, one, other)
	for _, i := range []*instance{one, other, late} {
		i.has(t, `"lost" 100/min burst 20, "new" 0/h fixed_window charge_refused, "replicated" none`)
	}
}

// TestAsManyChanges: the next change to a replica that lacks the last one is adopted,
// though it is no more than those that are known.
func TestAsManyChanges(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	_, other := losesLast(t, client)
	must(t, open(t, client, Options{Timeout: patience}).set("new", block))
	if synchronize(t, other); !strings.Contains(other.String(), `"new"`) {
		t.Errorf("has %s", other)
	}
}

// TestBounded: Redis holds so many, of which those that have ended do not count, and
// everything there ends by itself.
func TestBounded(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one := open(t, client, Options{Timeout: patience})
	one.group.maxOverrides = 2
	must(t, one.set("a", nil))
	// Redis counts whole milliseconds.
	soon := override.Override{Key: "b", Until: time.UnixMilli(time.Now().UnixMilli() + 300)}
	must(t, one.announce(override.Change{Override: soon}))
	must(t, one.set("a", fast))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := one.set("c", nil)
		if err == nil {
			break
		}
		if !errors.Is(err, override.ErrFull) || time.Now().After(deadline) {
			t.Fatalf("got %v, want %v for a moment", err, override.ErrFull)
		}
	}
	if time.Now().Before(soon.Until) {
		t.Error("there was room for three of two")
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 3 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	for _, key := range keys {
		if life := client.PTTL(t.Context(), key).Val(); life < time.Hour || life > 26*time.Hour {
			t.Errorf("%s lives for %v", key, life)
		}
	}
}

// TestPassesOverStrangers: values that another program wrote do no harm.
func TestPassesOverStrangers(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := open(t, client, Options{Timeout: patience}), open(t, client, Options{Timeout: patience})
	must(t, client.HSet(t.Context(), "weir:override:{override}:limits",
		"=x", "?", "=y", `{"limit":"many","until_ms":99999999999999}`, "=z", `{"limit":"1/d","until_ms":1}`, "version", "strange").Err())
	synchronize(t, other)
	must(t, one.set("k", nil))
	synchronize(t, other, other)
	other.has(t, `"k" none`)
}
