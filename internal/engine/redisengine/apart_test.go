package redisengine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// one asks for one act at a time. It records instead of refunding a take without an ID, because
// an undone charge leaves low-water marks, which make such a refund exact. No anonymous
// take asks for slots, because undoing another charge would renew how long a refusal of
// slots is remembered. No take of up to some units has alternatives beside other charges: a hash
// slot that is asked later chooses the first alternative that has the units granted before, not the
// one with most.
type one struct{ weir.Taker }

func (o one) Take(ctx context.Context, all []*weir.Act) {
	for i, a := range all {
		if c := &a.Charges[0]; a.Anonymous && a.Kind == acts.KindTake && algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			c.Cost = 0
		}
		if a.Kind == acts.KindTake && a.Charges[0].UpTo > 0 && a.Charges[0].Group == 0 && a.Alternatives() {
			for n := range a.Charges {
				a.Charges[n].UpTo = 0
			}
		}
		if a.Kind == acts.KindRefund && a.ID == "" && !a.Anonymous {
			a.Kind = acts.KindRecord
		}
		o.Taker.Take(ctx, all[i:i+1])
	}
}

// beside places all keys in one slot.
type beside struct{ weir.Taker }

func (b beside) Take(ctx context.Context, acts []*weir.Act) {
	placed := make([]*weir.Act, len(acts))
	for n, a := range acts {
		act := *a
		act.Charges = slices.Clone(a.Charges)
		for i := range act.Charges {
			act.Charges[i].HashTag = "beside"
		}
		placed[n] = &act
	}
	b.Taker.Take(ctx, placed)
	for n, a := range acts {
		a.Err = placed[n].Err
	}
}

// TestTwinsOnCluster demands what TestTwins does of a cluster: of whole calls where
// all keys share a slot, and of single acts where none do.
func TestTwinsOnCluster(t *testing.T) {
	t.Parallel()
	client := dialCluster(t, testserver.StartCluster(t, 3))
	seeds := []uint64{*twinSeed}
	if *twinSeed == 0 {
		seeds = []uint64{1, 4, 5, 7, 8, 19, 26, 34, 154}
	}
	for name, wrap := range map[string]func(weir.Taker) weir.Taker{
		"one slot":             func(next weir.Taker) weir.Taker { return beside{next} },
		"one slot, one by one": func(next weir.Taker) weir.Taker { return one{beside{next}} },
		"apart":                func(next weir.Taker) weir.Taker { return one{next} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 2 * len(seeds) {
				seed, blocks := seeds[i/2], i%2 > 0
				w := twins(t, "127.0.0.1:1", "", same)
				w.Seed, w.Blocks = seed, blocks
				store, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: fmt.Sprint(name, " ", seed, " ", blocks), Timeout: time.Minute}, w.Clock.Micros)
				if err != nil {
					t.Fatal(err)
				}
				// Undoing a charge writes its key as it is now. After that, neither a clock that
				// goes back nor another limit of the same key finds its former state.
				w.Forward, w.Lasting = name == "apart", name == "apart"
				// Hash slots remember a refused take that asked for a slot of a limit.
				w.Forgetful = name == "apart"
				// An act about a take that lists other limits comes after later acts of its call,
				// and finds no record in slots that the take did not charge.
				w.Listed = name != "one slot, one by one"
				w.A, w.B = wrap(w.A), wrap(store)
				if err := w.Compare(storetest.Length(800)); err != nil {
					t.Errorf("blocks %v: %v", blocks, err)
				}
			}
		})
	}
}

