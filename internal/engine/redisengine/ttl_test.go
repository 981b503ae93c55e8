package redisengine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// lifetimes charges random limits by Redis's own clock, through one store after the other, and
// returns the first key that is forgotten too early, too late or never. Only one store knows how
// early is too early: Redis's own clock does not go back with those of several.
func lifetimes(client *redis.Client, prefix string, stores ...*redisengine.Store) error {
	rng := rand.New(rand.NewPCG(7, 7))
	ctx := context.Background()
	for i := range 600 {
		limit := storetest.RandomLimit(rng, weir.Algorithm(i%len(algo.Steps)))
		a := storetest.NewAct(weir.Charge{Key: fmt.Sprint(i), Limit: limit, Cost: 1 + rng.Int64N(limit.Capacity()+2)})
		began := time.Now()
		for n, store := range stores {
			if limit.Algorithm == weir.Concurrency {
				a.ID, a.Scope.Owner, a.Charges[0].Cost = fmt.Sprint("holder ", n), a.Charges[0].Key, 1
			}
			if store.Take(ctx, []*weir.Act{a}); a.Err != nil {
				return a.Err
			}
		}
		reset := a.Decisions[0].ResetAfter
		keys, err := client.Keys(ctx, prefix+"*:"+fmt.Sprint(i)).Result()
		if err != nil {
			return err
		}
		// On a busy machine, a key may be forgotten in time before it is looked for.
		gone := len(keys) == 0 && time.Since(began) >= reset
		if len(stores) == 1 && a.Allowed() != (len(keys) == 1) && !limit.ChargeRefused && !gone {
			return fmt.Errorf("%v: %d keys after %+v", limit, len(keys), a.Decisions[0])
		}
		for _, key := range keys {
			left := client.PTTL(ctx, key).Val()
			most := 2*time.Duration(limit.Rule().Drain)*time.Microsecond + 5*time.Second
			if len(stores) == 1 && left+time.Since(began) < reset || left > most {
				return fmt.Errorf("%v: key lives %v, reset after %v, at most %v", limit, left, reset, most)
			}
		}
	}
	return nil
}

// recordLifetimes takes, renews and closes ids, and returns the first record or
// set of holders that is forgotten too early, too late or never.
func recordLifetimes(client *redis.Client, store *redisengine.Store) error {
	ctx := context.Background()
	for i, hold := range []time.Duration{0, time.Minute, time.Hour, weir.MaxWait} {
		for id := range algo.Steps {
			l := weir.PerMinute(10)
			l.Algorithm = weir.Algorithm(id)
			limit := l.MustCompile()
			charge := weir.Charge{Key: fmt.Sprint("key ", i), Limit: limit, Cost: 1}
			longest := acts.IDLife
			for _, kind := range []weir.Kind{acts.KindTake, acts.KindRenew, acts.KindRelease} {
				began := time.Now()
				a := storetest.NewAct(charge)
				a.Kind, a.ID, a.Scope.Owner = kind, fmt.Sprint("id ", i, " of ", id), a.Charges[0].Key
				switch kind {
				case acts.KindTake:
					a.Hold = hold / 2
				case acts.KindRenew:
					a.Hold = hold
				}
				if store.Take(ctx, []*weir.Act{a}); a.Err != nil {
					return a.Err
				}
				longest = max(longest, a.Hold)
				if err := lives(client, store.RecordOf(a), longest, began); err != nil {
					return fmt.Errorf("%v, %v held for %v: %w", limit, kind, a.Hold, err)
				}
				if limit.Algorithm != weir.Concurrency || kind == acts.KindRelease {
					continue
				}
				if err := lives(client, store.KeyOf(&charge), a.Decisions[0].ResetAfter, began); err != nil {
					return fmt.Errorf("%v, %v held for %v: %w", limit, kind, a.Hold, err)
				}
			}
		}
	}
	return nil
}

// lives demands that a key lives as long as it matters from an act on, which began at an instant, and
// little longer.
func lives(client *redis.Client, key string, matters time.Duration, began time.Time) error {
	if left := client.PTTL(context.Background(), key).Val(); left+time.Since(began) < matters-2*time.Second || left > matters+5*time.Second {
		return fmt.Errorf("%s lives %v, matters for %v", key, left, matters)
	}
	return nil
}

func TestEveryRecordIsForgottenInTime(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	if err := recordLifetimes(client, open(t, client, redisengine.Options{Prefix: "records:", Timeout: time.Minute})); err != nil {
		t.Error(err)
	}
	for name, change := range map[string][2]string{
		"lost on records":       {"call('SET', key, ext, 'PX', lives)", "call('SET', key, ext)"},
		"lost on sets":          {"call('PEXPIRE', key, lifetime(last - now))", ""},
		"the limit's on sets":   {"lifetime(last - now)", "lifetime(q)"},
		"renewals do not count": {"if r and code == 0 then", "if r and code == 0 and kind < 4 then"},
	} {
		mutant, err := redisengine.NewMutated(client, redisengine.Options{Prefix: strings.ReplaceAll(name, " ", "") + ":", Timeout: time.Minute}, change[0], change[1])
		if err != nil {
			t.Fatal(err)
		}
		if recordLifetimes(client, mutant) == nil {
			t.Errorf("mutant %q was not noticed", name)
		}
	}
}

