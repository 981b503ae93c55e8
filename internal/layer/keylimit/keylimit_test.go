package keylimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// of gives every limit a budget of its own, by its name.
func of(maxKeys int) func(*weir.Charge) weir.KeyLimit {
	return func(c *weir.Charge) weir.KeyLimit {
		return weir.KeyLimit{MaxKeys: maxKeys, Overflow: "overflow of " + c.Limit.Name}
	}
}

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

// TestSuite: what has room is not touched.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]func(*weir.Charge) weir.KeyLimit{"none": nil, "any number": of(0), "enough": of(keylimit.MaxKeys)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
				return keylimit.Wrap(memory(t, clock), keylimit.Options{Budget: budget, Now: clock.Now})
			})
		})
	}
}

// place is a Taker over a store in memory, with the clock of both.
func place(maxKeys int) (*keylimit.Layer, *storetest.Clock) {
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	return keylimit.Wrap(store, keylimit.Options{Budget: of(maxKeys), Now: clock.Now}), clock
}

// take takes units of keys, and demands that nobody changes the act, not even for a time.
func take(t testing.TB, taker weir.Taker, a *weir.Act) *weir.Act {
	t.Helper()
	storetest.Unchanged(t, taker).Take(context.Background(), []*weir.Act{a})
	return a
}

func charge(t testing.TB, taker weir.Taker, key string, limit *weir.Limit, cost int64) weir.Decision {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, HashTag: "slot of " + key, Limit: limit, Cost: cost})
	if limit.Algorithm == weir.Concurrency && cost > 0 {
		a.ID, a.Scope.Owner = fmt.Sprint("id of ", key), a.Charges[0].Key
	}
	if take(t, taker, a); a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Decisions[0]
}

// perHour is one limit of 10 an hour for each algorithm.
func perHour() []*weir.Limit {
	var all []*weir.Limit
	for id := range algo.Steps {
		all = append(all, weir.Limit{Name: weir.Algorithm(id).String(), Algorithm: weir.Algorithm(id), Count: 10, Period: time.Hour}.MustCompile())
	}
	return all
}

// TestBeyondTheBudget: keys that are known stay themselves, further ones share one
// budget, and each gets a place of its own when the others are forgotten.
func TestBeyondTheBudget(t *testing.T) {
	t.Parallel()
	for _, limit := range perHour() {
		taker, clock := place(2)
		left := func(key string, want int64) {
			t.Helper()
			if d := charge(t, taker, key, limit, 0); d.Remaining != want {
				t.Errorf("%v: %d remain of %s, want %d", limit, d.Remaining, key, want)
			}
		}
		for range 3 {
			left("looked at", 10)
		}
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			charge(t, taker, key, limit, 1)
		}
		left("a", 9)
		left("b", 9)
		left("c", 7)
		left("never asked for", 7)
		if s := taker.Stats(); len(s) != 1 || s[0].Keys != 2 || s[0].Overflowed < 3 || !s[0].Full() || s[0].MaxKeys != 2 {
			t.Errorf("%v: %+v", limit, s)
		}
		// A key that is asked for stays known for as long as that goes on.
		for range 5 {
			clock.Advance(40 * time.Minute)
			charge(t, taker, "a", limit, 1)
		}
		if charge(t, taker, "c", limit, 1); taker.Stats()[0].Keys != 2 {
			t.Errorf("%v: b was not forgotten for c: %+v", limit, taker.Stats())
		}
		clock.Advance(6 * time.Hour)
		if s := taker.Stats(); s[0].Keys != 0 || s[0].Full() {
			t.Errorf("%v: known for too long: %+v", limit, s)
		}
	}
}

// TestKeep: keys that share a budget keep units of it free.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, limit := range perHour() {
		taker, _ := place(1)
		charge(t, taker, "known", limit, 1)
		charge(t, taker, "a", limit, 1)
		for i, want := range []bool{true, false} {
			a := storetest.NewAct(weir.Charge{Key: "b", Limit: limit, Cost: 1, Keep: 8})
			a.ID, a.Scope.Owner = fmt.Sprint("kept ", i), a.Charges[0].Key
			if take(t, taker, a); a.Allowed() != want {
				t.Errorf("%v, take %d: %v", limit, i, a.Decisions)
			}
		}
	}
}