// TestApartLikeMemory has acts whose charges lie in several slots undone in part, with the
// outcome that they have in memory.
func TestApartLikeMemory(t *testing.T) {
	t.Parallel()
	client := dialCluster(t, testserver.StartCluster(t, 3))
	wide := fixedOf(10)
	queue := weir.Limit{Algorithm: weir.LeakyBucket, Count: 10, Period: time.Second, Burst: 20}.MustCompile()
	short := weir.Limit{Algorithm: weir.FixedWindow, Count: 100, Period: time.Millisecond}.MustCompile()
	shares, err := weir.Shares{Limit: weir.PerMinute(100), Headroom: 50, Guarantees: map[string]int64{"class": 20}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	upTo := func(key string, limit *weir.Limit) weir.Charge {
		return weir.Charge{Key: key, Limit: limit, Cost: 1, UpTo: 5}
	}
	twice := storetest.NewAct(upTo("queue", queue), upTo("queue", queue), upTo("narrow", fixedOf(2)))
	guarantee := weir.Charge{Key: "class", Limit: shares.Class("class"), Cost: 4}
	mixed := storetest.NewAct(guarantee, weir.Charge{Key: "short", Limit: short, Cost: 1},
		weir.Charge{Key: "one", HashTag: "alt", Limit: short, Cost: 1, Group: 1}, weir.Charge{Key: "two", HashTag: "alt", Limit: short, Cost: 1, Group: 1, Alt: 1})
	mixed.ID, mixed.Scope.Owner = "id", mixed.Charges[0].Key
	release := *mixed
	release.Kind, release.Decisions = acts.KindRelease, make([]weir.Decision, len(mixed.Charges))
	// Of the second take, the budget has room for some units only, and the other hash slot for none.
	beyond := func(cost int64) *weir.Act {
		tight := weir.Limit{Count: 5, Period: time.Hour}.MustCompile()
		return storetest.NewAct(weir.Charge{Key: "b", Limit: queue, Cost: cost},
			weir.Charge{Key: "b", Limit: tight, Cost: cost, Guaranteed: true}, weir.Charge{Key: "narrow", Limit: fixedOf(12), Cost: cost})
	}
	some := beyond(1)
	for i := range some.Charges {
		some.Charges[i].UpTo = 5
	}
	guarantee.Cost = 0
	// By a changed list of limits, the first slot that is asked does not know the id.
	owned := func(kind weir.Kind, keys ...string) *weir.Act {
		var charges []weir.Charge
		for _, key := range keys {
			charges = append(charges, weir.Charge{Key: key, Limit: wide, Cost: 4})
		}
		a := storetest.NewAct(charges...)
		a.Kind, a.ID, a.Scope = kind, "id", algo.Scope{Owner: "caller"}
		return a
	}
	taken := owned(acts.KindTake, "a", "b")
	withdrawn, refused, amended := owned(acts.KindWithdraw, "a", "b"), owned(acts.KindTake, "a", "b"), owned(acts.KindAmend, "a", "b")
	withdrawn.Attempt, refused.Attempt, refused.Charges[1].Cost = 1, 2, 11
	for i := range amended.Decisions {
		amended.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: 4}
	}
	inRooms := func(kind weir.Kind, rooms ...weir.Charge) *weir.Act {
		a := storetest.NewAct(append([]weir.Charge{{Key: "a", Limit: wide, Cost: 1}}, rooms...)...)
		a.Kind, a.ID, a.Scope, a.Attempt = kind, "id", algo.Scope{Owner: "caller"}, 1
		if a.Hold = time.Hour; kind == acts.KindTake {
			a.Hold = 0
		}
		return a
	}
	refund := func(costs ...int64) *weir.Act {
		a := owned(acts.KindRefund, "a", "b")
		for i := range a.Charges {
			a.Charges[i].Cost = costs[i]
		}
		return a
	}
	ends, lasts, other := room("ends", time.Millisecond), room("lasts", time.Minute), room("other", time.Minute)
	levels := storetest.NewAct(ends, lasts, other)
	levels.Dry = true
	left := storetest.NewAct(weir.Charge{Key: "new", Limit: wide}, weir.Charge{Key: "a", Limit: wide}, weir.Charge{Key: "b", Limit: wide})
	for name, acts := range map[string][]*weir.Act{
		"an empty queue is charged twice": {twice, storetest.NewAct(upTo("queue", queue))},
		"a queue is charged twice":        {storetest.NewAct(weir.Charge{Key: "queue", Limit: queue, Cost: 3}), twice, storetest.NewAct(upTo("queue", queue))},
		"a guarantee without its budget":  {mixed, &release, storetest.NewAct(guarantee)},
		"a guarantee beyond its budget":   {beyond(7), beyond(6), beyond(0)},
		"a guarantee of up to some units": {beyond(9), some, beyond(0)},
		"a release lists a new limit":     {taken, owned(acts.KindRelease, "new", "a"), left},
		"a lease is renewed too late": {
			inRooms(acts.KindTake, ends), inRooms(acts.KindRenew, ends), levels, inRooms(acts.KindWithdraw, ends), left,
		},
		"the first of several leases is renewed too late": {
			inRooms(acts.KindTake, ends, lasts, other), inRooms(acts.KindRenew, ends, lasts, other), levels,
			inRooms(acts.KindWithdraw, ends, lasts, other), levels, left,
		},
		"the last of several leases is renewed too late": {
			inRooms(acts.KindTake, other, lasts, ends), inRooms(acts.KindRenew, other, lasts, ends), levels,
			inRooms(acts.KindWithdraw, other, lasts, ends), levels, left,
		},
		"several leases are renewed": {
			inRooms(acts.KindTake, other, lasts), inRooms(acts.KindRenew, other, lasts), levels,
			inRooms(acts.KindWithdraw, other, lasts), levels, left,
		},
		"a renewal lists a new lease": {
			inRooms(acts.KindTake, other), inRooms(acts.KindRenew, other, lasts), levels,
			inRooms(acts.KindRelease, other), inRooms(acts.KindRenew, other, lasts), levels, left,
		},
		// The refused take is as unknown in the slot where it was undone as in the other.
		"an ID is amended after a refusal": {withdrawn, refused, amended, left},
		"a refund of too much, last":       {taken, refund(2, 5), left, refund(2, 3), left},
		"a refund of too much, first":      {taken, refund(5, 2), left, refund(3, 2), left},
		"a settlement lists a new limit":   {taken, owned(acts.KindSettle, "new", "b"), left},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := twins(t, "127.0.0.1:1", "", same)
			store, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: name, Timeout: time.Minute}, w.Clock.Micros)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range acts {
				first, second := *a, *a
				first.Decisions, second.Decisions = slices.Clone(a.Decisions), slices.Clone(a.Decisions)
				w.A.Take(t.Context(), []*weir.Act{&first})
				store.Take(t.Context(), []*weir.Act{&second})
				if fmt.Sprint(first.Err) != fmt.Sprint(second.Err) || first.Err == nil && !slices.Equal(first.Decisions, second.Decisions) {
					t.Errorf("act %d: %v %v, in several slots %v %v", i, first.Decisions, first.Err, second.Decisions, second.Err)
				}
				w.Clock.Advance(2 * time.Millisecond)
			}
		})
	}
}

