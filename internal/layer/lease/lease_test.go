package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

func all(*weir.Limit) bool { return true }

func take(taker weir.Taker, charges ...weir.Charge) *weir.Act {
	a := storetest.NewAct(charges...)
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

// TestSuite: limits that are not leased are decided as if there were no leases.
func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return lease.Wrap(memory(t, clock), lease.Options{Now: clock.Now})
	})
}

// leasable are the algorithms that can be leased.
var leasable = []weir.Algorithm{
	weir.GCRA, weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.TokenBucket, weir.SlidingCounter,
}

// most is what a limit may grant in any interval of its period, or in a window of
// a fixed window.
func most(l *weir.Limit) int64 {
	switch l.Algorithm {
	case weir.GCRA, weir.TokenBucket:
		return l.Capacity() + l.Count
	case weir.SlidingCounter:
		return 2*l.Count - 1
	}
	return l.Count
}

// TestBound drives several instances with random histories. No window of a fixed
// window grants more than its count; no interval of the others more than the
// algorithm's bound and what was out in shares.
func TestBound(t *testing.T) {
	t.Parallel()
	for _, algorithm := range leasable {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			paidHere := 0
			rapid.Check(t, func(t *rapid.T) {
				h := newHistory(t, algorithm)
				for range rapid.IntRange(50, 400).Draw(t, "steps") {
					h.step(t)
				}
				h.judge(t)
				paidHere += h.paid
			})
			if paidHere == 0 {
				t.Error("no act was paid from a share: the histories test nothing")
			}
		})
	}
}

type history struct {
	clock     *storetest.Clock
	instances []*lease.Layer
	limit     *weir.Limit
	rules     []*weir.Limit // that charge it
	grants    []grant
	paid      int
}

type grant struct{ at, units int64 }

const (
	part  = 0.25
	ahead = 200 * time.Millisecond
)

func newHistory(t *rapid.T, algorithm weir.Algorithm) *history {
	h := &history{clock: storetest.NewClock()}
	limit := weir.Limit{Algorithm: algorithm, Count: rapid.Int64Range(2, 200).Draw(t, "count"), Period: time.Second}
	if algorithm == weir.GCRA || algorithm == weir.TokenBucket {
		limit.Burst = rapid.Int64Range(1, 200).Draw(t, "burst")
	}
	h.limit, h.rules = limit.MustCompile(), alike(3, limit)
	store := memengine.New(memengine.Options{Now: h.clock.Now})
	for range rapid.IntRange(1, 3).Draw(t, "instances") {
		h.instances = append(h.instances, lease.Wrap(store, lease.Options{Leased: all, Ahead: ahead, Part: part, Now: h.clock.Now}))
	}
	return h
}

func (h *history) step(t *rapid.T) {
	h.clock.Advance(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 20, 150, 700}).Draw(t, "ms")) * time.Millisecond)
	l := rapid.SampledFrom(h.instances).Draw(t, "instance")
	if rapid.IntRange(0, 9).Draw(t, "give back") == 0 {
		if err := l.ReturnExpired(); err != nil {
			t.Fatal(err)
		}
	}
	a := take(l, weir.Charge{Key: "k", Limit: rapid.SampledFrom(h.rules).Draw(t, "rule"), Cost: rapid.Int64Range(1, 3).Draw(t, "cost")})
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	if d := a.Decisions[0]; d.Outcome == weir.Granted {
		h.grants = append(h.grants, grant{h.clock.Micros(), d.Granted})
		if d.Source == acts.SourceLease {
			h.paid++
		}
	}
}

func (h *history) judge(t *rapid.T) {
	period, shares := h.limit.Period.Microseconds(), int64(0)
	if h.limit.Algorithm != weir.FixedWindow {
		shares = int64(len(h.instances)) * int64(part*float64(h.limit.Count))
	}
	for i := range h.grants {
		sum := int64(0)
		for _, g := range h.grants[i:] {
			if h.limit.Algorithm == weir.FixedWindow && g.at/period != h.grants[i].at/period || g.at-h.grants[i].at >= period {
				break
			}
			sum += g.units
		}
		if sum > most(h.limit)+shares {
			t.Fatalf("%v: %d units from %d µs on, at most %d and %d in shares", h.limit, sum, h.grants[i].at, most(h.limit), shares)
		}
	}
}

