// Package stacktest compares what instances of a store with all its layers tell their callers
// with what the store holds, by random histories of the library's public calls. The instances
// bound the keys of their limits, lease units and have overrides that come and go, each its own.
//
// No time passes for the store during a history, so nothing drains: of each key, the store holds
// what was granted, less what was returned. Time passes for the layers, so that leases and
// overrides end.
package stacktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// Options are the stores that a test compares.
type Options struct {
	// Bare looks into the store.
	Bare weir.Taker
	// Stores are what the instances are built on: the same store.
	Stores [2]weir.Taker
	// Remote are options of instances of a store on another machine.
	Remote remote.Options
	// Seed makes the histories repeatable, and their keys their own.
	Seed uint64
}

// Length is the number of steps of one history.
const length = 100

// Compare makes so many steps, in histories of their own, and returns the first difference.
func Compare(ctx context.Context, o Options, steps int) error {
	for n := 0; n*length < steps; n++ {
		if err := newHistory(o, n).run(ctx); err != nil {
			return fmt.Errorf("seed %d, history %d: %w", o.Seed, n, err)
		}
	}
	return nil
}

// An instance is one process on the store.
type instance struct {
	*stack.Stack
	tracked   map[string]map[string]bool // the keys of each budget, by its overflow key
	overrides map[string]over            // by the key in the store
}

// An over is an override of a key.
type over struct {
	limit *weir.Limit // nil: none
	until time.Time
}

// A router is the Taker of the history's limiters. Each call goes to the instance that is chosen
// then, so that a hold may be settled at another one.
type router struct{ *instance }

// Take asks the instance.
func (r *router) Take(ctx context.Context, acts []*weir.Act) { r.Stack.Take(ctx, acts) }

// ChangeOverride changes the instance's overrides.
func (r *router) ChangeOverride(key string, o *weir.Override) (bool, error) {
	return r.Override.ChangeOverride(key, o)
}

// A history is a random sequence of calls about a few keys.
type history struct {
	o                Options
	rng              *rand.Rand
	clock            *storetest.Clock // of the layers
	bounded, leasing bool
	instances        [2]*instance
	router           *router
	limiters         []*limiter
	joint            [2]*limiter // those whose keys are charged together
	used             map[string]int64
	refused          map[string]int64       // anonymous takes of slots
	blocked          map[string]bool        // keys that a refusal has blocked
	limits           map[string]*weir.Limit // of each key in the store
	tags             map[string]string      // their hash tags; the Overflow has none
	grants           []grant
	step             string // what the last step did
}

// A limiter is one of a history's limiters.
type limiter struct {
	*weir.Limiter
	name   string
	limits []*weir.Limit
	waits  bool // leaky_bucket: what can be returned depends on the queue
	slots  bool
	conns  bool // slots of callers without a name
}

// A grant is what a caller may still return.
type grant struct {
	limiter     *limiter // nil for the joint
	key         string
	parts       []part
	decision    weir.Decision
	reservation *weir.Reservation
	hold        *weir.Hold
}

// A part is what a grant charged of one limit.
type part struct {
	own, budget string // the key in the store, and that of the budget that was charged
	limit       *weir.Limit
	units       int64
	free        bool // the key had no limit then
	alt         uint8
}

// begin is when the layers' clock begins.
var begin = storetest.NewClock().Now()

const month = 30 * 24 * time.Hour

func newHistory(o Options, n int) *history {
	h := &history{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, uint64(n))), clock: storetest.NewClock(),
		used: map[string]int64{}, refused: map[string]int64{}, blocked: map[string]bool{}, limits: map[string]*weir.Limit{}, tags: map[string]string{},
	}
	h.bounded, h.leasing = h.rng.IntN(2) == 0, h.rng.IntN(2) == 0
	for i := range h.instances {
		options := stack.Options{Now: h.clock.Now, Remote: o.Remote, DenyCacheEntries: -1}
		if h.bounded {
			options.KeyLimit = func(c *weir.Charge) weir.KeyLimit {
				return weir.KeyLimit{MaxKeys: maxKeys, Overflow: overflow(c.Limit)}
			}
		}
		if h.leasing {
			options.Leased = func(*weir.Limit) bool { return true }
			options.LeasePart = 0.5
		}
		h.instances[i] = &instance{stack.New(o.Stores[i], options), map[string]map[string]bool{}, map[string]over{}}
	}
	h.router = &router{h.instances[0]}
	name := func(i int) string { return fmt.Sprintf("%d %d %d", o.Seed, n, i) }
	units := []weir.Algorithm{weir.GCRA, weir.GCRA, weir.TokenBucket, weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.TokenBucket, weir.SlidingCounter}
	of := func(name string) weir.Limit {
		l := weir.Limit{Name: name, Algorithm: units[h.rng.IntN(len(units))], Count: 20 + h.rng.Int64N(30), Period: month}
		if !h.leasing && h.rng.IntN(2) == 0 {
			l.Block = time.Hour
		}
		return l
	}
	h.add(name(0), of(name(0)))
	h.add(name(1), of(name(1)), of(name(1)+"b"))
	first, second := h.add(name(2), of(name(2))), h.add(name(3), of(name(3)))
	h.joint = [2]*limiter{first, second}
	// Alternatives have an Overflow for each hash slot, which this model does not know.
	if either, err := first.Otherwise(second.Limiter); err == nil && !h.bounded {
		h.limiters = append(h.limiters, &limiter{Limiter: either, name: "either", limits: append(first.limits[:1:1], second.limits...)})
	}
	slots := weir.Limit{Name: name(4), Algorithm: weir.Concurrency, Count: 3, Period: month}
	h.add(name(4), slots).slots = true
	slots.Name = name(5)
	h.add(name(5), slots).conns = true
	leaky := of(name(6))
	leaky.Algorithm, leaky.Block = weir.LeakyBucket, 0
	h.add(name(6), leaky).waits = true
	// The fewer, the more happens to each.
	first, second = h.limiters[h.rng.IntN(len(h.limiters))], h.limiters[h.rng.IntN(len(h.limiters))]
	if either := h.limiters[4]; either.name == "either" && h.rng.IntN(2) == 0 {
		first = either
	}
	h.limiters = []*limiter{first, second}
	return h
}