// TestLeaseEndsDuringRenewal has the last of two leases end between the dry run of its renewal and
// the renewal. The caller gets an error, and can release the other lease.
func TestLeaseEndsDuringRenewal(t *testing.T) {
	t.Parallel()
	now, step := int64(1_750_000_000_000_000), int64(0)
	store, err := redisengine.NewWithClock(dialCluster(t, testserver.StartCluster(t, 3)), redisengine.Options{Timeout: time.Minute}, func() int64 {
		now += step
		return now
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(kind weir.Kind, id string) *weir.Act {
		a := storetest.NewAct(room("lasts", time.Minute), room("ends", 2*time.Millisecond))
		a.Kind, a.ID, a.Scope.Owner, a.Dry = kind, id, "caller", id == ""
		store.Take(t.Context(), []*weir.Act{a})
		return a
	}
	if a := ask(acts.KindTake, "id"); a.Err != nil || !a.Allowed() {
		t.Fatal(a.Decisions, a.Err)
	}
	step = 750
	if a := ask(acts.KindRenew, "id"); !errors.Is(a.Err, weir.ErrUnknownID) {
		t.Errorf("renewed with %v, want an unknown id", a.Err)
	}
	step = 0
	if a := ask(acts.KindTake, ""); a.Err != nil || a.Decisions[0].ResetAfter != time.Minute-750*time.Microsecond {
		t.Error("the first lease:", a.Decisions, a.Err)
	}
	if a := ask(acts.KindRelease, "id"); a.Err != nil {
		t.Error(a.Err)
	}
	if a := ask(acts.KindTake, ""); a.Err != nil || a.Decisions[0].Remaining != 2 || a.Decisions[1].Remaining != 2 {
		t.Error("after the release:", a.Decisions, a.Err)
	}
}

// room asks for one of two slots of a key.
func room(key string, lease time.Duration) weir.Charge {
	return weir.Charge{Key: key, Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: lease}.MustCompile(), Cost: 1}
}

var fixed = weir.Limit{Algorithm: weir.FixedWindow, Count: 1_000_000, Period: slow, Anchor: weir.AnchorFirst}

func fixedOf(count int64) *weir.Limit {
	l := fixed
	l.Count = count
	return l.MustCompile()
}

// spent is how many units of a limit are charged.
func spent(t testing.TB, store weir.Taker, key string, limit *weir.Limit, slot ...string) int64 {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, HashTag: strings.Join(slot, "")})
	if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	return limit.Capacity() - a.Decisions[0].Remaining
}

// TestApart has many callers charge keys of several slots at once: what is charged
// in the end is what was granted, and no more than the limits allow.
func TestApart(t *testing.T) {
	t.Parallel()
	store := open(t, dialCluster(t, testserver.StartCluster(t, 3)), redisengine.Options{Timeout: time.Minute})
	global, user := fixedOf(1000), fixedOf(30)
	var granted [40]atomic.Int64
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(caller)))
			for range 30 {
				var acts []*weir.Act
				var who []int
				for range 1 + rng.IntN(8) {
					n := rng.IntN(len(granted))
					charges := []weir.Charge{{Key: "global", Limit: global, Cost: 1}, {Key: fmt.Sprint("user ", n), Limit: user, Cost: 1}, {Key: "other", Limit: global, Cost: 2}}
					rng.Shuffle(3, func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
					acts, who = append(acts, storetest.NewAct(charges...)), append(who, n)
				}
				store.Take(t.Context(), acts)
				for i, a := range acts {
					if a.Err != nil {
						t.Error(a.Err)
					} else if a.Allowed() {
						granted[who[i]].Add(1)
					}
				}
			}
		})
	}
	callers.Wait()
	total := int64(0)
	for n := range granted {
		if got, want := spent(t, store, fmt.Sprint("user ", n), user), granted[n].Load(); got != want || want > 30 {
			t.Errorf("user %d: charged %d, granted %d of 30", n, got, want)
		}
		total += granted[n].Load()
	}
	if one, two := spent(t, store, "global", global), spent(t, store, "other", global); one != total || two != 2*total {
		t.Errorf("charged %d and %d, granted %d", one, two, total)
	}
	if total < 300 || total > 500 {
		t.Errorf("granted %d, want nearly 500", total)
	}
}

