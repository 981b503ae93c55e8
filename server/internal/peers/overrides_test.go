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
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/memstore"
)

// seldom is a poll that no test waits for.
const seldom = time.Hour

// An instance is one of several that share a Redis.
type instance struct {
	*override.Layer
	group  *Group
	client redis.UniversalClient
}

func start(t *testing.T, server *testserver.Redis, poll time.Duration, o Options) *instance {
	t.Helper()
	o.Timeout = patience
	return startOn(t, connect(t, server), poll, o)
}

// startOn is start on a client, which it closes.
func startOn(t *testing.T, client redis.UniversalClient, poll time.Duration, o Options) *instance {
	t.Helper()
	i := &instance{Layer: override.Wrap(memstore.New(memstore.Options{}), override.Options{}), group: newGroup(t, client, o), client: client}
	i.group.Follow(i.Layer, nil)
	i.group.overrides.poll = poll
	i.group.Start()
	t.Cleanup(func() {
		stopGroup(t, i.group)
		_ = client.Close()
	})
	return i
}

// set makes an override as an administrator does.
func (i *instance) set(key string, limit *weir.Limit) error {
	o := override.Override{Key: key, Limit: limit, Until: time.Now().Add(time.Hour)}
	if err := i.Set(o); err != nil {
		return err
	}
	return i.group.Announce(context.Background(), override.Change{Override: o})
}

func (i *instance) end(key string) error {
	i.Delete(key)
	return i.group.Announce(context.Background(), override.Change{Override: override.Override{Key: key}, Ended: true})
}

// has says what an instance has, in short.
func (i *instance) has() string {
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

// learns waits until an instance has that.
func (i *instance) learns(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(patience); i.has() != want; {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s; has %s", want, i.has())
		}
		time.Sleep(time.Millisecond)
	}
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

// TestSpreads tells every change to an instance that is there and to one that comes
// later.
func TestSpreads(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, server, seldom, Options{}), start(t, server, seldom, Options{})
	stranger := start(t, server, 10*time.Millisecond, Options{Prefix: "other:"})
	must(t, one.set("a\x00{}", fast))
	must(t, one.set("", block))
	must(t, other.set("c", nil))
	must(t, one.set("d", odd))
	all := `"" 0/h fixed_window charge_refused, "a\x00{}" 100/min burst 20, "c" none, "d" 4294967295/day fixed_window time_zone Asia/Tokyo charge_refused`
	one.learns(t, all)
	other.learns(t, all)
	start(t, server, seldom, Options{}).learns(t, all)
	must(t, other.end("d"))
	must(t, other.end("a\x00{}"))
	must(t, other.set("", fast))
	for _, i := range []*instance{one, other} {
		i.learns(t, `"" 100/min burst 20, "c" none`)
	}
	if got := stranger.has(); got != "" {
		t.Errorf("another prefix has %s", got)
	}
}

// TestPolls: what was not heard is found all the same.
func TestPolls(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one := start(t, server, seldom, Options{})
	other := start(t, server, 10*time.Millisecond, Options{Secret: "another"}) // it believes no message
	must(t, one.set("k", fast))
	other.learns(t, `"k" 100/min burst 20`)
	must(t, one.end("k"))
	other.learns(t, "")
}

// TestChangesOfAKeyInTurn: a change waits for an earlier one of its key that is on its way
// to Redis, which would undo it there. An earlier one that comes later is not sent.
func TestChangesOfAKeyInTurn(t *testing.T) {
	t.Parallel()
	s := newOverrides(Options{}, nil)
	set := override.Change{Override: override.Override{Key: "k"}}
	end := override.Change{Override: override.Override{Key: "k"}, Ended: true}
	s.pending["k"] = set
	if due, err := s.begin(t.Context(), set); !due || err != nil {
		t.Fatal(due, err)
	}
	s.pending["k"] = end
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if due, err := s.begin(ended, end); due || !errors.Is(err, context.Canceled) {
		t.Error("did not wait:", due, err)
	}
	s.end("k")
	if due, err := s.begin(t.Context(), set); due || err != nil {
		t.Error("sent although another came:", due, err)
	}
	if due, err := s.begin(ended, end); !due || err != nil {
		t.Error("not sent:", due, err)
	}
	s.end("k")
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

// TestReadBeforeAnEnd: overrides that were read before a change of this instance reached
// Redis do not undo it, though it is there by the time that they are put in force.
func TestReadBeforeAnEnd(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	i := &instance{Layer: override.Wrap(memstore.New(memstore.Options{}), override.Options{}), group: newGroup(t, client, Options{Timeout: patience})}
	i.group.Follow(i.Layer, nil)
	must(t, i.set("k", fast))
	s := i.group.overrides
	end := override.Change{Override: override.Override{Key: "k"}, Ended: true}
	i.Delete("k")
	s.pending["k"], s.made = end, s.made+1 // announced, and not yet sent
	client.AddHook(answered(func() { must(t, s.push(t.Context(), end)) }))
	must(t, s.adopt(t.Context()))
	if got := i.has(); got != "" {
		t.Errorf("has %s, want none", got)
	}
	must(t, s.adopt(t.Context()))
	if s.known == "" {
		t.Error("what was read later was not adopted")
	}
}

// TestHeals: a connection that was cut while a change was made brings it once it is
// back.
func TestHeals(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, server, seldom, Options{}), start(t, server, seldom, Options{})
	must(t, one.set("before", nil))
	other.learns(t, `"before" none`)
	must(t, one.client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err())
	must(t, one.set("after", nil))
	other.learns(t, `"after" none, "before" none`)
}