// TestConservation: once all shares are back, the store has charged what was
// granted, no more and no less.
func TestConservation(t *testing.T) {
	t.Parallel()
	for _, algorithm := range leasable {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			limit := (&weir.Limit{Algorithm: algorithm, Count: 10_000, Period: 24 * time.Hour}).MustCompile()
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			rng := rand.New(rand.NewPCG(1, uint64(algorithm)))
			var instances []*lease.Layer
			for range 3 {
				instances = append(instances, lease.Wrap(store, lease.Options{Leased: all, Now: clock.Now}))
			}
			granted := int64(0)
			for range 3000 {
				a := take(instances[rng.IntN(3)], weir.Charge{Key: "k", Limit: limit, Cost: rng.Int64N(3) + 1})
				granted += a.Decisions[0].Granted
			}
			left, spent := int64(0), uint64(0)
			for _, l := range instances {
				left += l.Stats().Left
				spent += l.Stats().Spent
			}
			charge := weir.Charge{Key: "k", Limit: limit}
			if got := 10_000 - take(store, charge).Decisions[0].Remaining; got != granted+left || left == 0 || spent < 1000 {
				t.Errorf("charged %d, granted %d, left in shares %d, paid from them %d acts", got, granted, left, spent)
			}
			for _, l := range instances {
				if err := l.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if got := 10_000 - take(store, charge).Decisions[0].Remaining; got != granted {
				t.Errorf("charged %d after all shares went back, granted %d", got, granted)
			}
			if a := take(instances[0], weir.Charge{Key: "k", Limit: limit, Cost: 1}); a.Decisions[0].Source != acts.SourceStore {
				t.Errorf("after Stop: %+v", a.Decisions)
			}
		})
	}
}

// Several limits of one act are paid and given back together.
func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	l := lease.Wrap(store, lease.Options{Leased: all, Now: clock.Now})
	minute, day := (&weir.Limit{Count: 1000, Period: time.Minute}).MustCompile(), (&weir.Limit{Count: 5000, Period: 24 * time.Hour}).MustCompile()
	charges := []weir.Charge{{Key: "m", Limit: minute, Cost: 1}, {Key: "d", Limit: day, Cost: 1}}
	granted := int64(0)
	for range 900 {
		granted += take(l, charges...).Decisions[1].Granted
	}
	if l.Stats().Spent < 500 {
		t.Errorf("paid %d acts from shares", l.Stats().Spent)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, c := range charges {
		c.Cost = 0
		if got := c.Limit.Count - take(store, c).Decisions[0].Remaining; got != granted {
			t.Errorf("limit %d: charged %d, granted %d", i, got, granted)
		}
	}
}

// One instance under load grants exactly the limit: nothing is lost between the
// callers.
func TestHotKey(t *testing.T) {
	t.Parallel()
	const limit, callers = 20_000, 64
	// Nothing drains while the test lasts, however long it is kept waiting.
	compiled := (&weir.Limit{Algorithm: weir.TokenBucket, Count: limit, Period: 24 * time.Hour}).MustCompile()
	l := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{Leased: all})
	l.Start()
	var granted atomic.Int64
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for range 2 * limit / callers {
				if take(l, weir.Charge{Key: "k", Limit: compiled, Cost: 1}).Allowed() {
					granted.Add(1)
				}
			}
		})
	}
	done.Wait()
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if granted.Load() != limit {
		t.Errorf("granted %d of %d", granted.Load(), limit)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}