// TestAlternatives: alternatives under an overflow key stay in the hash slot of their budget.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	limit := perHour()[0]
	pool := weir.Limit{Name: "not bounded", Count: 10, Period: time.Hour}.MustCompile()
	taker, _ := place(1)
	charge(t, taker, "known", limit, 1)
	for i, want := range []int{0, 0, 1} {
		key := fmt.Sprint("user ", i)
		a := storetest.NewAct(
			weir.Charge{Key: key, HashTag: "pool", Limit: limit, Cost: 5},
			weir.Charge{Key: "pool", HashTag: "pool", Limit: pool, Cost: 5, Alt: 1},
		)
		if take(t, taker, a); a.Err != nil || a.Decisions[want].Outcome != weir.Granted || a.Decisions[1-want].Outcome != weir.NotEvaluated {
			t.Errorf("take %d: %v, %v", i, a.Decisions, a.Err)
		}
	}
}

// TestAlternativesShareOnePlace asks Redis, which has a key for each hash tag: alternatives of
// users beyond the budget are charged in one place, however many users are invented.
func TestAlternativesShareOnePlace(t *testing.T) {
	t.Parallel()
	limit := func(name string, count int64) *weir.Limit {
		return weir.Limit{Name: name, Count: count, Period: time.Hour}.MustCompile()
	}
	free, credits, pool, none := limit("free", 5), limit("credits", 5), limit("pool", 8), limit("none", 0)
	// The first of two alternatives, and the second.
	first := func(key, tag string, l *weir.Limit) weir.Charge {
		return weir.Charge{Key: key, HashTag: tag, Limit: l, Cost: 1}
	}
	second := func(key, tag string, l *weir.Limit) weir.Charge {
		return weir.Charge{Key: key, HashTag: tag, Limit: l, Cost: 1, Alt: 1}
	}
	for name, c := range map[string]struct {
		charges       func(user string) []weir.Charge
		granted, keys int // of users who are not tracked, and in all
	}{
		"limits of the user": {func(user string) []weir.Charge {
			return []weir.Charge{first(user+";free", user, free), second(user+";credits", user, credits)}
		}, 10, 3},
		"the budget of all": {func(user string) []weir.Charge {
			return []weir.Charge{first(user+";free", "pool", free), second("pool", "pool", pool)}
		}, 5 + 8, 3},
		"a budget of the user": {func(user string) []weir.Charge {
			return []weir.Charge{first(user+";free", user, free), second(user, user, pool)}
		}, 5 + 8, 3},
		"one budget twice": {func(user string) []weir.Charge {
			return []weir.Charge{first(user, "", pool), second(user, "", pool)}
		}, 8, 2},
		"a limit that refuses all": {func(user string) []weir.Charge {
			return []weir.Charge{first(user+";none", user, none), second(user+";credits", user, credits)}
		}, 5, 2},
		"other groups": {func(user string) []weir.Charge {
			b := []weir.Charge{first(user+";pool", "", pool), first(user+";free", user, free), second(user+";credits", user, credits)}
			b[1].Group, b[2].Group = 1, 1
			return b
		}, 8, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, client := onRedis(t)
			taker := keylimit.Wrap(store, keylimit.Options{Budget: of(1)})
			take(t, taker, storetest.NewAct(c.charges("known")...))
			granted := 0
			for user := range 4 {
				for range 6 {
					if a := take(t, taker, storetest.NewAct(c.charges(fmt.Sprint("user ", user))...)); a.Err != nil {
						t.Fatal(a.Err)
					} else if a.Allowed() {
						granted++
					}
				}
			}
			held := client.Keys(t.Context(), "*").Val()
			if granted != c.granted || len(held) != c.keys {
				t.Errorf("%d granted and %d keys %q, want %d and %d", granted, len(held), held, c.granted, c.keys)
			}
		})
	}
}

