package denycache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// checked asks the store whatever the cache refuses, and compares the two: the
// cache must never refuse what the store grants, nor tell another wait. It
// answers what the store does, so that each history goes on as without a cache.
type checked struct {
	t     testing.TB
	cache *denycache.Layer
	store weir.Taker
	hits  *atomic.Int64
	// granted are the keys that were granted units: waits of earlier refusals may have become
	// longer under algorithms that do not drain.
	granted *sync.Map
}

func (c checked) Take(ctx context.Context, acts []*weir.Act) {
	for _, a := range acts {
		one := []*weir.Act{a}
		c.cache.Take(ctx, one)
		if a.Err != nil || !fromCache(a) {
			for i := range a.Decisions {
				if a.Decisions[i].Granted > 0 {
					c.granted.Store(a.Charges[i].Key, true)
				}
			}
			continue
		}
		c.hits.Add(1)
		said := append([]weir.Decision(nil), a.Decisions...)
		c.store.Take(ctx, one)
		for i := range said {
			c.compare(&a.Charges[i], &said[i], &a.Decisions[i])
		}
	}
}

func fromCache(a *weir.Act) bool {
	for i := range a.Decisions {
		if a.Decisions[i].Source == acts.SourceDenyCache {
			return true
		}
	}
	return false
}

func (c checked) compare(ch *weir.Charge, said, true *weir.Decision) {
	if said.Outcome == weir.NotEvaluated {
		return
	}
	worse := said.RetryAfter - true.RetryAfter
	if traits := algo.TraitsOf(ch.Limit.Algorithm); worse < 0 && !traits.Drains && !traits.Windows {
		if _, granted := c.granted.Load(ch.Key); granted {
			worse = 0
		}
	}
	if true.Outcome != weir.Refused || said.Granted != 0 || said.Remaining > true.Remaining ||
		worse < 0 || worse > time.Duration(max(1, ch.Limit.Rule().Tick))*time.Microsecond || said.At != true.At || said.ResetAfter != true.ResetAfter && !ch.Limit.ChargeRefused {
		c.t.Errorf("%v, cost %d\n the cache said %+v\n the store says %+v", ch.Limit, ch.Cost, *said, *true)
	}
}

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

// TestSuite drives the cache with every history of the suite.
func TestSuite(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	t.Run("checked", func(t *testing.T) {
		storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
			store := memory(t, clock)
			cache := denycache.Wrap(store, denycache.Options{Now: clock.Now, MaxAge: time.Hour})
			return checked{t, cache, store, &hits, new(sync.Map)}
		})
	})
	if hits.Load() < 1000 {
		t.Errorf("the histories met only %d refusals that were known", hits.Load())
	}
}