func TestWhatPassesBy(t *testing.T) {
	t.Parallel()
	limit := (&weir.Limit{Count: 1000, Period: time.Hour}).MustCompile()
	for name, change := range map[string]func(*weir.Act){
		"id":    func(a *weir.Act) { a.ID, a.Scope.Owner = "i", "owner" },
		"hold":  func(a *weir.Act) { a.ID, a.Scope.Owner, a.Hold = "h", "owner", time.Minute },
		"wait":  func(a *weir.Act) { a.MaxWait = time.Second },
		"up to": func(a *weir.Act) { a.Charges[0].UpTo = 2 },
		"keep":  func(a *weir.Act) { a.Charges[0].Keep = 1 },
		"alternatives": func(a *weir.Act) {
			other := a.Charges[0]
			other.Alt = 1
			a.Charges, a.Decisions = append(a.Charges, other), make([]weir.Decision, 2)
		},
		"look":    func(a *weir.Act) { a.Charges[0].Cost = 0 },
		"record":  func(a *weir.Act) { a.Kind = acts.KindRecord },
		"refused": func(a *weir.Act) { a.Charges[0].Cost = 1001 },
		"one":     func(a *weir.Act) { a.Charges[0].Limit = weir.PerHour(1).MustCompile() },
		"not leased": func(a *weir.Act) {
			a.Charges[0].Limit = (&weir.Limit{Name: "other", Count: 1000, Period: time.Hour}).MustCompile()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{
				Leased: func(l *weir.Limit) bool { return l.Name == "" }, Now: clock.Now,
			})
			for range 20 {
				take(l, weir.Charge{Key: "k", Limit: limit, Cost: 1})
			}
			if l.Stats().Left == 0 {
				t.Fatal("there is no share")
			}
			a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
			change(a)
			l.Take(t.Context(), []*weir.Act{a})
			if a.Err != nil || a.Decisions[0].Source == acts.SourceLease {
				t.Errorf("got %+v, %v", a.Decisions, a.Err)
			}
			if want := 1000 - 20; name == "look" && a.Decisions[0].Remaining != int64(want) {
				t.Errorf("a look says %d, want %d", a.Decisions[0].Remaining, want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]weir.Limit{
		"concurrency":    {Algorithm: weir.Concurrency, Count: 10, Period: time.Minute},
		"leaky_bucket":   {Algorithm: weir.LeakyBucket, Count: 10, Period: time.Minute},
		"charge_refused": {Count: 10, Period: time.Minute, ChargeRefused: true},
	} {
		invalid := new(weir.InvalidError)
		if err := lease.Check(l.MustCompile()); !errors.As(err, &invalid) || invalid.Field != "lease" {
			t.Errorf("%s: got %v", name, err)
		}
		// What cannot be leased is decided by the store.
		taker := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{Leased: all})
		for i := range 5 {
			a := storetest.NewAct(weir.Charge{Key: "k", Limit: l.MustCompile(), Cost: 1})
			a.ID, a.Immediate, a.Scope.Owner = fmt.Sprint(i), false, a.Charges[0].Key
			taker.Take(t.Context(), []*weir.Act{a})
			if a.Decisions[0].Source != acts.SourceStore {
				t.Errorf("%s: %+v", name, a.Decisions)
			}
		}
	}
}

// A reset forgets what was charged, so the leases of it must not be spent, whatever other keys
// were leased with them.
func TestReset(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{Leased: all, Now: clock.Now})
	limit := (&weir.Limit{Count: 100, Period: time.Hour}).MustCompile()
	other := (&weir.Limit{Count: 1000, Period: time.Hour}).MustCompile()
	charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	beside := []weir.Charge{{Key: "beside", Limit: other, Cost: 1}, charge}
	for range 20 {
		take(l, charge)
		take(l, beside...)
	}
	if l.Stats().Left < 2 {
		t.Fatalf("leased: %+v", l.Stats())
	}
	reset := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
	reset.Kind = acts.KindReset
	l.Take(t.Context(), []*weir.Act{reset})
	granted := 0
	for range 100 {
		for _, charges := range [][]weir.Charge{{charge}, beside} {
			if take(l, charges...).Allowed() {
				granted++
			}
		}
	}
	if granted != 100 {
		t.Errorf("granted %d after a reset, want 100", granted)
	}
}

// Another limit for the key, as after a reload: never two budgets.
func TestAnotherLimit(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{Leased: all, Now: clock.Now})
	total := 0
	for round, count := range []int64{100, 100, 50} {
		limit := (&weir.Limit{Count: count, Period: time.Hour}).MustCompile()
		for range 30 {
			if take(l, weir.Charge{Key: "k", Limit: limit, Cost: 1}).Allowed() {
				total++
			}
		}
		if round == 1 && total != 60 {
			t.Errorf("%d after the second limit", total)
		}
	}
	if total > 60 {
		t.Errorf("granted %d: the last limit of 50 was already spent", total)
	}
}

// alike are limits of so many rules that charge one budget.
func alike(rules int, l weir.Limit) []*weir.Limit {
	var all []*weir.Limit
	for i := range rules {
		l.Name = fmt.Sprint("rule ", i)
		all = append(all, l.MustCompile())
	}
	return all
}

// TestOneBudgetOfSeveralRules: a budget that rules charge by turns costs the store as few acts
// as one that a single rule charges, and grants exactly as much.
func TestOneBudgetOfSeveralRules(t *testing.T) {
	t.Parallel()
	asked := map[int]int64{}
	for _, rules := range []int{1, 3} {
		clock := storetest.NewClock()
		store := &counting{Taker: memengine.New(memengine.Options{Now: clock.Now})}
		l := lease.Wrap(store, lease.Options{Leased: all, Now: clock.Now})
		const count = 4000
		limits := alike(rules, weir.Limit{Algorithm: weir.FixedWindow, Count: count, Period: 24 * time.Hour})
		granted := 0
		for i := range 2 * count {
			if i%10 == 0 {
				clock.Advance(time.Millisecond)
			}
			a := take(l, weir.Charge{Key: "k", Limit: limits[i%rules], Cost: 1})
			if a.Allowed() {
				granted++
			}
			if i == count/2 {
				asked[rules] = store.acts.Load()
				peek := take(l, weir.Charge{Key: "k", Limit: limits[(i+1)%rules]})
				if remaining := peek.Decisions[0].Remaining; int(remaining) != count-granted {
					t.Errorf("%d rules: %d remain after %d of %d", rules, remaining, granted, count)
				}
			}
		}
		if granted != count {
			t.Errorf("%d rules: %d granted, want %d", rules, granted, count)
		}
	}
	if asked[3] != asked[1] {
		t.Errorf("the store was asked for %d acts of three rules, and for %d of one", asked[3], asked[1])
	}
}