// TestAlternativesBesideTrackedOnes: a charge beyond its budget is made where its alternative
// is tracked, so that there are no more such places than tracked keys.
func TestAlternativesBesideTrackedOnes(t *testing.T) {
	t.Parallel()
	const tenants, users = 3, 5
	user := weir.Limit{Name: "user", Count: 2, Period: time.Hour}.MustCompile()
	pool := weir.Limit{Name: "pool", Count: 4, Period: time.Hour}.MustCompile()
	store, client := onRedis(t)
	taker := keylimit.Wrap(store, keylimit.Options{Budget: func(c *weir.Charge) weir.KeyLimit {
		return weir.KeyLimit{MaxKeys: map[*weir.Limit]int{user: 1, pool: 2}[c.Limit], Overflow: "overflow of " + c.Limit.Name}
	}})
	granted := map[string]int{}
	for u := range users {
		for i := range tenants {
			tenant := fmt.Sprint("tenant ", i)
			for range 3 {
				a := take(t, taker, storetest.NewAct(
					weir.Charge{Key: fmt.Sprint(tenant, ",user ", u), HashTag: tenant, Limit: user, Cost: 1},
					weir.Charge{Key: tenant, HashTag: tenant, Limit: pool, Cost: 1, Alt: 1},
				))
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				if a.Allowed() {
					granted[tenant]++
				}
			}
		}
	}
	// The first tenant has the tracked user. Another user's charges are made in the first
	// two tenants' places, and in one place for all further tenants.
	if want := fmt.Sprint(map[string]int{"tenant 0": 2 + 2 + 4, "tenant 1": 2 + 4, "tenant 2": 2 + 4}); fmt.Sprint(granted) != want {
		t.Errorf("granted %v, want %v", granted, want)
	}
	if held := client.Keys(t.Context(), "*").Val(); len(held) != 1+3+3 {
		t.Errorf("%d keys %q, want those of the tracked user, of both pools, and of the overflow in each hash slot", len(held), held)
	}
}

// TestOverflowOfABudget: a budget's overflow key is one, with alternatives and without.
func TestOverflowOfABudget(t *testing.T) {
	t.Parallel()
	own := weir.Limit{Name: "own", Count: 1, Period: time.Hour}.MustCompile()
	pool := weir.Limit{Name: "pool", Count: 4, Period: time.Hour}.MustCompile()
	store, _ := onRedis(t)
	taker := keylimit.Wrap(store, keylimit.Options{Budget: of(1)})
	granted := 0
	for _, model := range []string{"known", "a", "b", "c", "d"} {
		for _, charges := range [][]weir.Charge{
			{{Key: model + ";own", HashTag: model, Limit: own, Cost: 1}, {Key: model, HashTag: model, Limit: pool, Cost: 1, Alt: 1}},
			{{Key: model, Limit: pool, Cost: 1}},
		} {
			if a := take(t, taker, storetest.NewAct(charges...)); a.Err != nil {
				t.Fatal(a.Err)
			} else if a.Allowed() {
				granted++
			}
		}
	}
	if want := 2 + 1 + 4; granted != want {
		t.Errorf("%d granted, want %d: two of the known model, and one own and four units for all others", granted, want)
	}
}

