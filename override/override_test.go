package override_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/override"
	"github.com/weirlimit/weir/storetest"
)

// TestTaker runs the suite without overrides, beside overrides of other keys,
// and with every limit overridden by its like.
func TestTaker(t *testing.T) {
	t.Parallel()
	wrap := func(clock *storetest.Clock) *override.Taker {
		return override.Wrap(memstore.New(memstore.Options{Now: clock.Now}), override.Options{Now: clock.Now})
	}
	for name, open := range map[string]storetest.Open{
		"none": func(_ testing.TB, clock *storetest.Clock) weir.Taker { return wrap(clock) },
		"others": func(t testing.TB, clock *storetest.Clock) weir.Taker {
			taker := wrap(clock)
			set(t, taker, "nobody's", weir.PerSecond(0), clock.Now().Add(time.Hour))
			return taker
		},
		"alike": func(_ testing.TB, clock *storetest.Clock) weir.Taker { return alike{wrap(clock), clock} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}

// alike overrides each limit by a limit of its own that says the same.
type alike struct {
	*override.Taker
	clock *storetest.Clock
}

func (a alike) Take(ctx context.Context, acts []*weir.Act) {
	for _, act := range acts {
		for i := range act.Charges {
			if c := &act.Charges[i]; c.Limit != nil && c.Limit.Rule() != nil {
				// Keys beyond the contract are among those of the suite.
				_ = a.Set(c.Key, *c.Limit, a.clock.Now().Add(time.Minute))
			}
		}
		a.Taker.Take(ctx, []*weir.Act{act})
	}
}

func set(t testing.TB, taker *override.Taker, key string, limit weir.Limit, until time.Time) {
	t.Helper()
	if err := taker.Set(key, limit, until); err != nil {
		t.Fatal(err)
	}
}

// place is a taker over a memory store, and the clock of both.
func place(o override.Options) (*override.Taker, *storetest.Clock) {
	clock := storetest.NewClock()
	o.Now = clock.Now
	return override.Wrap(memstore.New(memstore.Options{Now: clock.Now}), o), clock
}

// charge takes cost units of a key, and demands that the act stays as it was.
func charge(t testing.TB, taker weir.Taker, key string, limit *weir.Limit, cost int64) weir.Decision {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	if limit.Algorithm == weir.Concurrency && cost > 0 {
		a.ID = fmt.Sprint(key, time.Now().UnixNano(), cost)
	}
	if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a.Charges[0].Limit != limit {
		t.Errorf("the charge was changed to %v", a.Charges[0].Limit)
	}
	return a.Decisions[0]
}

// limits is one limit of 10 an hour an algorithm with units, all of one name.
func limits() []*weir.Limit {
	var all []*weir.Limit
	for id := range algo.Steps {
		l := weir.Limit{Name: "hourly", Algorithm: weir.Algorithm(id), Count: 10, Period: time.Hour}
		if l.Algorithm != weir.Concurrency {
			all = append(all, l.MustCompile())
		}
	}
	return all
}

// TestActsOnWhatWasUsed raises and cuts the limit of a key that is in use, and
// waits for the end.
func TestActsOnWhatWasUsed(t *testing.T) {
	t.Parallel()
	for _, limit := range limits() {
		taker, clock := place(override.Options{})
		charge(t, taker, "k", limit, 4)
		charge(t, taker, "other", limit, 4)
		with := func(count int64) weir.Limit {
			l := *limit
			l.Count, l.Burst = count, 0
			return l
		}
		left := func(want int64) {
			t.Helper()
			if d := charge(t, taker, "k", limit, 0); d.Remaining != want {
				t.Errorf("%v: %d remain of k, want %d", limit, d.Remaining, want)
			}
			if d := charge(t, taker, "other", limit, 0); d.Remaining != 6 {
				t.Errorf("%v: %d remain of another key", limit, d.Remaining)
			}
		}
		set(t, taker, "k", with(100), clock.Now().Add(time.Second))
		left(96)
		set(t, taker, "k", with(5), clock.Now().Add(time.Second))
		left(1)
		if d := charge(t, taker, "k", limit, 2); d.Outcome != weir.Refused || d.Source != weir.SourceStore {
			t.Errorf("%v: 2 of 1: %+v", limit, d)
		}
		clock.Advance(time.Second - time.Microsecond)
		left(1)
		clock.Advance(time.Microsecond)
		left(6)
		if list := taker.List(); len(list) != 0 {
			t.Errorf("in force after their end: %v", list)
		}
	}
}

func TestBlock(t *testing.T) {
	t.Parallel()
	for _, limit := range append(limits(), weir.Limit{Name: "hourly", Algorithm: weir.Concurrency, Count: 5, Period: time.Hour}.MustCompile()) {
		taker, clock := place(override.Options{})
		held := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
		held.ID = "held before"
		taker.Take(context.Background(), []*weir.Act{held})
		before := charge(t, taker, "k", limit, 0).Remaining
		set(t, taker, "k", weir.Limit{Name: "hourly", Period: time.Second}, clock.Now().Add(time.Minute))
		d := charge(t, taker, "k", limit, 1)
		if d.Outcome != weir.Refused || d.RetryAfter != weir.Never || d.Source != weir.SourceLimit {
			t.Errorf("%v: %+v", limit, d)
		}
		// Under the block's own period nothing would be left to give back.
		clock.Advance(2 * time.Second)
		back := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
		back.Kind, back.ID = weir.Release, held.ID
		if taker.Take(context.Background(), []*weir.Act{back}); back.Err != nil || back.Decisions[0].Granted != 1 {
			t.Errorf("%v: release of what was held before the block: %+v, %v", limit, back.Decisions[0], back.Err)
		}
		if !taker.Delete("k") || taker.Delete("k") {
			t.Error("deleted never or twice")
		}
		if d := charge(t, taker, "k", limit, 1); !d.Allowed() || d.Remaining != before {
			t.Errorf("%v: after the block: %+v", limit, d)
		}
	}
}

func TestUnlimited(t *testing.T) {
	t.Parallel()
	for _, limit := range limits() {
		taker, clock := place(override.Options{})
		set(t, taker, "k", override.Unlimited(*limit), clock.Now().Add(time.Minute))
		for range 1000 {
			if d := charge(t, taker, "k", limit, 10); !d.Allowed() {
				t.Fatalf("%v: %+v", limit, d)
			}
		}
	}
	for _, period := range []time.Duration{time.Millisecond, 86_399_999 * time.Millisecond, 366 * 24 * time.Hour} {
		if l, err := override.Unlimited(weir.Per(3, period)).Compile(); err != nil || l.Count < 1_000_000 {
			t.Errorf("%v: %v, %v", period, l, err)
		}
	}
	if l := override.Unlimited(weir.Limit{Name: "bad", Count: 3}); l.Count != 3 {
		t.Errorf("made something of what is no limit: %+v", l)
	}
}

// TestAppliesToItsLimitOnly: neither to other names and algorithms of the key nor
// to charges that are no good.
func TestAppliesToItsLimitOnly(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	set(t, taker, "k", weir.Limit{Name: "a", Count: 1000, Period: time.Hour}, clock.Now().Add(time.Hour))
	named := func(name string, algorithm weir.Algorithm) *weir.Limit {
		return weir.Limit{Name: name, Algorithm: algorithm, Count: 10, Period: time.Hour}.MustCompile()
	}
	for _, c := range []struct {
		key   string
		limit *weir.Limit
		left  int64
	}{
		{"k", named("a", weir.GCRA), 1000},
		{"k", named("b", weir.GCRA), 10},
		{"k", named("", weir.GCRA), 10},
		{"k", named("a", weir.SlidingLog), 10},
		{"K", named("a", weir.GCRA), 10},
		{"", named("a", weir.GCRA), 10},
	} {
		if d := charge(t, taker, c.key, c.limit, 0); d.Remaining != c.left {
			t.Errorf("key %q, %v named %q: %d remain, want %d", c.key, c.limit, c.limit.Name, d.Remaining, c.left)
		}
	}
	for _, bad := range []*weir.Limit{nil, {Name: "a", Count: 1, Period: time.Second}} {
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: bad, Cost: 1})
		if taker.Take(context.Background(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrInvalid) {
			t.Errorf("limit %v: %v", bad, a.Err)
		}
	}
}

// TestBatch mixes acts with and without overrides: each gets its own answer.
func TestBatch(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	limit := weir.PerHour(10).MustCompile()
	set(t, taker, "raised", weir.PerHour(100), clock.Now().Add(time.Hour))
	set(t, taker, "blocked", weir.PerHour(0), clock.Now().Add(time.Hour))
	with := func(key string, cost int64) weir.Charge { return weir.Charge{Key: key, Limit: limit, Cost: cost} }
	acts := []*weir.Act{
		storetest.NewAct(with("plain", 3)),
		storetest.NewAct(with("raised", 3), with("plain", 3)),
		storetest.NewAct(with("raised", -1)),
		storetest.NewAct(with("plain", 1), with("blocked", 1)),
	}
	asked := slices.Clone(acts)
	taker.Take(context.Background(), acts)
	if !slices.Equal(asked, acts) {
		t.Error("the slice of acts was changed")
	}
	if acts[0].Decisions[0].Remaining != 7 || acts[1].Decisions[0].Remaining != 97 || acts[1].Decisions[1].Remaining != 4 {
		t.Errorf("%+v, %+v", acts[0].Decisions, acts[1].Decisions)
	}
	if !errors.Is(acts[2].Err, weir.ErrInvalid) || acts[0].Err != nil || acts[3].Err != nil || acts[3].Allowed() {
		t.Errorf("%v, %+v", acts[2].Err, acts[3].Decisions)
	}
	if left := charge(t, taker, "plain", limit, 0).Remaining; left != 4 {
		t.Errorf("%d remain beside a block", left)
	}
}

func TestSetRefuses(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{Max: 2})
	later := clock.Now().Add(time.Hour)
	set(t, taker, "b", weir.PerSecond(2), later)
	set(t, taker, "a", weir.PerSecond(1), clock.Now().Add(time.Minute))
	set(t, taker, "a", weir.PerSecond(3), clock.Now().Add(time.Minute))
	for field, err := range map[string]error{
		"count":     taker.Set("c", weir.PerSecond(-1), later),
		"until":     taker.Set("c", weir.PerSecond(1), clock.Now()),
		"key":       taker.Set(string(make([]byte, weir.MaxKeyBytes+1)), weir.PerSecond(1), later),
		"overrides": taker.Set("c", weir.PerSecond(1), later),
	} {
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if list := taker.List(); len(list) != 2 || list[0].Key != "a" || list[0].Limit.Count != 3 || list[1].Until != later {
		t.Errorf("%+v", list)
	}
	clock.Advance(time.Minute)
	set(t, taker, "c", weir.PerSecond(1), later)
}

// TestConcurrentChanges is for the race detector.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	limit := weir.PerHour(1000).MustCompile()
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			key := fmt.Sprint("k", i%2)
			for j := range 200 {
				// The others may have moved the clock past its end.
				_ = taker.Set(key, weir.PerHour(2000), clock.Now().Add(time.Duration(j+1)*time.Microsecond))
				charge(t, taker, key, limit, 1)
				clock.Advance(2 * time.Microsecond)
				charge(t, taker, key, limit, 1)
				taker.List()
				taker.Delete(key)
			}
		})
	}
	callers.Wait()
	if left := charge(t, taker, "k0", limit, 0).Remaining; left != 200 || len(taker.List()) != 0 {
		t.Errorf("%d remain of 1000 after 800, under %v", left, taker.List())
	}
}

