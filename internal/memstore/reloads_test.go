package memstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

// TestReloads has the contract's sentences about IDs whose acts have a scope: the limits may
// change between a take and the acts about it.
func TestReloads(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*bench){
		"what was taken before a reload is settled, refunded, released and renewed after it": reloaded,
		"a repeat after a reload gets the first answer":                                      repeatedAfterReload,
		"what is closed before a reload stays closed after it":                               closedBeforeReload,
		"a holder leaves after a reload":                                                     leavesAfterReload,
		"an id with a scope belongs to that, and to one content":                             scoped,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			run(&bench{T: t, store: memstore.New(memstore.Options{Now: clock.Now}), clock: clock})
		})
	}
}

// A bench has the store and the clock of a test.
type bench struct {
	*testing.T
	store *memstore.Store
	clock *storetest.Clock
}

// take puts an act to the store, which decides it.
func (b *bench) take(a *weir.Act) {
	b.Helper()
	if b.store.Take(b.Context(), []*weir.Act{a}); a.Err != nil {
		b.Fatal(a.Err)
	}
}

// look returns the decisions of a peek at the charges.
func (b *bench) look(charges []weir.Charge) []weir.Decision {
	b.Helper()
	a := storetest.NewAct(slices.Clone(charges)...)
	for i := range a.Charges {
		a.Charges[i].Cost = 0
	}
	b.take(a)
	return a.Decisions
}

// fails puts an act that must end in an error and charge nothing.
func (b *bench) fails(a *weir.Act, want error) {
	b.Helper()
	before := b.look(a.Charges)
	if b.store.Take(b.Context(), []*weir.Act{a}); !errors.Is(a.Err, want) || !errors.Is(a.Err, weir.ErrInvalid) {
		b.Errorf("%v %q: %v, want %v", a.Kind, a.ID, a.Err, want)
	}
	if after := b.look(a.Charges); !slices.Equal(before, after) {
		b.Errorf("%v %q: an error changed something:\n%+v\n%+v", a.Kind, a.ID, before, after)
	}
}

// limits is one limit of 10 per 10 s for each algorithm that counts units.
func limits() []*weir.Limit {
	var all []*weir.Limit
	for id := range algo.Steps {
		if l := (weir.Limit{Algorithm: weir.Algorithm(id), Count: 10, Period: 10 * time.Second}).MustCompile(); !algo.TraitsOf(l.Algorithm).HoldsSlots {
			all = append(all, l)
		}
	}
	return all
}

// A reload is a change of the limits of one caller.
type reload struct {
	name          string
	full          bool // the first limit has no room for the take
	before, after []weir.Charge
}

// reloads are changes of limits under keys that begin with a text. The charges of the acts
// have the cost 6.
func reloads(l *weir.Limit, prefix string) []reload {
	with := func(l *weir.Limit, key string, alt uint8) weir.Charge {
		return weir.Charge{Key: prefix + key, HashTag: prefix, Limit: l, Cost: 6, Alt: alt}
	}
	twice := *l
	twice.Count, twice.Burst = 2*l.Count, 0
	other := weir.GCRA
	if l.Algorithm == other {
		other = weir.FixedWindow
	}
	a, b, second := with(l, "a", 0), with(l, "b", 0), with(l, "b", 1)
	all := []reload{
		{"a limit added", false, []weir.Charge{a}, []weir.Charge{a, b}},
		{"a limit added before it", false, []weir.Charge{a}, []weir.Charge{b, a}},
		{"a limit removed", false, []weir.Charge{a, b}, []weir.Charge{a}},
		{"the first limit removed", false, []weir.Charge{a, b}, []weir.Charge{b}},
		{"another limit", false, []weir.Charge{a}, []weir.Charge{b}},
		{"otherwise added", false, []weir.Charge{a}, []weir.Charge{a, second}},
		{"otherwise removed", false, []weir.Charge{a, second}, []weir.Charge{a}},
		{"otherwise removed that was granted", true, []weir.Charge{a, second}, []weir.Charge{a}},
		{"the algorithm changed", false, []weir.Charge{a}, []weir.Charge{with(weir.Limit{Algorithm: other, Count: 10, Period: l.Period}.MustCompile(), "a", 0)}},
		{"the count changed", false, []weir.Charge{a}, []weir.Charge{with(twice.MustCompile(), "a", 0)}},
	}
	if l.Algorithm != weir.GCRA {
		return all
	}
	shares, err := weir.Shares{Limit: weir.Per(20, l.Period), Guarantees: map[string]int64{"class": 10}, Headroom: 12}.Compile()
	if err != nil {
		panic(err)
	}
	pool := with(shares.Pool(), "pool", 0)
	class, both, rest := with(shares.Class("class"), "class", 0), pool, pool
	both.Guaranteed, rest.Alt, rest.Keep = true, 1, shares.Keep()
	return append(all,
		reload{"a guarantee added", false, []weir.Charge{pool}, []weir.Charge{class, both, rest}},
		reload{"a guarantee removed", false, []weir.Charge{class, both, rest}, []weir.Charge{pool}},
	)
}