// maxKeys is how many keys of a limit an instance tracks.
const maxKeys = 2

// overflow is the key of the budget that further keys share.
func overflow(l *weir.Limit) string { return "overflow of " + l.Name }

// add adds a limiter to the history.
func (h *history) add(name string, limits ...weir.Limit) *limiter {
	made, err := weir.NewLimiter(h.router, name, limits...)
	if err != nil {
		panic(err)
	}
	l := &limiter{Limiter: made, name: name}
	for _, limit := range limits {
		l.limits = append(l.limits, limit.MustCompile())
	}
	h.limiters = append(h.limiters, l)
	return l
}

func (h *history) run(ctx context.Context) error {
	for step := range length {
		if h.rng.IntN(4) == 0 {
			h.clock.Advance(time.Duration(h.rng.IntN(1500)) * time.Millisecond)
		}
		h.router.instance = h.instances[h.rng.IntN(len(h.instances))]
		err := h.act(ctx)
		if err == nil && !h.leasing {
			err = h.compare(ctx)
		}
		if err != nil {
			return h.failed(step, err)
		}
	}
	for _, i := range h.instances {
		if err := i.Stop(ctx); err != nil {
			return h.failed(length, err)
		}
	}
	if err := h.compare(ctx); err != nil {
		h.step = "the instances were stopped"
		return h.failed(length, err)
	}
	return nil
}

func (h *history) failed(step int, err error) error {
	return fmt.Errorf("step %d, keys bounded: %v, leases: %v: %s: %w", step, h.bounded, h.leasing, h.step, err)
}

// compare compares what the store holds with what was granted.
func (h *history) compare(ctx context.Context) error {
	var keys []string
	var peeks []*weir.Act
	for key, limit := range h.limits {
		keys, peeks = append(keys, key), append(peeks, storetest.NewAct(weir.Charge{Key: key, HashTag: h.tags[key], Limit: wide(limit)}))
	}
	h.o.Bare.Take(ctx, peeks)
	for i, a := range peeks {
		if a.Err != nil {
			return a.Err
		}
		if held := most - a.Decisions[0].Remaining; held != h.used[keys[i]] {
			return fmt.Errorf("the store holds %d units of %q under %v, and %d were granted and not returned", held, keys[i], h.limits[keys[i]], h.used[keys[i]])
		}
	}
	return nil
}

// most is more than any key is charged.
const most = 10_000

// wide is the limit, but with room for most.
func wide(l *weir.Limit) *weir.Limit {
	w := *l
	w.Block = 0 // a blocked key holds what it held
	if algo.TraitsOf(l.Algorithm).Bursts {
		w.Burst = most
	} else {
		w.Count = most
	}
	return w.MustCompile()
}

// key returns one of the few keys. If keys are bounded, an instance cannot track all of them.
func (h *history) key() string {
	if h.bounded {
		return fmt.Sprint("key ", h.rng.IntN(2*maxKeys))
	}
	return fmt.Sprint("key ", h.rng.IntN(2))
}

// act makes one random step.
func (h *history) act(ctx context.Context) error {
	l, key := h.limiters[h.rng.IntN(len(h.limiters))], h.key()
	switch n := h.rng.IntN(20); {
	case n == 0:
		return h.override(l, key)
	case n == 1 && h.rng.IntN(3) == 0:
		return h.reset(ctx, l, key)
	case l.conns:
		return h.connect(ctx, l, key, n < 10)
	case n < 4:
		return h.record(ctx, l, key)
	case n < 6:
		return h.negative(ctx, l, key)
	case n < 11 && len(h.grants) > 0:
		return h.end(ctx)
	case n < 12:
		return h.together(ctx, key)
	}
	return h.take(ctx, l, key)
}