func TestEveryKeyIsForgottenInTime(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store, err := redisengine.New(client, redisengine.Options{Prefix: "ttl:", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := lifetimes(client, "ttl:", store); err != nil {
		t.Error(err)
	}
	// The clock goes back.
	const clock = "local now = "
	ahead, err := redisengine.NewMutated(client, redisengine.Options{Prefix: "ttl:", Timeout: time.Minute}, clock, clock+"3600000000 + ")
	if err != nil {
		t.Fatal(err)
	}
	if err := lifetimes(client, "ttl:", ahead, store); err != nil {
		t.Errorf("set back by an hour: %v", err)
	}
	for name, change := range map[string][2]string{
		"lost on strings": {"call('SET', key, value, 'PX', life)", "call('SET', key, value)"},
		"lost on lists":   {"call('PEXPIRE', key, life)", ""},
		"too short":       {"= ARGV[r + 1]", "= '10'"},
	} {
		prefix := strings.ReplaceAll(name, " ", "") + ":"
		mutant, err := redisengine.NewMutated(client, redisengine.Options{Prefix: prefix, Timeout: time.Minute}, change[0], change[1])
		if err != nil {
			t.Fatal(err)
		}
		if lifetimes(client, prefix, mutant) == nil {
			t.Errorf("mutant %q was not noticed", name)
		}
	}
}

// TestPageOfLives holds the lives of keys on the page about Redis against real ones.
func TestPageOfLives(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(pages.Path("docs/redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{Prefix: "lives:", Timeout: time.Minute})
	const day = 24 * time.Hour
	for _, c := range []struct {
		says  string
		limit weir.Limit
		life  time.Duration
	}{
		{"because a month may have 31 days: 5 days for a day", weir.Limit{Period: day, TimeZone: "UTC"}, 5 * day},
		{"11 for a week", weir.Limit{Period: 7 * day, TimeZone: "Europe/Paris"}, 11 * day},
		{"34 for a month", weir.Limit{Period: 30 * day, TimeZone: "UTC", AnchorDay: 31}, 34 * day},
		{"369 for a year", weir.Limit{Period: 365 * day, TimeZone: "UTC"}, 369 * day},
		{"one window; after", weir.Limit{Period: time.Hour}, time.Hour},
		{"two windows", weir.Limit{Period: time.Hour, Algorithm: weir.SlidingCounter}, 2 * time.Hour},
		{"the whole burst drains", weir.Limit{Period: time.Hour, Burst: 200, Algorithm: weir.GCRA}, 2 * time.Hour},
	} {
		if c.limit.Count = 100; c.limit.Burst == 0 && c.limit.Algorithm == 0 {
			c.limit.Algorithm = weir.FixedWindow
		}
		if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), c.says) {
			t.Errorf("the page does not say %q", c.says)
		}
		charge := weir.Charge{Key: c.says, Limit: c.limit.MustCompile(), Cost: 1}
		a, began := storetest.NewAct(charge), time.Now()
		if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
			t.Fatal(a.Err)
		}
		if err := lives(client, store.KeyOf(&charge), c.life, began); err != nil {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}

// TestHealsALostTTL removes a key's TTL behind the store's back. The next charge sets it again; of a
// rolling_window, the next one in another bucket.
func TestHealsALostTTL(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store, err := redisengine.New(client, redisengine.Options{Prefix: "heal:", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for id := range algo.Steps {
		l := weir.PerHour(100_000)
		if l.Algorithm = weir.Algorithm(id); l.Algorithm == weir.SlidingLog || l.Algorithm == weir.Concurrency {
			l.Count = 10
		}
		if l.Algorithm == weir.RollingWindow {
			l.Period, l.Buckets = time.Minute, 3600
		}
		charge := weir.Charge{Key: fmt.Sprint("key ", id), Limit: l.MustCompile(), Cost: 1}
		bucket := int64(0)
		for i := range 2 {
			for width := charge.Limit.Rule().Width; width > 0 && time.Now().UnixMicro()/width <= bucket; {
				time.Sleep(time.Millisecond)
			}
			a := storetest.NewAct(charge)
			if charge.Limit.Algorithm == weir.Concurrency {
				a.ID, a.Scope.Owner = fmt.Sprint("holder ", i), a.Charges[0].Key
			}
			if store.Take(ctx, []*weir.Act{a}); !a.Allowed() {
				t.Fatalf("%v: %+v %v", charge.Limit, a.Decisions, a.Err)
			}
			if width := charge.Limit.Rule().Width; width > 0 {
				bucket = a.Decisions[0].At.UnixMicro() / width
			}
			name := store.KeyOf(&charge)
			if client.PTTL(ctx, name).Val() <= 0 {
				t.Errorf("%v: %s has no TTL", charge.Limit, name)
			}
			client.Persist(ctx, name)
		}
	}
}
