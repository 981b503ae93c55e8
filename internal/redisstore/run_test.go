package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestRunsAnswerAsOneByOne asks for the same many times, in one call and in a call
// each, and demands the same answers, and those of memory.
func TestRunsAnswerAsOneByOne(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	// A round is some hundred takes, each of them alone once.
	rounds := storetest.Length(6)
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // its takes have ids
		}
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(id)))
			clock := storetest.NewClock()
			together, apart := clocked(t, address, "together:"+step.Name, clock), clocked(t, address, "apart:"+step.Name, clock)
			memory := memstore.New(memstore.Options{Now: clock.Now})
			for round := range rounds {
				clock.Advance(time.Duration(rng.Int64N(int64(2 * time.Second))))
				limit := storetest.RandomLimit(rng, weir.Algorithm(id))
				for range 3 {
					clock.Advance(time.Duration(rng.Int64N(int64(limit.Period))))
					acts := rush(rng, limit, fmt.Sprint("key ", round))
					want := answers(memory, acts, len(acts))
					if diff := cmp.Diff(want, answers(together, acts, len(acts)), ignored); diff != "" {
						t.Fatalf("%v, in one call (-memory +redis):\n%s", limit, diff)
					}
					if diff := cmp.Diff(want, answers(apart, acts, 1), ignored); diff != "" {
						t.Fatalf("%v, in a call each (-memory +redis):\n%s", limit, diff)
					}
				}
			}
		})
	}
}

func clocked(t *testing.T, address, prefix string, clock *storetest.Clock) *redisstore.Store {
	t.Helper()
	store, err := redisstore.NewWithClock(dial(t, address), redisstore.Options{Prefix: prefix + ":", Timeout: time.Minute}, clock.Micros)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// rush is takes of which many ask the same.
func rush(rng *rand.Rand, limit *weir.Limit, key string) []*weir.Act {
	costs := []int64{1, 0, 1 + rng.Int64N(5), rng.Int64N(limit.Capacity() + 2)}
	acts := make([]*weir.Act, 1+rng.IntN(60))
	cost, upTo, keep, immediate := int64(1), int64(0), int64(0), false
	for i := range acts {
		if rng.IntN(10) == 0 {
			cost, upTo, keep, immediate = costs[rng.IntN(len(costs))], 0, 0, rng.IntN(2) == 0
			if cost > 0 && rng.IntN(4) == 0 {
				upTo = cost + rng.Int64N(5)
			}
			if !limit.ChargeRefused && rng.IntN(3) == 0 {
				keep = rng.Int64N(limit.Capacity() + 2)
			}
		}
		acts[i] = storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost, UpTo: upTo, Keep: keep})
		acts[i].Immediate = immediate
	}
	return acts
}

// answers decides copies of the acts, so many a call.
func answers(taker weir.Taker, acts []*weir.Act, size int) []*weir.Act {
	var all []*weir.Act
	for _, a := range acts {
		all = append(all, &weir.Act{Charges: a.Charges, Immediate: a.Immediate, Decisions: make([]weir.Decision, 1)})
	}
	for i := 0; i < len(all); i += size {
		taker.Take(context.Background(), all[i:i+size])
	}
	for _, a := range all {
		a.Charges = nil
	}
	return all
}

// TestRunsAreOneOperation demands that acts which ask the same of a key are one
// operation of the script, whatever stands between them on other keys, as far as
// nothing else is asked of the key.
func TestRunsAreOneOperation(t *testing.T) {
	t.Parallel()
	limit, log := weir.PerSecond(5).MustCompile(), weir.PerSecond(5)
	log.Algorithm, log.ChargeRefused = weir.SlidingLog, true
	charges := log.MustCompile()
	take := func(key string, cost int64) *weir.Act {
		return storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	}
	other := take("a", 1)
	other.ID = "id"
	kept := take("a", 1)
	kept.Charges[0].Keep = 1
	refusals := storetest.NewAct(weir.Charge{Key: "a", Limit: charges, Cost: 1})
	for name, c := range map[string]struct {
		acts  []*weir.Act
		items int
		plain bool
	}{
		"one key":          {[]*weir.Act{take("a", 1), take("a", 1), take("a", 1)}, 1, true},
		"looks":            {[]*weir.Act{take("a", 0), take("a", 0)}, 1, true},
		"two keys":         {[]*weir.Act{take("a", 1), take("b", 1), take("a", 1), take("b", 1)}, 2, true},
		"two costs":        {[]*weir.Act{take("a", 1), take("a", 2), take("a", 1)}, 3, true},
		"two keeps":        {[]*weir.Act{take("a", 1), kept, kept, take("a", 1)}, 3, true},
		"an id among them": {[]*weir.Act{take("a", 1), take("a", 1), other, take("a", 1)}, 3, false},
		"charged refusals": {[]*weir.Act{refusals, refusals}, 2, false},
	} {
		items, plain := redisstore.Shape(c.acts...)
		if items != c.items || plain != c.plain {
			t.Errorf("%s: %d operations, plain %v; want %d, %v", name, items, plain, c.items, c.plain)
		}
	}
}

// TestBatchesReadFewBuckets: one script call reads no more buckets than one act may
// have, however many acts there are; those of a run are read once.
func TestBatchesReadFewBuckets(t *testing.T) {
	t.Parallel()
	limit := weir.Limit{Algorithm: weir.RollingWindow, Count: 10, Period: time.Hour, Buckets: 3600}.MustCompile()
	take := func(key, id string) *weir.Act {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
		a.ID = id
		return a
	}
	var keys, ids, same []*weir.Act
	for i := range 100 {
		keys = append(keys, take(fmt.Sprint("key ", i), ""))
		ids = append(ids, take("key", fmt.Sprint("id ", i)))
		same = append(same, take(fmt.Sprint("key ", i%2), ""))
	}
	for name, c := range map[string]struct {
		acts []*weir.Act
		want int
	}{"keys": {keys, 2}, "ids": {ids, 2}, "runs": {same, 100}} {
		if n := redisstore.Fill(c.acts...); n != c.want {
			t.Errorf("%s: one call has %d acts, want %d", name, n, c.want)
		}
	}
}

// ignored are the fields that say how far an act was validated.
var ignored = cmpopts.IgnoreUnexported(weir.Act{})