func take(taker weir.Taker, charges ...weir.Charge) *weir.Act {
	a := storetest.NewAct(charges...)
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

func open(o denycache.Options) (*denycache.Layer, *counting, *storetest.Clock) {
	clock := storetest.NewClock()
	o.Now = clock.Now
	store := &counting{next: memengine.New(memengine.Options{Now: clock.Now})}
	return denycache.Wrap(store, o), store, clock
}

// counting counts the acts that reach the store.
type counting struct {
	next weir.Taker
	acts atomic.Int64
}

func (c *counting) Take(ctx context.Context, acts []*weir.Act) {
	c.acts.Add(int64(len(acts)))
	c.next.Take(ctx, acts)
}

func TestWhatIsAskedAndWhatIsKnown(t *testing.T) {
	t.Parallel()
	limit := (weir.Limit{Count: 10, Period: 10 * time.Second}).MustCompile()
	places := (weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour}).MustCompile()
	debt := (weir.Limit{Count: 1, Period: time.Hour, ChargeRefused: true}).MustCompile()
	raised := (weir.Limit{Count: 20, Period: 10 * time.Second}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 4}
	for name, c := range map[string]struct {
		act   func(*weir.Act)
		known bool
	}{
		"the same":             {func(*weir.Act) {}, true},
		"a larger cost":        {func(a *weir.Act) { a.Charges[0].Cost = 5 }, true},
		"the largest cost":     {func(a *weir.Act) { a.Charges[0].Cost = 10 }, true},
		"a cost that is never": {func(a *weir.Act) { a.Charges[0].Cost = 11 }, false},
		"a smaller cost":       {func(a *weir.Act) { a.Charges[0].Cost = 3 }, false},
		"a look":               {func(a *weir.Act) { a.Charges[0].Cost = 0 }, false},
		"an id":                {func(a *weir.Act) { a.ID = "i" }, false},
		"a wait":               {func(a *weir.Act) { a.MaxWait = time.Second }, false},
		"a hold":               {func(a *weir.Act) { a.ID, a.Hold = "h", time.Second }, false},
		"immediate":            {func(a *weir.Act) { a.Immediate = true }, false},
		"a raised limit":       {func(a *weir.Act) { a.Charges[0].Limit = raised }, false},
		"places":               {func(a *weir.Act) { a.ID, a.Charges[0].Limit = "p", places }, false},
		"debt":                 {func(a *weir.Act) { a.Charges[0].Limit = debt }, false},
		"another key":          {func(a *weir.Act) { a.Charges[0].Key = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache, store, _ := open(denycache.Options{})
			take(cache, weir.Charge{Key: "k", Limit: limit, Cost: 9})
			if a := take(cache, charge); a.Decisions[0].Source != acts.SourceStore || a.Decisions[0].RetryAfter != 3*time.Second {
				t.Fatalf("the refusal itself: %+v", a.Decisions[0])
			}
			asked := store.acts.Load()
			a := storetest.NewAct(charge)
			c.act(a)
			cache.Take(t.Context(), []*weir.Act{a})
			if known := store.acts.Load() == asked; known != c.known || known != fromCache(a) {
				t.Errorf("known: %v, want %v: %+v %v", known, c.known, a.Decisions, a.Err)
			}
		})
	}
}

// TestKeep has two classes share a budget: what is known of the one that keeps units free
// says nothing of the other, whose grants do not make the cache forget it.
func TestKeep(t *testing.T) {
	t.Parallel()
	for id := range algo.Steps {
		algorithm := weir.Algorithm(id)
		traits := algo.TraitsOf(algorithm)
		if traits.HoldsSlots {
			continue
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			cache, store, clock := open(denycache.Options{MaxAge: time.Hour})
			limit := (weir.Limit{Algorithm: algorithm, Count: 10, Period: 10 * time.Second}).MustCompile()
			batch := weir.Charge{Key: "k", Limit: limit, Cost: 1, Keep: 5}
			online := weir.Charge{Key: "k", Limit: limit, Cost: 1}
			take(cache, weir.Charge{Key: "k", Limit: limit, Cost: 5})
			refused := take(cache, batch).Decisions[0]
			if refused.Source != acts.SourceStore || refused.Outcome != weir.Refused {
				t.Fatalf("%+v", refused)
			}
			for i := range int64(3) {
				if a := take(cache, online); !a.Allowed() || a.Decisions[0].Remaining != 4-i {
					t.Fatalf("one that keeps nothing: %+v", a.Decisions)
				}
			}
			asked := store.acts.Load()
			known := func(c weir.Charge) bool {
				a := take(cache, c)
				if traits.Drains && fromCache(a) {
					own := storetest.NewAct(c)
					store.next.Take(t.Context(), []*weir.Act{own})
					if a.Decisions[0].RetryAfter != own.Decisions[0].RetryAfter {
						t.Errorf("%v: after %v, the store says %v", c, a.Decisions[0].RetryAfter, own.Decisions[0].RetryAfter)
					}
				}
				return fromCache(a)
			}
			if !known(batch) || store.acts.Load() != asked {
				t.Error("the grants made the cache forget")
			}
			same := weir.Charge{Key: "k", Limit: limit, Cost: 4, Keep: 2}
			if !known(same) {
				t.Error("what needs as much is not known")
			}
			more := weir.Charge{Key: "k", Limit: limit, Cost: 1, Keep: 7}
			if known(more) != (traits.Windows || traits.Drains) {
				t.Error("what needs more")
			}
			if less := (weir.Charge{Key: "k", Limit: limit, Cost: 1, Keep: 4}); known(less) {
				t.Error("what needs less is refused")
			}
			// A grant of as much contradicts what is known.
			clock.Advance(time.Hour)
			take(cache, weir.Charge{Key: "k", Limit: limit, Cost: 5})
			take(cache, batch)
			reset := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
			reset.Kind = acts.KindReset
			store.Take(t.Context(), []*weir.Act{reset})
			larger := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 2, Keep: 8})
			larger.ID, larger.Scope.Owner = "larger", larger.Charges[0].Key
			cache.Take(t.Context(), []*weir.Act{larger})
			if known(batch) {
				t.Error("still refused after a larger grant")
			}
		})
	}
}