// TestCostsNothing: without overrides, a Take allocates nothing.
func TestCostsNothing(t *testing.T) {
	clock := storetest.NewClock()
	taker := override.Wrap(idle{}, override.Options{Now: clock.Now})
	acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerHour(10).MustCompile(), Cost: 1})}
	free := func(when string) {
		if n := testing.AllocsPerRun(100, func() { taker.Take(context.Background(), acts) }); n != 0 {
			t.Errorf("%s: %v allocations", when, n)
		}
	}
	free("before")
	set(t, taker, "k", weir.PerHour(5), clock.Now().Add(time.Second))
	clock.Advance(time.Second)
	taker.Take(context.Background(), acts)
	free("after")
}

// idle is a Taker that does nothing, and so allocates nothing, whatever the race
// detector makes of pools.
type idle struct{}

func (idle) Take(context.Context, []*weir.Act) {}

// A customer gets more for a day, and a key that misbehaves nothing.
func ExampleTaker_Set() {
	limits := override.Wrap(memstore.New(memstore.Options{}), override.Options{})
	limiter, err := weir.NewLimiter(limits, weir.PerMinute(10))
	if err != nil {
		panic(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	fmt.Println(limits.Set("tenant:7", weir.PerMinute(500), tomorrow))
	fmt.Println(limits.Set("tenant:8", weir.PerMinute(0), tomorrow))
	for _, key := range []string{"tenant:6", "tenant:7", "tenant:8"} {
		d, err := limiter.AllowN(context.Background(), key, 10)
		fmt.Println(d.Allowed(), d.Remaining, err)
	}
	// Output:
	// <nil>
	// <nil>
	// true 0 <nil>
	// true 490 <nil>
	// false 0 <nil>
}