// proxied dials the nodes of a cluster through proxies.
func proxied(t *testing.T, c *testserver.Cluster, choose func([]byte) testserver.Fault) (*redis.ClusterClient, []*testserver.Proxy) {
	t.Helper()
	ways := make(map[string]*testserver.Proxy)
	var all []*testserver.Proxy
	for _, address := range c.Addrs() {
		ways[address] = testserver.StartProxy(t, address, choose)
		all = append(all, ways[address])
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), ContextTimeoutEnabled: true, PoolSize: 64,
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, ways[address].Addr())
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client, all
}

// enough is how many of the calls of lossy are granted at least.
const enough = 10

// lossy has callers charge two slots while a third of what goes to the first of them
// is lost, takes and their undoing alike, some before it ran, some after, some while
// the caller has undone it already. It returns what was charged in the end of both,
// and what was granted.
func lossy(t *testing.T, cluster *testserver.Cluster, wait time.Duration, open func(redis.UniversalClient) (*redisengine.Store, error)) (first, last, granted int64) {
	t.Helper()
	faults := &lottery{rng: rand.New(rand.NewPCG(3, 3))}
	client, proxies := proxied(t, cluster, func(request []byte) testserver.Fault {
		if !bytes.Contains(request, []byte(":first")) {
			return testserver.Pass
		}
		return faults.draw(request)
	})
	store, err := open(client)
	if err != nil {
		t.Fatal(err)
	}
	straight, err := open(dialCluster(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	wide, narrow := fixedOf(1_000_000), fixedOf(100)
	spent(t, store, "last", narrow)
	var count atomic.Int64
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			patience, failed := 2*patienceOfClients, 0
			for calls := 0; calls < 12 || count.Load() < enough && calls < 100; calls++ {
				a := storetest.NewAct(weir.Charge{Key: "first", Limit: wide, Cost: 1}, weir.Charge{Key: "last", Limit: narrow, Cost: 1})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				store.Take(ctx, []*weir.Act{a})
				cancel()
				if failed++; a.Err == nil {
					failed = 0
				}
				if failed == 4 {
					// The machine is busy: faults alone rarely make so many fail.
					patience, failed = 2*patience, 0
				}
				if a.Err == nil && a.Allowed() {
					count.Add(1)
				} else if a.Err != nil && !errors.Is(a.Err, weir.ErrAmbiguous) && !errors.Is(a.Err, weir.ErrNotApplied) {
					t.Error(a.Err)
				}
			}
		})
	}
	callers.Wait()
	// What could not be undone in time is undone within the store's timeout.
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if spent(t, straight, "first", wide) == count.Load() {
			break
		}
	}
	for _, p := range proxies {
		p.Close()
	}
	return spent(t, straight, "first", wide), spent(t, straight, "last", narrow), count.Load()
}

// TestApartIsUndoneOnce loses what goes to one of two slots, and shows that it is
// noticed where it is not undone.
func TestApartIsUndoneOnce(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 3)
	first, last, granted := lossy(t, cluster, 20*time.Second, func(client redis.UniversalClient) (*redisengine.Store, error) {
		// On a busy machine undoing takes longer than a store has by default.
		return redisengine.New(client, redisengine.Options{Timeout: 10 * time.Second})
	})
	if first != granted || last < granted || granted < enough {
		t.Errorf("charged %d and %d, granted %d", first, last, granted)
	}
	for name, change := range map[string][2]string{
		"nothing is undone": {"give(k, was - due, was + (elsewhere and queue[k] or 0), at, late)", ""},
	} {
		first, _, granted := lossy(t, cluster, time.Second, func(client redis.UniversalClient) (*redisengine.Store, error) {
			return redisengine.NewMutated(client, redisengine.Options{Prefix: name, Timeout: 10 * time.Second}, change[0], change[1])
		})
		if first == granted {
			t.Errorf("%s: not noticed, charged and granted %d", name, first)
		}
	}
}