func TestGivenBackIsForgotten(t *testing.T) {
	t.Parallel()
	limit := (weir.Limit{Count: 10, Period: 10 * time.Second}).MustCompile()
	for kind, change := range map[weir.Kind]func(*weir.Act){
		acts.KindReset:   func(a *weir.Act) { a.ID = "" },
		acts.KindRefund:  func(a *weir.Act) { a.Charges[0].Cost = 9 },
		acts.KindSettle:  func(a *weir.Act) { a.Charges[0].Cost = 1 },
		acts.KindRelease: func(*weir.Act) {},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			cache, _, _ := open(denycache.Options{})
			held := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 9})
			held.ID, held.Hold, held.Scope.Owner = "hold", time.Minute, held.Charges[0].Key
			cache.Take(t.Context(), []*weir.Act{held})
			charge := weir.Charge{Key: "k", Limit: limit, Cost: 4}
			take(cache, charge)
			if a := take(cache, charge); !fromCache(a) {
				t.Fatalf("not known: %+v", a.Decisions)
			}
			back := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
			back.Kind, back.ID, back.Scope.Owner = kind, "hold", back.Charges[0].Key
			change(back)
			cache.Take(t.Context(), []*weir.Act{back})
			if back.Err != nil {
				t.Fatal(back.Err)
			}
			if a := take(cache, charge); !a.Allowed() {
				t.Errorf("still refused: %+v", a.Decisions)
			}
		})
	}
}

func TestOneRefusalRefusesTheAct(t *testing.T) {
	t.Parallel()
	cache, store, _ := open(denycache.Options{})
	limit := (weir.Limit{Count: 1, Period: time.Minute}).MustCompile()
	spent, fresh := weir.Charge{Key: "spent", Limit: limit, Cost: 1}, weir.Charge{Key: "fresh", Limit: limit, Cost: 1}
	take(cache, spent)
	take(cache, spent)
	asked := store.acts.Load()
	// The store knows whether the other charge has to wait longer.
	for _, first := range []bool{true, false} {
		if a := take(cache, fresh, spent); a.Allowed() || fromCache(a) == first || a.Decisions[1].Outcome != weir.Refused {
			t.Errorf("asked %v, got %+v", first, a.Decisions)
		}
	}
	if store.acts.Load() != asked+1 {
		t.Errorf("asked %d times, want once", store.acts.Load()-asked)
	}
	asked++
	// Of several acts only the others go on, and in one call.
	acts := []*weir.Act{storetest.NewAct(spent), storetest.NewAct(fresh), storetest.NewAct(spent)}
	cache.Take(t.Context(), acts)
	if store.acts.Load() != asked+1 || !acts[1].Allowed() || acts[0].Allowed() || acts[2].Allowed() {
		t.Errorf("got %+v, %+v, %+v", acts[0].Decisions, acts[1].Decisions, acts[2].Decisions)
	}
}