// onRedis returns a store on a Redis of its own, and a client that looks into it.
func onRedis(t *testing.T) (weir.Taker, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisengine.New(client, redisengine.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return store, client
}

// TestResetsTheKeyItself: nobody's reset is everybody's.
func TestResetsTheKeyItself(t *testing.T) {
	t.Parallel()
	taker, _ := place(1)
	limit := perHour()[0]
	for _, key := range []string{"a", "b", "c"} {
		charge(t, taker, key, limit, 1)
	}
	for _, key := range []string{"a", "b"} {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
		a.Kind = acts.KindReset
		if take(t, taker, a); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if own, shared := charge(t, taker, "a", limit, 0).Remaining, charge(t, taker, "b", limit, 0).Remaining; own != 10 || shared != 8 {
		t.Errorf("%d and %d remain, want 10 and 8", own, shared)
	}
}

// about does something to an id.
func about(t testing.TB, taker weir.Taker, kind weir.Kind, id string, c ...weir.Charge) *weir.Act {
	t.Helper()
	a := storetest.NewAct(c...)
	a.Kind, a.ID, a.Scope.Owner = kind, id, "caller of "+c[0].Key
	return take(t, taker, a)
}

// TestIDs: an ID belongs to its owner, also where the key shares a budget, and acts about it find
// its take at every instance.
func TestIDs(t *testing.T) {
	t.Parallel()
	for _, limit := range perHour() {
		clock := storetest.NewClock()
		store := memengine.New(memengine.Options{Now: clock.Now})
		one := keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
		other := keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
		of := func(key string) weir.Charge { return weir.Charge{Key: key, Limit: limit, Cost: 1} }
		about(t, one, acts.KindTake, "x", of("a"))
		about(t, other, acts.KindTake, "x", of("b"))
		for range 2 { // the second time, each has its answer
			for _, key := range []string{"b", "c"} {
				if a := about(t, one, acts.KindTake, "x", of(key)); !a.Allowed() {
					t.Errorf("%v: take of %s: %+v, %v", limit, key, a.Decisions, a.Err)
				}
			}
		}
		if d := charge(t, one, "c", limit, 0); d.Remaining != 9 {
			t.Errorf("%v: %d remain of what c has, want 9", limit, d.Remaining)
		}
		// At the other instance b is itself, a and c are not.
		for key, kinds := range map[string][]weir.Kind{"a": {acts.KindRenew, acts.KindRelease}, "c": {acts.KindRenew, acts.KindRelease}} {
			for _, kind := range kinds {
				if a := about(t, other, kind, "x", of(key)); a.Err != nil {
					t.Errorf("%v: %v of %s at another instance: %v", limit, kind, key, a.Err)
				}
			}
		}
		if a := about(t, one, acts.KindRelease, "never taken", of("b")); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Errorf("%v: an id that nobody knows: %+v, %v", limit, a.Decisions, a.Err)
		}
		if own, shared := charge(t, one, "a", limit, 0).Remaining, charge(t, one, "c", limit, 0).Remaining; own != 10 || shared != 10 {
			t.Errorf("%v: then %d and %d remain, want 10 and 10", limit, own, shared)
		}
	}
}

// TestReloadBeyondTheBudget: a hold under an overflow key is released after its limit has given
// way to another.
func TestReloadBeyondTheBudget(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	taker := keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
	limit := weir.PerHour(10).MustCompile()
	charge(t, taker, "first", limit, 1)
	act := func(kind weir.Kind, key string) *weir.Act {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
		a.Kind, a.ID, a.Scope = kind, "id", algo.Scope{Owner: "caller", Asks: "one"}
		return take(t, taker, a)
	}
	if a := act(acts.KindTake, "old"); !a.Allowed() || a.Decisions[0].Remaining != 9 {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindTake, "first"); !a.Allowed() {
		t.Errorf("repeated: %+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindRelease, "first"); a.Err != nil {
		t.Errorf("released: %v", a.Err)
	}
	if own, shared := charge(t, taker, "first", limit, 0).Remaining, charge(t, taker, "another", limit, 0).Remaining; own != 9 || shared != 10 {
		t.Errorf("then %d and %d remain, want 9 and 10", own, shared)
	}
}

// TestActsOfSeveralLimits: one charge moves and the other stays.
func TestActsOfSeveralLimits(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	global := weir.Limit{Name: "global", Count: 3, Period: time.Hour}.MustCompile()
	user := weir.Limit{Name: "user", Count: 2, Period: time.Hour}.MustCompile()
	taker := keylimit.Wrap(memengine.New(memengine.Options{Now: clock.Now}), keylimit.Options{Now: clock.Now, Budget: func(c *weir.Charge) weir.KeyLimit {
		if c.Limit == user {
			return weir.KeyLimit{MaxKeys: 1, Overflow: "users"}
		}
		return weir.KeyLimit{}
	}})
	outcomes := ""
	for _, key := range []string{"a", "b", "c", "d", "a"} {
		a := about(t, taker, acts.KindTake, "", weir.Charge{Key: "global", Limit: global, Cost: 1}, weir.Charge{Key: key, Limit: user, Cost: 1})
		outcomes += fmt.Sprint(a.Decisions[0].Outcome, " ", a.Decisions[1].Outcome, "; ")
	}
	// d finds the budget that b and c have used up, a the global one.
	if want := "granted granted; granted granted; granted granted; refused refused; refused not_charged; "; outcomes != want {
		t.Errorf("got  %s\nwant %s", outcomes, want)
	}
}

// TestNeverMoreThanTheBudget has many callers make up keys at once.
func TestNeverMoreThanTheBudget(t *testing.T) {
	t.Parallel()
	const maxKeys, callers, each = 100, 8, 500
	taker, _ := place(maxKeys)
	limit := weir.Limit{Name: "one", Count: 1, Period: 24 * time.Hour}.MustCompile()
	var granted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				if charge(t, taker, fmt.Sprint(caller, " ", i), limit, 1).Allowed() {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	// Each of those known is granted its one unit, and the others one together.
	if s := taker.Stats()[0]; granted.Load() != maxKeys+1 || s.Keys != maxKeys || s.Overflowed != callers*each-maxKeys {
		t.Errorf("granted %d, %+v", granted.Load(), s)
	}
}

// TestSaysItOnce, until there was room again.
func TestSaysItOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	clock := storetest.NewClock()
	taker := keylimit.Wrap(memengine.New(memengine.Options{Now: clock.Now}), keylimit.Options{
		Budget: of(2), Now: clock.Now, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	limit := perHour()[0]
	for day := 1; day <= 2; day++ {
		for i := range 10 {
			charge(t, taker, fmt.Sprint(day, i), limit, 1)
		}
		if said := strings.Count(log.String(), "reached its number of keys"); said != day {
			t.Errorf("day %d: said %d times:\n%s", day, said, log.String())
		}
		clock.Advance(24 * time.Hour)
	}
}

// TestReload: the number can change, and what is known stays so.
func TestReload(t *testing.T) {
	t.Parallel()
	maxKeys := 3
	clock := storetest.NewClock()
	taker := keylimit.Wrap(memengine.New(memengine.Options{Now: clock.Now}), keylimit.Options{
		Budget: func(c *weir.Charge) weir.KeyLimit { return of(maxKeys)(c) }, Now: clock.Now,
	})
	limit := perHour()[0]
	remain := func() (left []int64) {
		for _, key := range []string{"a", "b", "c", "d"} {
			left = append(left, charge(t, taker, key, limit, 1).Remaining)
		}
		return left
	}
	got := fmt.Sprint(remain())
	maxKeys = 1
	got += fmt.Sprint(remain())
	maxKeys = 4
	got += fmt.Sprint(remain())
	if want := "[9 9 9 9][8 8 8 8][7 7 7 9]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestForgets drives random keys through time: there are never more states than the
// budget and one, and a key that comes again in time is never moved.
func TestForgets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		maxKeys := rapid.IntRange(1, 5).Draw(t, "max keys")
		clock := storetest.NewClock()
		below := &charged{at: map[string]time.Time{}, clock: clock}
		taker := keylimit.Wrap(below, keylimit.Options{Budget: of(maxKeys), Now: clock.Now})
		limit := weir.Limit{Name: "l", Count: 5, Period: 10 * time.Second}.MustCompile()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			clock.Advance(time.Duration(rapid.IntRange(0, 8000).Draw(t, "ms")) * time.Millisecond)
			key := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key"))
			before, known := below.at[key]
			a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
			taker.Take(context.Background(), []*weir.Act{a})
			if known && clock.Now().Sub(before) < 10*time.Second && below.at[key] != clock.Now() {
				t.Fatalf("key %s was known and moved", key)
			}
			alive := 0
			for _, at := range below.at {
				if clock.Now().Sub(at) < 11*time.Second {
					alive++
				}
			}
			if alive > maxKeys+1 {
				t.Fatalf("%d states are alive, with %d keys at most", alive, maxKeys)
			}
		}
	})
}

// charged is a store that knows when keys were charged last.
type charged struct {
	at    map[string]time.Time
	clock *storetest.Clock
}

func (c *charged) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		c.at[a.Charges[0].Key] = c.clock.Now()
	}
}

