package remote_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A fleet is some instances over one store. It sends a peek and the take after it, and
// everything about one ID, to one instance.
type fleet struct {
	testing.TB
	instances []*remote.Remote
	store     *flaky
	rng       *rand.Rand
	// before is how many peeks of each budget the store decides before its outage begins.
	before int
	budget string
	peeks  int
	at     *remote.Remote
	byID   map[string]*remote.Remote
}

func newFleet(t *testing.T, seed uint64, instances, before int) (*fleet, *storetest.Clock) {
	clock := storetest.NewClock()
	f := &fleet{TB: t, store: newFlaky(clock), rng: rand.New(rand.NewPCG(seed, 3)), before: before, byID: map[string]*remote.Remote{}}
	for range instances {
		f.instances = append(f.instances, wrap(t, f.store, remote.Options{Now: clock.Now, Instances: func() int { return instances }}))
	}
	f.at = f.instances[0]
	return f, clock
}

func (f *fleet) Take(ctx context.Context, all []*weir.Act) {
	a := all[0]
	if budget := a.Charges[0].HashTag; budget != f.budget {
		f.budget, f.peeks = budget, 0
		clear(f.byID)
		f.reach()
	}
	switch at := f.byID[a.ID]; {
	case at != nil:
		at.Take(ctx, all)
		return
	case acts.Peeks(a, 0, len(a.Charges)):
		f.at = f.instances[f.rng.IntN(len(f.instances))]
		f.peeks++
		f.reach()
	case a.ID != "":
		f.byID[a.ID] = f.at
	}
	f.at.Take(ctx, all)
}

// reach begins or ends the outage.
func (f *fleet) reach() {
	if f.peeks < f.before {
		back(f, f.store, f.instances...)
	} else {
		f.store.fail(weir.ErrNotApplied)
	}
}

// divisible reports whether each of the instances can guarantee something.
func (f *fleet) divisible(s *weir.Shares) bool { return s.Divide(len(f.instances)) != nil }

// TestShares has random classes take of local shares: none is refused what its class's own
// local share has room for, and in any Period all instances together grant no more than the
// budget, and as much again if its store could be reached before.
func TestShares(t *testing.T) {
	t.Parallel()
	for seed, c := range []struct{ instances, before int }{{1, 0}, {2, 0}, {3, 0}, {7, 0}, {1, 100}, {3, 50}, {4, 200}} {
		t.Run(fmt.Sprintf("%d instances, %d before", c.instances, c.before), func(t *testing.T) {
			t.Parallel()
			f, clock := newFleet(t, uint64(seed), c.instances, c.before)
			test := sharedBudgets{Taker: f, Clock: clock, Seed: uint64(seed), Suits: f.divisible}
			if c.before > 0 {
				test.Most = func(s *weir.Shares) int64 { return 2 * (s.Pool().Burst + s.Pool().Count) }
			}
			if err := test.Check(2_500); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSharesBeginWithWhatIsLeft: where an instance's part of what is left has no room for all
// guarantees, each class begins with its part of it, and has all of its guarantee later.
func TestSharesBeginWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 100, Period: time.Hour, Burst: 40},
		Guarantees: map[string]int64{"search": 30, "ads": 50}, Headroom: 16,
	}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now, Instances: func() int { return 2 }})
	allow := func(at weir.Taker, class string, n int64) bool {
		t.Helper()
		d, err := shares.Limiter(at, "budget", class).AllowN(t.Context(), "k", n)
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed()
	}
	// Of what another instance has taken, this one only knows how it changed the budget.
	if !allow(store, "others", 27) || !allow(store, "search", 5) || !allow(store, "ads", 3) || !allow(taker, "ads", 1) {
		t.Fatal("refused by the store")
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	for i, want := range [][]int64{{0, 1}, {3, 4}} {
		for allow(taker, "others", 1) {
		}
		for j, class := range []string{"search", "ads"} {
			peek := shares.Limiter(taker, "budget", class).Act(acts.KindTake, "k", 0)
			taker.Take(t.Context(), []*weir.Act{peek})
			if credit := peek.Decisions[0].Remaining; credit != want[j] || credit > 0 && !allow(taker, class, credit) {
				t.Errorf("%d: %d of %q, want %d and all granted", i, credit, class, want[j])
			}
		}
		clock.Advance(2 * time.Hour)
	}
}

// TestSmallShares: where a local share has no unit for each class, nothing is guaranteed and
// nothing stays free.
func TestSmallShares(t *testing.T) {
	t.Parallel()
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 100, Period: time.Hour, Burst: 12},
		Guarantees: map[string]int64{"a": 1, "b": 1, "c": 1},
	}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int][]int{3: {1, 1, 1, 1}, 4: {3, 0, 0, 0}} {
		clock := storetest.NewClock()
		store := newFlaky(clock)
		taker := wrap(t, store, remote.Options{Now: clock.Now, Instances: func() int { return n }})
		openUp(t, taker, store, weir.ErrNotApplied)
		for i, class := range []string{"none", "a", "b", "c"} {
			granted := 0
			for range 12 {
				if d, err := shares.Limiter(taker, "budget", class).Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				} else if d.Allowed() {
					granted++
				}
			}
			if granted != want[i] {
				t.Errorf("one of %d instances: %d of %q granted, want %d", n, granted, class, want[i])
			}
		}
	}
}

// ofStore tests the store alone.
func ofStore(t *testing.T, seed uint64) sharedBudgets {
	clock := storetest.NewClock()
	return sharedBudgets{Taker: memory(t, clock), Clock: clock, Seed: seed}
}

// TestSharesOfStore has random classes take from the store, as TestShares does of local shares.
func TestSharesOfStore(t *testing.T) {
	t.Parallel()
	const parts = 4
	for seed := range uint64(parts) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := ofStore(t, seed).Check(storetest.Length(20_000) / parts); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSharesFindMutants shows that the promise is broken, and that the tests notice, if any part
// of the construction is left out, or if each limit of a budget is divided by itself.
func TestSharesFindMutants(t *testing.T) {
	t.Parallel()
	mutants := map[string]func(seed uint64) sharedBudgets{}
	for name, change := range guaranteeMutants() {
		mutants[name] = func(seed uint64) sharedBudgets {
			s := ofStore(t, seed)
			change(&s)
			return s
		}
	}
	for name, ofShares := range map[string]func(*weir.Limit) bool{
		"what stays free is divided": func(*weir.Limit) bool { return true },
		"a class is divided":         func(l *weir.Limit) bool { _, class := l.Shares(); return class != "" },
		"the budget is divided":      func(l *weir.Limit) bool { _, class := l.Shares(); return class == "" },
	} {
		mutants[name] = func(seed uint64) sharedBudgets {
			f, clock := newFleet(t, seed, 3, 0)
			strip := acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
				for i := range acts[0].Charges {
					if l := acts[0].Charges[i].Limit; ofShares(l) {
						acts[0].Charges[i].Limit = weir.Limit{Count: l.Count, Period: l.Period, Burst: l.Burst}.MustCompile()
					}
				}
				f.Take(ctx, acts)
			})
			return sharedBudgets{Taker: strip, Clock: clock, Seed: seed, Suits: f.divisible}
		}
	}
	for name, start := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				if err := start(seed).Check(20_000); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}