// TestAway: with Redis away a change holds at once, and is told when it is back.
func TestAway(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, server, 20*time.Millisecond, Options{}), start(t, server, 20*time.Millisecond, Options{})
	must(t, one.set("old", fast))
	other.learns(t, `"old" 100/min burst 20`)
	server.Kill()
	if err := one.set("new", block); err == nil {
		t.Error("announced to nobody")
	}
	if err := one.end("gone"); err == nil {
		t.Error("announced to nobody")
	}
	if got, want := one.has(), `"new" 0/h fixed_window charge_refused, "old" 100/min burst 20`; got != want {
		t.Errorf("has %s, want %s", got, want)
	}
	// It has forgotten everything, too.
	server.Restart()
	for _, i := range []*instance{one, other} {
		i.learns(t, `"new" 0/h fixed_window charge_refused, "old" 100/min burst 20`)
	}
	start(t, server, seldom, Options{}).learns(t, one.has())
}

// TestForgotten: what Redis loses, the instances give back, but nothing that had
// ended.
func TestForgotten(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, server, 10*time.Millisecond, Options{}), start(t, server, 10*time.Millisecond, Options{})
	must(t, one.set("kept", fast))
	must(t, one.set("ended", fast))
	must(t, one.end("ended"))
	// An instance that has this override knows that the one before it has ended.
	must(t, one.set("last", nil))
	for _, i := range []*instance{one, other} {
		i.learns(t, `"kept" 100/min burst 20, "last" none`)
	}
	must(t, one.client.FlushAll(context.Background()).Err())
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		held, err := one.client.HExists(context.Background(), "weir:override:{override}:limits", "=kept").Result()
		must(t, err)
		if held {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not given back")
		}
	}
	must(t, other.set("more", nil))
	for _, i := range []*instance{one, other} {
		i.learns(t, `"kept" 100/min burst 20, "last" none, "more" none`)
	}
}

// limitsAndEnds are the keys in Redis.
var limitsAndEnds = []string{"weir:override:{override}:limits", "weir:override:{override}:ends"}

// replica is what a replica has by now.
func (i *instance) replica(t *testing.T) (dumps []string) {
	t.Helper()
	for _, key := range limitsAndEnds {
		dump, err := i.client.Dump(context.Background(), key).Result()
		must(t, err)
		dumps = append(dumps, dump)
	}
	return dumps
}

// takesOver puts a replica in the place of what Redis has.
func (i *instance) takesOver(t *testing.T, replica []string) {
	t.Helper()
	for n, key := range limitsAndEnds {
		must(t, i.client.RestoreReplace(context.Background(), key, time.Hour, replica[n]).Err())
	}
}

// losesLast starts two instances, and has Redis lose the last of their two changes.
func losesLast(t *testing.T, server *testserver.Redis) (one, other *instance) {
	t.Helper()
	one, other = start(t, server, seldom, Options{}), start(t, server, seldom, Options{})
	must(t, one.set("replicated", nil))
	replica := one.replica(t)
	must(t, one.set("lost", fast))
	other.learns(t, `"lost" 100/min burst 20, "replicated" none`)
	one.takesOver(t, replica)
	return one, other
}

// TestForgottenInPart: a replica takes over that lacks the last change, and is given
// it by those who connect anew.
func TestForgottenInPart(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := losesLast(t, server)
	must(t, one.client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err())
	late := start(t, server, 10*time.Millisecond, Options{})
	late.learns(t, `"lost" 100/min burst 20, "replicated" none`)
	must(t, late.set("new", block))
	for _, i := range []*instance{one, other, late} {
		i.learns(t, `"lost" 100/min burst 20, "new" 0/h fixed_window charge_refused, "replicated" none`)
	}
}

// TestAsManyChanges: the next change to a replica that lacks the last one is heard of,
// though it is no more than those that are known.
func TestAsManyChanges(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	_, other := losesLast(t, server)
	must(t, start(t, server, seldom, Options{}).set("new", block))
	for deadline := time.Now().Add(patience); !strings.Contains(other.has(), `"new"`); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain; has %s", other.has())
		}
	}
}

// TestBounded: Redis holds so many, of which those that have ended do not count, and
// everything there ends by itself.
func TestBounded(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one := start(t, server, seldom, Options{})
	one.group.overrides.maxOverrides = 2
	must(t, one.set("a", nil))
	// Redis counts whole milliseconds.
	soon := override.Override{Key: "b", Until: time.UnixMilli(time.Now().UnixMilli() + 300)}
	must(t, one.group.Announce(context.Background(), override.Change{Override: soon}))
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
	keys, err := one.client.Keys(context.Background(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	for _, key := range keys {
		if life := one.client.PTTL(context.Background(), key).Val(); life < time.Hour || life > 26*time.Hour {
			t.Errorf("%s lives for %v", key, life)
		}
	}
}

// TestPassesOverStrangers: values that another program wrote do no harm.
func TestPassesOverStrangers(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, server, seldom, Options{}), start(t, server, 10*time.Millisecond, Options{})
	must(t, one.client.HSet(context.Background(), "weir:override:{override}:limits",
		"=x", "?", "=y", `{"limit":"many","until_ms":99999999999999}`, "=z", `{"limit":"1/d","until_ms":1}`, "version", "strange").Err())
	must(t, one.set("k", nil))
	other.learns(t, `"k" none`)
}
