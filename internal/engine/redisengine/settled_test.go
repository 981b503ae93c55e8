package redisengine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// about returns an act about a take of an owner with an ID.
func about(kind weir.Kind, owner, id string, charges ...weir.Charge) *weir.Act {
	a := storetest.NewAct(charges...)
	a.Kind, a.ID, a.Scope.Owner, a.Scope.Asks = kind, id, owner, fmt.Sprint(charges[0].Cost)
	return a
}

// TestSettlementsShareCalls: acts about takes share a script call with one another and with takes,
// unless both charge a key.
func TestSettlementsShareCalls(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(1_000_000).MustCompile()
	act := func(kind weir.Kind, key string) *weir.Act {
		return about(kind, "owner", "id of "+key, weir.Charge{Key: key, Limit: limit, Cost: 1})
	}
	plain := func(key string) *weir.Act { return storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1}) }
	var settlements []*weir.Act
	for i := range 100 {
		settlements = append(settlements, act(acts.KindSettle, fmt.Sprint("key ", i)))
	}
	for name, c := range map[string]struct {
		acts []*weir.Act
		want int
	}{
		"settlements":                {settlements, 64},
		"all kinds":                  {[]*weir.Act{act(acts.KindSettle, "a"), act(acts.KindRelease, "b"), act(acts.KindRefund, "c"), act(acts.KindRenew, "d"), act(acts.KindWithdraw, "e"), act(acts.KindTake, "f"), plain("g")}, 7},
		"a settlement after a take":  {[]*weir.Act{plain("a"), plain("b"), act(acts.KindSettle, "a")}, 2},
		"a take after a settlement":  {[]*weir.Act{act(acts.KindSettle, "a"), plain("b"), plain("a")}, 2},
		"a hold after a settlement":  {[]*weir.Act{act(acts.KindSettle, "a"), act(acts.KindTake, "a")}, 1},
		"two settlements of one key": {[]*weir.Act{act(acts.KindSettle, "a"), act(acts.KindSettle, "a")}, 1},
	} {
		if n := redisengine.Fill(c.acts...); n != c.want {
			t.Errorf("%s: one call has %d acts, want %d", name, n, c.want)
		}
	}
}

// TestOneIDInOneCall demands the same of acts about one ID whether they come in one call or one
// by one: its record lives on, and one that is not to be remembered is not found.
func TestOneIDInOneCall(t *testing.T) {
	t.Parallel()
	client := dialPatient(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{Timeout: time.Minute})
	limit := weir.PerDay(10).MustCompile()
	for name, makeActs := range map[string]func(owner string) []*weir.Act{
		"settled under another limit": func(owner string) []*weir.Act {
			take := about(acts.KindTake, owner, "id", weir.Charge{Key: owner + " a", Limit: limit, Cost: 2})
			take.Hold = time.Hour
			return []*weir.Act{take, about(acts.KindSettle, owner, "id", weir.Charge{Key: owner + " b", Limit: limit, Cost: 1})}
		},
		"released, not known": func(owner string) []*weir.Act {
			return []*weir.Act{
				about(acts.KindRelease, owner, "id", weir.Charge{Key: owner + " a", Limit: limit}),
				about(acts.KindTake, owner, "id", weir.Charge{Key: owner + " b", Limit: limit, Cost: 1}),
				about(acts.KindSettle, owner, "id", weir.Charge{Key: owner + " c", Limit: limit, Cost: 1}),
			}
		},
		"withdrawn, then taken": func(owner string) []*weir.Act {
			withdrawal := about(acts.KindWithdraw, owner, "id", weir.Charge{Key: owner + " a", Limit: limit, Cost: 1})
			take := about(acts.KindTake, owner, "id", weir.Charge{Key: owner + " b", Limit: limit, Cost: 1})
			withdrawal.Attempt, take.Attempt = 7, 7
			return []*weir.Act{withdrawal, take}
		},
	} {
		together, apart := makeActs(name+" together"), makeActs(name+" apart")
		if n := redisengine.Fill(together...); n != len(together) {
			t.Fatalf("%s: one call has %d of the acts", name, n)
		}
		store.Take(t.Context(), together)
		for i := range apart {
			store.Take(t.Context(), apart[i:i+1])
		}
		for i, a := range together {
			b := apart[i]
			if fmt.Sprint(a.Err) != fmt.Sprint(b.Err) || a.Decisions[0].Outcome != b.Decisions[0].Outcome || a.Decisions[0].Granted != b.Decisions[0].Granted {
				t.Errorf("%s: act %d: %+v, %v; one by one %+v, %v", name, i, a.Decisions, a.Err, b.Decisions, b.Err)
			}
		}
		one, other := client.PTTL(t.Context(), store.RecordOf(together[0])).Val(), client.PTTL(t.Context(), store.RecordOf(apart[0])).Val()
		if (one-other).Abs() > time.Minute || one <= 0 {
			t.Errorf("%s: the record lives for %v, one by one for %v", name, one, other)
		}
	}
}

