package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestShares makes takes of random classes: none that its class's own limit has room for is
// refused.
func TestShares(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	const parts = 4
	for seed := range uint64(parts) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := shared(t, address, fmt.Sprint(seed), seed, same).Check(storetest.Length(4000) / parts); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSharing compares random histories with what the documentation says about shares, while
// overrides of the budget begin and end.
func TestSharing(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := sharing(t, address, fmt.Sprint("sharing ", seed), seed, same).Check(storetest.Length(2000) / 2); err != nil {
				t.Error(err)
			}
		})
	}
}

// sharing compares a Redis whose script was changed, below overrides, with the documentation.
func sharing(t *testing.T, address, prefix string, seed uint64, mutate func(string) string) storetest.Sharing {
	t.Helper()
	store, clock := mutant(t, address, prefix, mutate)
	layer := override.Wrap(store, override.Options{Now: clock.Now})
	return storetest.Sharing{Taker: layer, Clock: clock, Seed: seed, Store: store, Override: func(key string, l *weir.Limit) {
		if l == nil {
			layer.Delete(key)
		} else if err := layer.Set(override.Override{Key: key, Limit: l, Until: clock.Now().Add(365 * 24 * time.Hour)}); err != nil {
			t.Error(err)
		}
	}}
}

// TestSharingFindsMutants shows that TestSharing notices if the script takes from, gives back
// to, or tells of another alternative than the documentation says.
func TestSharingFindsMutants(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	for _, name := range []string{
		"a guarantee is refused by its budget", "an up-to takes the first alternative", "what is left of other alternatives is not told",
		"an alternative that was not granted is settled", "a refund gives back what has drained", "what is kept seems to remain",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(mutants, func(m mutation) bool { return m.name == name })
			if i < 0 {
				t.Fatal("there is no such mutant")
			}
			m := mutants[i]
			mutate := func(text string) string { return strings.ReplaceAll(text, m.old, m.with) }
			if err := sharing(t, address, "sharing "+name, 1, mutate).Check(20_000); err == nil {
				t.Error("not noticed")
			} else {
				t.Log(err)
			}
		})
	}
}

// shared tests a Redis whose budgets are shared, and whose script was changed.
func shared(t *testing.T, address, prefix string, seed uint64, mutate func(string) string) storetest.SharedBudgets {
	t.Helper()
	store, clock := mutant(t, address, prefix, mutate)
	return storetest.SharedBudgets{Taker: store, Clock: clock, Seed: seed}
}

// noticed makes takes until one breaks a promise.
func noticed(t *testing.T, start func(seed uint64) storetest.SharedBudgets) {
	t.Helper()
	for seed := range uint64(20) {
		if err := start(seed).Check(20_000); err != nil {
			t.Log(err)
			return
		}
	}
	t.Error("not noticed")
}

// TestSharesFindMutants shows that TestShares notices if any part of the construction is left
// out, by those who charge or in the Lua.
func TestSharesFindMutants(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	for name, change := range storetest.GuaranteeMutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noticed(t, func(seed uint64) storetest.SharedBudgets {
				s := shared(t, address, fmt.Sprint(name, seed), seed, same)
				change(&s)
				return s
			})
		})
	}
	for _, name := range []string{
		"one of the units that are kept may be taken", "what is kept may be taken", "the last alternative is chosen",
		"all alternatives are charged", "a guarantee is refused by its budget",
	} {
		t.Run("Lua: "+name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(mutants, func(m mutation) bool { return m.name == name })
			if i < 0 {
				t.Fatal("there is no such mutant")
			}
			m := mutants[i]
			mutate := func(text string) string { return strings.ReplaceAll(text, m.old, m.with) }
			noticed(t, func(seed uint64) storetest.SharedBudgets {
				return shared(t, address, fmt.Sprint("Lua ", m.name, seed), seed, mutate)
			})
		})
	}
}

// TestAlternativesAreOneCall counts the script calls of takes with shares: one for each.
func TestAlternativesAreOneCall(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	shares, err := weir.Shares{Limit: weir.Limit{Count: 10, Period: time.Hour}, Guarantees: map[string]int64{"a": 5}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	calls := func() (n int) {
		info := client.Info(t.Context(), "commandstats").Val()
		for line := range strings.Lines(info) {
			var each int
			if name, stats, _ := strings.Cut(line, ":calls="); strings.HasPrefix(name, "cmdstat_eval") {
				if _, err := fmt.Sscanf(stats, "%d", &each); err != nil {
					t.Fatal(err)
				}
				n += each
			}
		}
		return n
	}
	limiter := shares.Limiter(store, "budget", "a")
	if _, err := limiter.Peek(t.Context(), "k"); err != nil { // uploads the script
		t.Fatal(err)
	}
	before, granted := calls(), 0
	const takes = 12 // by the guarantee, then by what is lent, then refused
	for range takes {
		d, err := limiter.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		granted += int(d.Granted)
	}
	if n := calls() - before; n != takes || granted == 0 || granted == takes {
		t.Errorf("%d script calls for %d takes, of which %d were granted", n, takes, granted)
	}
}