// counting counts the acts of a store.
type counting struct {
	weir.Taker
	acts atomic.Int64
}

func (c *counting) Take(ctx context.Context, acts []*weir.Act) {
	c.acts.Add(int64(len(acts)))
	c.Taker.Take(ctx, acts)
}

// TestPeeks: a peek counts leased units only if a take of the same charges would spend them.
func TestPeeks(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	l := lease.Wrap(store, lease.Options{Leased: all, Now: clock.Now})
	limit := weir.Limit{Name: "l", Count: 100, Period: time.Hour}.MustCompile()
	other := weir.Limit{Name: "other", Count: 1000, Period: time.Hour}.MustCompile()
	of := func(cost, keep int64) weir.Charge {
		return weir.Charge{Key: "k", HashTag: "tag", Limit: limit, Cost: cost, Keep: keep}
	}
	for l.Stats().Left < 5 {
		if a := take(l, of(1, 0)); !a.Allowed() {
			t.Fatalf("no lease before the limit is reached: %+v", l.Stats())
		}
	}
	there := take(store, of(0, 0)).Decisions[0].Remaining
	both := there + l.Stats().Left
	beside := weir.Charge{Key: "beside", HashTag: "tag", Limit: other}
	charged, alternative := beside, beside
	charged.Cost, alternative.Alt = 1, 1
	for name, c := range map[string]struct {
		charges []weir.Charge
		want    int64
	}{
		"plain":               {[]weir.Charge{of(0, 0)}, both},
		"some are kept":       {[]weir.Charge{of(0, 10)}, there - 10},
		"all are kept":        {[]weir.Charge{of(0, there)}, 0},
		"an alternative":      {[]weir.Charge{of(0, 0), alternative}, there},
		"beside another peek": {[]weir.Charge{of(0, 0), beside}, there},
		"beside a charge":     {[]weir.Charge{of(0, 0), charged}, there},
		"twice":               {[]weir.Charge{of(0, 0), of(0, 0)}, there},
	} {
		if a := take(l, c.charges...); a.Err != nil || a.Decisions[0].Remaining != c.want {
			t.Errorf("%s: %v, %v, want %d remaining", name, a.Decisions, a.Err, c.want)
		}
	}
	if a := take(l, of(both, 0)); !a.Allowed() {
		t.Errorf("a take of all %d: %v, %v", both, a.Decisions, a.Err)
	}
}

// TestPeeksOfSeveralLimits: units are leased from each limit of an act.
func TestPeeksOfSeveralLimits(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	l := lease.Wrap(memengine.New(memengine.Options{Now: clock.Now}), lease.Options{Leased: all, Now: clock.Now})
	charges := func(cost int64) []weir.Charge {
		return []weir.Charge{
			{Key: "a", HashTag: "tag", Limit: weir.Limit{Name: "a", Count: 100, Period: time.Hour}.MustCompile(), Cost: cost},
			{Key: "b", HashTag: "tag", Limit: weir.Limit{Name: "b", Count: 1000, Period: time.Hour}.MustCompile(), Cost: cost},
		}
	}
	took := int64(0)
	for ; l.Stats().Left < 5; took++ {
		if a := take(l, charges(1)...); !a.Allowed() {
			t.Fatalf("no lease before the limit is reached: %+v", l.Stats())
		}
	}
	if d := take(l, charges(0)...).Decisions; d[0].Remaining != 100-took || d[1].Remaining != 1000-took {
		t.Errorf("%d were taken: %v", took, d)
	}
}

// A full set of keys leaves the others to the store.
func TestMaxKeys(t *testing.T) {
	t.Parallel()
	l := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{Leased: all, MaxKeys: 64})
	limit := (&weir.Limit{Count: 1000, Period: time.Hour}).MustCompile()
	for i := range 10_000 {
		if a := take(l, weir.Charge{Key: fmt.Sprint(i), Limit: limit, Cost: 1}); !a.Allowed() {
			t.Fatal(a.Err)
		}
	}
	if n := l.Stats().Keys; n > 64 {
		t.Errorf("%d keys are watched", n)
	}
}