// TestRefusalsLeaveNoIDs: keys beyond the budget leave no ids of refused takes, and
// the act is what it was.
func TestRefusalsLeaveNoIDs(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	taker := keylimit.Wrap(store, keylimit.Options{Budget: of(1), Now: clock.Now})
	limit := weir.PerHour(1).MustCompile()
	for i := range 3000 {
		a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", i), Limit: limit, Cost: 1})
		a.ID, a.Scope.Owner = fmt.Sprint("id ", i), a.Charges[0].Key
		if take(t, taker, a); a.Err != nil || a.ForgetRefused {
			t.Fatalf("%v, %+v", a.Err, a)
		}
	}
	if stats := store.Stats(); stats.Keys != 2 || stats.IDs != 2 {
		t.Errorf("one key, those beyond and their two grants left %+v", stats)
	}
}

// TestLimitsThatShareABudget wants keys to be tracked for as long as their own limits' states
// last, whatever limits others have.
func TestLimitsThatShareABudget(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	taker := keylimit.Wrap(memory(t, clock), keylimit.Options{
		Budget: func(*weir.Charge) weir.KeyLimit { return weir.KeyLimit{MaxKeys: 3, Overflow: "further"} }, Now: clock.Now,
	})
	day, second := weir.PerDay(1).MustCompile(), weir.PerSecond(1).MustCompile()
	granted := func(key string, limit *weir.Limit) bool {
		return take(t, taker, storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})).Allowed()
	}
	granted("c", second)
	granted("a", day)
	granted("b", day)
	for range 100 {
		granted("c", second)
		clock.Advance(time.Minute)
	}
	granted("c", second)
	for _, key := range []string{"d", "e"} {
		if want := key == "d"; granted(key, day) != want {
			t.Errorf("%s granted: %t, want %t: it shares one budget with further keys", key, !want, want)
		}
	}
	clock.Advance(3 * 24 * time.Hour)
	for _, key := range []string{"f", "g", "h"} {
		if !granted(key, day) {
			t.Errorf("%s is refused, though all keys before it have expired", key)
		}
	}
}