// TestTheLongestWait: an act of several charges waits as long as the store would have it.
func TestTheLongestWait(t *testing.T) {
	t.Parallel()
	short, long := weir.PerSecond(1).MustCompile(), weir.Per(10, time.Hour).MustCompile()
	charge := func(key string, l *weir.Limit) weir.Charge {
		return weir.Charge{Key: key, HashTag: "tag", Limit: l, Cost: 1}
	}
	a, b := charge("a", short), charge("b", long)
	for name, c := range map[string]struct {
		before []weir.Charge // refused before
		act    []weir.Charge
		cached bool
	}{
		"only the short wait is known":          {[]weir.Charge{a}, []weir.Charge{a, b}, false},
		"only the long wait is known":           {[]weir.Charge{b}, []weir.Charge{a, b}, true},
		"both are known, each from another act": {[]weir.Charge{a, b}, []weir.Charge{a, b}, true},
	} {
		cache, store, clock := open(denycache.Options{MaxAge: time.Hour})
		for range 10 {
			take(store, b)
		}
		take(store, a)
		for _, ch := range c.before {
			take(cache, ch)
		}
		clock.Advance(time.Millisecond)
		for i := range 2 {
			asked := store.acts.Load()
			got := take(cache, c.act...)
			cached := store.acts.Load() == asked
			if _, d := got.Verdict(); d.RetryAfter != 6*time.Minute-time.Millisecond || got.Allowed() || cached != (c.cached || i > 0) {
				t.Errorf("%s, time %d: retry after %v, from memory %v: %v", name, i, d.RetryAfter, cached, got.Decisions)
			}
		}
	}
}

// TestAlternatives: an act is refused from memory only if all alternatives of a group are
// known to be refused.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	cache, store, _ := open(denycache.Options{MaxAge: time.Hour})
	shares, err := weir.Shares{Limit: weir.PerHour(100), Guarantees: map[string]int64{"a": 50, "b": 50}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(class string, cost int64) (a *weir.Act, fromStore bool) {
		before := store.acts.Load()
		a = shares.Limiter(cache, "budget", class).Act(acts.KindTake, "k", cost)
		cache.Take(t.Context(), []*weir.Act{a})
		return a, store.acts.Load() > before
	}
	if a, _ := ask("c", 80); !a.Allowed() {
		t.Fatalf("all that is lent: %v", a.Decisions)
	}
	if a, _ := ask("a", 10); !a.Allowed() {
		t.Fatalf("all that is guaranteed: %v", a.Decisions)
	}
	for i, want := range []bool{true, false} {
		a, fromStore := ask("a", 1)
		if a.Allowed() || fromStore != want || fromCache(a) == want || a.Decisions[0].Outcome != weir.Refused || a.Decisions[2].Outcome != weir.Refused {
			t.Errorf("beyond its guarantee, time %d: from the store %v: %v", i, fromStore, a.Decisions)
		}
		if s, d := a.Verdict(); s != 0 || d.RetryAfter != 72*time.Second {
			t.Errorf("time %d: %d speaks for %v", i, s, a.Decisions)
		}
	}
	if a, fromStore := ask("b", 1); !a.Allowed() || !fromStore {
		t.Errorf("a guarantee is refused: %v", a.Decisions)
	}
	if a, fromStore := ask("c", 1); a.Allowed() || fromStore {
		t.Errorf("what is known of the budget: %v", a.Decisions)
	}
	// Beside a charge that is known to be refused, no alternative is asked for.
	spent := weir.Charge{Key: "spent", Limit: shares.Pool(), Cost: 100}
	take(cache, spent)
	take(cache, spent)
	charges := []weir.Charge{spent}
	for _, c := range shares.Limiter(cache, "budget", "b").Act(acts.KindTake, "k", 1).Charges {
		c.Group = 1
		charges = append(charges, c)
	}
	take(cache, charges...) // the store knows what else it would wait for
	if a := take(cache, charges...); a.Allowed() || !fromCache(a) || a.Decisions[1].Outcome != weir.NotEvaluated || a.Decisions[3].Outcome != weir.NotEvaluated {
		t.Errorf("beside a refused charge: %v", a.Decisions)
	}
}

