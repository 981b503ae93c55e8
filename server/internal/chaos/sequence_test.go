package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testserver"
)

// What a sequence is: so many acts of so many callers, on keys of which each has few
// enough acts for a judge.
const (
	sequenceActs    = 2000
	sequenceCallers = 16
	sequenceKeys    = 8 // at a time, so that few acts on a key are unknown at once
)

// changing are limits that a key has in turn: they differ in their counts alone, so
// that what was used under the one counts under the other.
var changing = []*subject{
	{"chain", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 30, Period: decades}), chain},
	{"chain", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 20, Period: decades}), chain},
	{"chain", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 40, Period: decades}), chain},
}

// A disturbance is what happens during a sequence.
type disturbance struct {
	name   string
	strike func(*world)
}

// TestSequences lets many callers take from few keys, reset them and change their
// limits, while something happens, and has porcupine look for one order of the acts
// that explains all answers.
func TestSequences(t *testing.T) {
	t.Parallel()
	var c *testserver.Cluster
	moved := 0
	for name, of := range map[string]struct {
		makeup       makeup
		disturbances []disturbance
		seeds        int // in a full run
	}{
		"one Redis, AOF always": {makeup{args: kept, ask: changing}, []disturbance{
			{"kill -9", killed},
			{"SIGSTOP", suspend},
			{"replies dropped", network(testserver.Drop)},
			{"replies cut", network(testserver.Cut)},
			{"requests late", network(testserver.Late)},
			{"nothing", func(*world) {}},
		}, 150},
		"slots that move": {makeup{start: onCluster(&c), ask: changing}, []disturbance{
			{"slots move", func(w *world) {
				for before := moved; moved == before && !w.t.Failed(); {
					moved += w.shuffle(c) // as soon as there are keys
				}
			}},
		}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := sequences{world: newWorld(t, of.makeup), seeds: len(of.disturbances)}
			if *full {
				q.seeds = of.seeds
			}
			q.run(of.disturbances)
			q.report(name)
		})
	}
	t.Cleanup(func() {
		if moved == 0 {
			t.Error("no slot was moved")
		}
	})
}

// sequences are many of them on one store, one after the other.
type sequences struct {
	*world
	seeds        int
	acts, doubts int
	took         time.Duration // the judge
	wrong        []error
}

func (q *sequences) run(disturbances []disturbance) {
	for seed := range q.seeds {
		q.history = newHistory()
		d := disturbances[seed%len(disturbances)]
		q.sequence(uint64(seed), d.strike)
		began := time.Now()
		err := chains(q.t.Context(), q.world)
		q.took += time.Since(began)
		q.acts, q.doubts = q.acts+len(q.history.ops), q.doubts+q.history.count(unknown)
		if err == nil {
			err = errorsKnown(q.history)
		}
		if err != nil && (q.server == nil || !q.server.Torn()) {
			q.wrong = append(q.wrong, fmt.Errorf("seed %d, %s: %w", seed, d.name, err))
		}
		for _, node := range q.nodes {
			if err := node.FlushAll(q.t.Context()).Err(); err != nil {
				q.t.Error(err)
			}
		}
	}
}

// sequence is one history of acts, with something that happens meanwhile.
func (q *sequences) sequence(seed uint64, strike func(*world)) {
	var keys [sequenceKeys]link
	ctx := q.t.Context()
	var callers sync.WaitGroup
	for number := range sequenceCallers {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(number)))
			c := &caller{world: q.world, number: number}
			for range sequenceActs / sequenceCallers {
				s := changing[0]
				if rng.IntN(5) == 0 {
					s = changing[rng.IntN(len(changing))]
				}
				n := rng.IntN(len(keys))
				o := op{caller: number, subject: s, key: fmt.Sprintf("%d/%d/%s", seed, n, keys[n].key(s)), cost: 1 + rng.Int64N(3)}
				if rng.IntN(20) == 0 {
					o.kind, o.cost = acts.KindReset, 0
				}
				o = c.once(q.chained[number%instances], o)
				keys[n].note(&o)
				c.ops = append(c.ops, o)
				pause(ctx, time.Duration(rng.Int64N(int64(2*think))))
			}
			q.history.note(c.ops...)
		})
	}
	time.Sleep(lead / 2)
	strike(q.world)
	callers.Wait()
}

func (q *sequences) report(name string) {
	r := row{
		fault:    fmt.Sprintf("%d sequences of %d acts by %d callers, %s, with resets and other limits", q.seeds, sequenceActs, sequenceCallers, name),
		promise:  "one order of acts explains all answers of a key",
		measured: fmt.Sprintf("%d acts, %d unknown, judged in %v", q.acts, q.doubts, q.took.Round(time.Millisecond)),
	}
	for _, err := range q.wrong {
		r.fail(q.t, "%v", err)
	}
	if q.acts != q.seeds*sequenceActs {
		r.fail(q.t, "%d acts", q.acts)
	}
	report(r)
}