// TestHoldsOfSeveralKeys settles and releases holds of several keys, although these are tracked
// differently by then: here, or at another instance.
func TestHoldsOfSeveralKeys(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} { // the instance that holds has no room for the keys
		for _, release := range []bool{true, false} {
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			at := [2]weir.Taker{}
			for i := range at {
				at[i] = keylimit.Wrap(store, keylimit.Options{Now: clock.Now, Budget: of(1)})
			}
			current := at[0]
			taker := acts.TakerFunc(func(ctx context.Context, all []*weir.Act) { current.Take(ctx, all) })
			limiters := [2]*weir.Limiter{}
			for i, name := range []string{"one", "other"} {
				l, err := weir.NewLimiter(taker, name, weir.Limit{Algorithm: weir.FixedWindow, Count: 100, Period: time.Hour, Name: name})
				if err != nil {
					t.Fatal(err)
				}
				limiters[i] = l
			}
			if !full {
				current = at[1]
			}
			for _, l := range limiters[:1] { // one of the limits tracks another key there
				if _, err := l.Allow(t.Context(), "another"); err != nil {
					t.Fatal(err)
				}
			}
			current = at[0]
			hold, err := weir.Together(limiters[0].Cost("key", 5), limiters[1].Cost("key", 5)).Hold(t.Context(), time.Minute)
			if err != nil || !hold.OK() {
				t.Fatal(err)
			}
			current = at[1]
			left := int64(100)
			if release {
				err = hold.Release(t.Context())
			} else {
				_, err = hold.Settle(t.Context(), 2)
				left = 98
			}
			if err != nil {
				t.Errorf("full %v, release %v: %v", full, release, err)
			}
			current = at[0]
			for i, l := range limiters {
				if d, err := l.Peek(t.Context(), "key"); err != nil || d.Remaining != left {
					t.Errorf("full %v, release %v, limiter %d: %d remain, want %d; %v", full, release, i, d.Remaining, left, err)
				}
			}
		}
	}
}