// TestOneBudgetOfSeveralRules: what one rule was refused, no other rule on the same budget
// asks for, and a grant to one leaves the refusals of those that keep more free.
func TestOneBudgetOfSeveralRules(t *testing.T) {
	t.Parallel()
	cache, store, _ := open(denycache.Options{MaxAge: time.Hour})
	rule := func(name string) *weir.Limit {
		return weir.Limit{Name: name, Count: 10, Period: time.Hour}.MustCompile()
	}
	ask := func(name string, cost, keep int64) (a *weir.Act, fromStore bool) {
		before := store.acts.Load()
		a = take(cache, weir.Charge{Key: "k", Limit: rule(name), Cost: cost, Keep: keep})
		return a, store.acts.Load() > before
	}
	for i, c := range []struct {
		rule       string
		cost, keep int64
		granted    bool
		fromStore  bool
	}{
		{"batch", 7, 3, true, true},
		{"batch", 1, 3, false, true},
		{"more batch", 1, 3, false, false},
		{"interactive", 1, 0, true, true},
		{"batch", 1, 3, false, false},
		{"more batch", 1, 4, false, false},
		{"interactive", 2, 0, true, true},
		{"interactive", 1, 0, false, true},
		{"people", 1, 0, false, false},
	} {
		if a, fromStore := ask(c.rule, c.cost, c.keep); a.Allowed() != c.granted || fromStore != c.fromStore {
			t.Errorf("%d: %s: %v, from the store %v", i, c.rule, a.Decisions, fromStore)
		}
	}
}