// broken fails or panics.
type broken struct {
	next  weir.Taker
	panic bool
	on    atomic.Bool
}

func (b *broken) Take(ctx context.Context, acts []*weir.Act) {
	switch {
	case !b.on.Load():
		b.next.Take(ctx, acts)
	case b.panic:
		panic("broken")
	default:
		for _, a := range acts {
			a.Err = weir.ErrNotApplied
		}
	}
}

// A store that fails or panics leaves no claim behind.
func TestABrokenStore(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		store := &broken{next: memengine.New(memengine.Options{}), panic: panics}
		l := lease.Wrap(store, lease.Options{Leased: all})
		limit := (&weir.Limit{Count: 1000, Period: time.Hour}).MustCompile()
		charge := weir.Charge{Key: "k", Limit: limit, Cost: 1}
		store.on.Store(true)
		func() {
			defer func() { _ = recover() }()
			if a := take(l, charge); !errors.Is(a.Err, weir.ErrNotApplied) {
				t.Errorf("got %v", a.Err)
			}
		}()
		store.on.Store(false)
		if a := take(l, charge); !a.Allowed() {
			t.Errorf("after the failure: %+v, %v", a.Decisions, a.Err)
		}
	}
}

func TestSpendingAllocatesNothing(t *testing.T) {
	l := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{Leased: all, Ahead: time.Hour})
	limit := (&weir.Limit{Count: 1_000_000_000, Period: time.Hour}).MustCompile()
	list := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})}
	for range 100_000 {
		l.Take(context.Background(), list)
	}
	if n := testing.AllocsPerRun(1000, func() { l.Take(context.Background(), list) }); n != 0 || list[0].Decisions[0].Source != acts.SourceLease {
		t.Errorf("%v allocations, %+v", n, list[0].Decisions)
	}
}

// slow is a store without TakeOne.
type slow struct{ weir.Taker }

func TestLeasedTakesAllocateNothing(t *testing.T) {
	l := lease.Wrap(slow{memengine.New(memengine.Options{})}, lease.Options{Leased: all})
	limiter, err := weir.NewLimiter(l, "test", weir.PerHour(1_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	var d weir.Decision
	allow := func() { d, _ = limiter.Allow(context.Background(), "k") }
	for range 100_000 {
		allow()
	}
	if n := testing.AllocsPerRun(1000, allow); n != 0 || d.Source != acts.SourceLease {
		t.Errorf("%v allocations, %+v", n, d)
	}
}

// TestNewLimitsAllocateNothing holds that a limit that was never seen before costs no memory:
// clients may bring along a new one with each request.
func TestNewLimitsAllocateNothing(t *testing.T) {
	l := lease.Wrap(idle{}, lease.Options{Leased: func(*weir.Limit) bool { return false }})
	limits := newLimits(1100)
	list := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Cost: 1})}
	i := 0
	take := func() {
		list[0].Charges[0].Limit = limits[i]
		l.Take(context.Background(), list)
		i++
	}
	if n := testing.AllocsPerRun(1000, take); n != 0 {
		t.Errorf("%v allocations for a new limit", n)
	}
}

// newLimits returns n limits that differ.
func newLimits(n int) []*weir.Limit {
	limits := make([]*weir.Limit, n)
	for i := range limits {
		limits[i] = weir.PerHour(int64(2 + i)).MustCompile()
	}
	return limits
}

// idle decides nothing.
type idle struct{}

// Take does nothing.
func (idle) Take(context.Context, []*weir.Act) {}

// BenchmarkLimits is what the layer adds to an act, by the number of limits in use.
func BenchmarkLimits(b *testing.B) {
	for _, n := range []int{1, 4000, 20_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := lease.Wrap(idle{}, lease.Options{Leased: func(*weir.Limit) bool { return false }})
			limits := newLimits(n)
			list := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Cost: 1})}
			i := 0
			for b.Loop() {
				list[0].Charges[0].Limit = limits[i%n]
				l.Take(context.Background(), list)
				i++
			}
		})
	}
}

func BenchmarkHot(b *testing.B) {
	l := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{Leased: all})
	limit := (&weir.Limit{Count: 1_000_000_000, Period: time.Hour}).MustCompile()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})}
		for p.Next() {
			l.Take(context.Background(), acts)
		}
	})
	b.ReportMetric(float64(l.Stats().Leases)/float64(b.N), "trips/act")
}