// scopedAct is an act of the caller that a text names.
func scopedAct(kind weir.Kind, owner string, cost int64, charges []weir.Charge) *weir.Act {
	a := storetest.NewAct(slices.Clone(charges)...)
	a.Kind, a.ID = kind, "id"
	a.Scope = algo.Scope{Owner: owner, Asks: fmt.Sprint(cost), Cost: cost}
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.Cost = cost; kind != acts.KindTake {
			c.Keep = 0
		}
		if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			if c.Cost = min(1, cost); kind == acts.KindSettle {
				c.Cost = 0
			}
		}
	}
	return a
}

// eachReload takes 6 units before each reload, and hands over the take.
func eachReload(b *bench, about string, f func(r *reload, owner string, take *weir.Act)) {
	for _, l := range limits() {
		prefix := fmt.Sprint(about, l.Algorithm)
		for i := range reloads(l, "") {
			owner := fmt.Sprint(prefix, i)
			r := &reloads(l, owner)[i]
			if r.full {
				b.use(r.before[0], 8)
			}
			take := scopedAct(acts.KindTake, owner, 6, r.before)
			if b.take(take); !take.Allowed() {
				b.Fatalf("%v, %s: %+v", l, r.name, take.Decisions)
			}
			f(r, owner, take)
		}
	}
}

// use charges units to the key of a charge.
func (b *bench) use(c weir.Charge, units int64) {
	c.Cost = units
	b.take(storetest.NewAct(c))
}

// leaves requires that the keys of a reload are charged what the take was granted, less so many
// units that were returned of each charge.
func (b *bench) leaves(r *reload, after string, take *weir.Act, returned int64) {
	b.Helper()
	type budget struct {
		key       string
		algorithm weir.Algorithm
	}
	charged := map[budget]int64{}
	if r.full {
		charged[budget{r.before[0].Key, r.before[0].Limit.Algorithm}] = 8
	}
	for i, c := range take.Charges {
		if granted := take.Decisions[i].Granted; granted > 0 {
			charged[budget{c.Key, c.Limit.Algorithm}] += granted - returned
		}
	}
	for _, c := range slices.Concat(r.before, r.after) {
		c.Cost, c.Keep, c.Alt, c.Guaranteed = 0, 0, 0, false
		peek := storetest.NewAct(c)
		b.take(peek)
		if got, want := peek.Decisions[0].Remaining, c.Limit.Capacity()-charged[budget{c.Key, c.Limit.Algorithm}]; got != want {
			b.Errorf("%s, %s: %d remain of %q under %v, want %d", r.name, after, got, c.Key, c.Limit, want)
		}
	}
}

func reloaded(b *bench) {
	for kind, cost := range map[weir.Kind]int64{acts.KindSettle: 2, acts.KindRelease: 0, acts.KindRefund: 4, acts.KindRenew: 0} {
		returned := map[weir.Kind]int64{acts.KindSettle: 4, acts.KindRelease: 6, acts.KindRefund: 4}[kind]
		eachReload(b, "reloaded "+kind.String(), func(r *reload, owner string, take *weir.Act) {
			for range 2 {
				a := scopedAct(kind, owner, cost, r.after)
				b.take(a)
				for i, d := range a.Decisions {
					if d.Outcome != weir.Granted && d.Outcome != weir.NotEvaluated {
						b.Errorf("%s, %v, charge %d: %+v", r.name, kind, i, d)
					}
				}
				b.leaves(r, kind.String(), take, returned)
			}
		})
	}
}