// A reset that comes before is done before.
func TestOrderOfOneTake(t *testing.T) {
	t.Parallel()
	cache, _, _ := open(denycache.Options{})
	limit := (weir.Limit{Count: 1, Period: time.Minute}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	take(cache, charge)
	take(cache, charge)
	reset := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
	reset.Kind = acts.KindReset
	acts := []*weir.Act{reset, storetest.NewAct(charge)}
	cache.Take(t.Context(), acts)
	if !acts[1].Allowed() {
		t.Errorf("got %+v %v", acts[1].Decisions, acts[1].Err)
	}
}

// An end in time: the store is asked again after MaxAge, however long the refusal.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	cache, store, clock := open(denycache.Options{MaxAge: 3 * time.Second})
	limit := (weir.Limit{Count: 1, Period: time.Hour}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	take(cache, charge)
	take(cache, charge)
	asked := store.acts.Load()
	clock.Advance(3*time.Second - time.Microsecond)
	if take(cache, charge); store.acts.Load() != asked {
		t.Error("the store was asked too early")
	}
	clock.Advance(time.Microsecond)
	if take(cache, charge); store.acts.Load() != asked+1 {
		t.Error("the store was not asked again")
	}
}

// late answers only once it is told to.
type late struct {
	next       weir.Taker
	asked, go_ chan struct{}
}

func (l *late) Take(ctx context.Context, all []*weir.Act) {
	l.next.Take(ctx, all)
	if all[0].Kind == acts.KindTake {
		l.asked <- struct{}{}
		<-l.go_
	}
}

// A refusal that was decided before a reset must not be learned after it.
func TestARefusalOlderThanAResetIsNotLearned(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	slow := &late{store, make(chan struct{}), make(chan struct{})}
	cache := denycache.Wrap(slow, denycache.Options{Now: clock.Now})
	limit := (weir.Limit{Count: 1, Period: time.Hour}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	take(store, charge)
	var done sync.WaitGroup
	done.Go(func() { take(cache, charge) })
	<-slow.asked
	clock.Advance(time.Microsecond)
	cache.Forget("k")
	close(slow.go_)
	done.Wait()
	if n := cache.Stats().Entries; n != 0 {
		t.Errorf("%d refusals were learned", n)
	}
}

// A flood of keys that come once must not push out one that keeps coming.
func TestAFloodOfKeys(t *testing.T) {
	t.Parallel()
	const entries, flood = 1024, 200_000
	cache, store, _ := open(denycache.Options{Entries: entries, MaxAge: time.Hour})
	limit := (weir.Limit{Count: 1, Period: 24 * time.Hour}).MustCompile()
	hot := weir.Charge{Key: "hot", Limit: limit, Cost: 1}
	take(cache, hot)
	take(cache, hot)
	asked := int64(0)
	for i := range flood {
		once := weir.Charge{Key: fmt.Sprint("once ", i), Limit: limit, Cost: 2} // never fits
		take(cache, once)
		if i%100 == 0 {
			before := store.acts.Load()
			take(cache, hot)
			asked += store.acts.Load() - before
		}
	}
	if asked > 0 {
		t.Errorf("the store was asked %d times for the key that keeps coming", asked)
	}
	if n := cache.Stats().Entries; n > entries {
		t.Errorf("%d entries, at most %d", n, entries)
	}
}

// An old favourite that nobody asks for any more gives way in the end.
func TestOldFavouritesGiveWay(t *testing.T) {
	t.Parallel()
	cache, store, _ := open(denycache.Options{Entries: 8, MaxAge: time.Hour})
	limit := (weir.Limit{Count: 1, Period: 24 * time.Hour}).MustCompile()
	for round := range 2 {
		for key := range 8 {
			c := weir.Charge{Key: fmt.Sprint(round, " ", key), Limit: limit, Cost: 1}
			for range 1000 {
				take(cache, c)
			}
			before := store.acts.Load()
			if take(cache, c); store.acts.Load() != before {
				t.Errorf("round %d: key %d has found no place", round, key)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	store := memengine.New(memengine.Options{})
	cache := denycache.Wrap(store, denycache.Options{Entries: 64})
	limit := (weir.Limit{Count: 1000, Period: 24 * time.Hour}).MustCompile()
	var granted atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 5000 {
				switch rng.IntN(500) {
				case 0:
					cache.Forget("k")
				default:
					if a := take(cache, weir.Charge{Key: "k", Limit: limit, Cost: 1}); a.Allowed() {
						granted.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	if granted.Load() != 1000 {
		t.Errorf("granted %d of 1000", granted.Load())
	}
}

func TestHitsAllocateNothing(t *testing.T) {
	limiter, err := weir.NewLimiter(denycache.Wrap(memengine.New(memengine.Options{}), denycache.Options{MaxAge: time.Hour}), "test", weir.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	var d weir.Decision
	allow := func() { d, _ = limiter.Allow(context.Background(), "k") }
	for range 3 {
		allow()
	}
	if n := testing.AllocsPerRun(1000, allow); n != 0 || d.Source != acts.SourceDenyCache {
		t.Errorf("%v allocations, %+v", n, d)
	}
}

func BenchmarkHit(b *testing.B) {
	cache := denycache.Wrap(memengine.New(memengine.Options{}), denycache.Options{MaxAge: time.Hour})
	limit := (weir.Limit{Count: 1, Period: 24 * time.Hour}).MustCompile()
	charge := weir.Charge{Key: "user:hot", Limit: limit, Cost: 1}
	take(cache, charge)
	take(cache, charge)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		acts := []*weir.Act{storetest.NewAct(charge)}
		for p.Next() {
			cache.Take(context.Background(), acts)
		}
	})
}