// TestHoldsConserveUnits has callers hold units of shared keys in two slots of a cluster, and end
// the holds in calls with many others: what is charged in the end is what was settled.
func TestHoldsConserveUnits(t *testing.T) {
	t.Parallel()
	store := open(t, dialCluster(t, testserver.StartCluster(t, 3)), redisengine.Options{Prefix: "conserve:", Timeout: time.Minute})
	const budget, keys, callers, rounds, each = 20_000, 12, 8, 15, 24
	var limits []*weir.Limit
	for _, algorithm := range []weir.Algorithm{weir.FixedWindow, weir.GCRA, weir.SlidingLog} {
		// Not one unit drains while the test runs.
		limits = append(limits, weir.Limit{Algorithm: algorithm, Count: budget, Period: 365 * 24 * time.Hour}.MustCompile())
	}
	charges := func(pair int, cost int64) []weir.Charge {
		limit := limits[pair%len(limits)]
		return []weir.Charge{{Key: fmt.Sprint("left ", pair), Limit: limit, Cost: cost}, {Key: fmt.Sprint("right ", pair), Limit: limit, Cost: cost}}
	}
	var mu sync.Mutex
	var want [keys]int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			var ends []*weir.Act
			var kept [keys]int64
			for round := range rounds + 1 {
				// The ends of the last holds share calls with the next holds.
				batch := ends
				ends = nil
				for i := range each {
					if round == rounds {
						break
					}
					pair, cost := rng.IntN(keys), rng.Int64N(20)+1
					owner, id := fmt.Sprint("left ", pair), fmt.Sprint(caller, " ", round, " ", i)
					batch = append(batch, about(acts.KindTake, owner, id, charges(pair, cost)...))
					kind, part := []weir.Kind{acts.KindSettle, acts.KindRelease, acts.KindRefund}[rng.IntN(3)], rng.Int64N(cost+1)
					switch kind {
					case acts.KindSettle:
						part = rng.Int64N(2 * cost)
						kept[pair] += part
					case acts.KindRefund:
						kept[pair] += cost - part
					default:
						part = 0
					}
					ends = append(ends, about(kind, owner, id, charges(pair, part)...))
				}
				rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
				store.Take(context.Background(), batch)
				for _, a := range batch {
					if a.Err != nil || !a.Allowed() {
						t.Errorf("%v: %+v, %v", a.Kind, a.Decisions, a.Err)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for pair, units := range kept {
				want[pair] += units
			}
		})
	}
	all.Wait()
	for pair, units := range want {
		peek := storetest.NewAct(charges(pair, 0)...)
		store.Take(context.Background(), []*weir.Act{peek})
		for i, d := range peek.Decisions {
			if charged := budget - d.Remaining; peek.Err != nil || charged != units {
				t.Errorf("charge %d of pair %d: %d units are charged, want %d (%v)", i, pair, charged, units, peek.Err)
			}
		}
	}
}