func repeatedAfterReload(b *bench) {
	eachReload(b, "repeated", func(r *reload, owner string, take *weir.Act) {
		for _, charges := range [][]weir.Charge{r.after, r.before, r.after} {
			a := scopedAct(acts.KindTake, owner, 6, charges)
			if b.take(a); !a.Allowed() {
				b.Errorf("%s: %+v", r.name, a.Decisions)
			}
			for i, d := range a.Decisions {
				if d.Outcome == weir.Granted && (d.Granted != 6 || d.At.UnixMicro() != b.clock.Micros()) {
					b.Errorf("%s, charge %d: %+v", r.name, i, d)
				}
			}
		}
		b.leaves(r, "repeated", take, 0)
		b.fails(scopedAct(acts.KindTake, owner, 5, r.after), weir.ErrIDReused)
		b.leaves(r, "repeated at another cost", take, 0)
	})
	l := limits()[0]
	r := reloads(l, "refused")[2]
	b.use(r.before[1], 5)
	for _, charges := range [][]weir.Charge{r.before, r.after} {
		a := scopedAct(acts.KindTake, "refused", 6, charges)
		b.take(a)
		if d := a.Decisions[weir.Strictest(a.Charges, a.Decisions)]; a.Allowed() || d.Outcome != weir.Refused || d.RetryAfter <= 0 {
			b.Errorf("a refusal after %s: %+v", r.name, a.Decisions)
		}
	}
}

func closedBeforeReload(b *bench) {
	eachReload(b, "closed", func(r *reload, owner string, take *weir.Act) {
		b.take(scopedAct(acts.KindSettle, owner, 2, r.before))
		again := scopedAct(acts.KindSettle, owner, 2, r.after)
		b.take(again)
		for _, kind := range []weir.Kind{acts.KindSettle, acts.KindRelease, acts.KindRenew} {
			b.fails(scopedAct(kind, owner, 3, r.after), weir.ErrSettled)
		}
		b.leaves(r, "settled before it", take, 4)
	})
}

func leavesAfterReload(b *bench) {
	room, units := weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Minute}.MustCompile(), limits()[0]
	in := func(owner, key string, l *weir.Limit) weir.Charge {
		return weir.Charge{Key: owner + key, HashTag: owner, Limit: l}
	}
	for _, kind := range []weir.Kind{acts.KindSettle, acts.KindRelease} {
		for _, both := range []bool{false, true} {
			owner := fmt.Sprint("room ", kind, both)
			slot, count := in(owner, "room", room), in(owner, "units", units)
			before, after := []weir.Charge{count, slot}, []weir.Charge{count}
			if both {
				before, after = []weir.Charge{slot}, []weir.Charge{count, slot}
			}
			b.take(scopedAct(acts.KindTake, owner, 1, before))
			peek := storetest.NewAct(slot)
			if b.take(peek); peek.Decisions[0].Remaining != 1 {
				b.Errorf("taken: %+v", peek.Decisions)
			}
			b.take(scopedAct(acts.KindRenew, owner, 0, after))
			b.take(scopedAct(kind, owner, 1, after))
			if b.take(peek); peek.Decisions[0].Remaining != 2 {
				b.Errorf("%s after a reload: %+v", owner, peek.Decisions)
			}
		}
	}
}

func scoped(b *bench) {
	charges := []weir.Charge{{Key: "scoped", Limit: limits()[0]}}
	b.take(scopedAct(acts.KindTake, "one", 3, charges))
	b.fails(scopedAct(acts.KindRelease, "two", 0, charges), weir.ErrUnknownID)
	unscoped := scopedAct(acts.KindRelease, "", 0, charges)
	unscoped.Scope = algo.Scope{}
	b.fails(unscoped, weir.ErrUnknownID)
	b.take(scopedAct(acts.KindTake, "two", 3, charges))
	if d := b.look(charges)[0]; d.Remaining != 4 {
		b.Errorf("two owners of one id: %+v", d)
	}
	b.fails(scopedAct(acts.KindTake, "one", 4, charges), weir.ErrIDReused)
	b.take(scopedAct(acts.KindRelease, "one", 0, charges))
	if d := b.look(charges)[0]; d.Remaining != 7 {
		b.Errorf("one released: %+v", d)
	}
	b.fails(scopedAct(acts.KindTake, "one", 3, charges), weir.ErrReleased)
}
