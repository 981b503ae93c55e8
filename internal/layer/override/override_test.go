package override_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

// TestTaker runs the suite without overrides and beside overrides of other keys.
func TestTaker(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"none": false, "others": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
				layer := override.Wrap(memory(t, clock), override.Options{Now: clock.Now})
				if others {
					set(t, layer, "nobody's", weir.PerSecond(0), clock.Now().Add(time.Hour))
				}
				return layer
			})
		})
	}
}

// TestAlike runs the suite with every limit overridden by its like, and compares random
// histories, of one algorithm each: an override is of a key under all algorithms.
func TestAlike(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return alike{override.Wrap(memory(t, clock), override.Options{Now: clock.Now}), clock}
	}
	storetest.Run(t, open)
	for id, step := range algo.Steps {
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			w := storetest.Twins{A: memory(t, clock), B: open(t, clock), Clock: clock, Seed: 1, Algorithms: []weir.Algorithm{weir.Algorithm(id)}}
			if err := w.Compare(1000); err != nil {
				t.Error(err)
			}
		})
	}
}

// alike overrides each limit by a limit of its own that says the same.
type alike struct {
	*override.Layer
	clock *storetest.Clock
}

func (a alike) Take(ctx context.Context, acts []*weir.Act) {
	for _, act := range acts {
		for i := range act.Charges {
			if c := &act.Charges[i]; c.Limit != nil && c.Limit.Rule() != nil {
				// Keys beyond the contract are among those of the suite.
				_ = a.Set(override.Override{Key: c.Key, Limit: c.Limit, Until: a.clock.Now().Add(time.Minute)})
			}
		}
		a.Layer.Take(ctx, []*weir.Act{act})
		for i := range act.Decisions {
			act.Decisions[i].Limit = nil
		}
	}
}

func set(t testing.TB, taker *override.Layer, key string, limit weir.Limit, until time.Time) {
	t.Helper()
	if err := taker.Set(override.Override{Key: key, Limit: &limit, Until: until}); err != nil {
		t.Fatal(err)
	}
}

// place is a taker over a memory store, and the clock of both.
func place(o override.Options) (*override.Layer, *storetest.Clock) {
	clock := storetest.NewClock()
	o.Now = clock.Now
	return override.Wrap(memengine.New(memengine.Options{Now: clock.Now}), o), clock
}

// charge takes cost units of a key, and demands that the cost stays as it was.
func charge(t testing.TB, taker weir.Taker, key string, limit *weir.Limit, cost int64) weir.Decision {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	if limit.Algorithm == weir.Concurrency && cost > 0 {
		a.ID, a.Scope.Owner = fmt.Sprint(key, time.Now().UnixNano(), cost), a.Charges[0].Key
	}
	if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a.Charges[0].Cost != cost {
		t.Errorf("the cost was changed to %d", a.Charges[0].Cost)
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
		if d := charge(t, taker, "k", limit, 2); d.Outcome != weir.Refused || d.Source != acts.SourceStore {
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

// TestOneBudgetOfSeveralRules: an overridden budget has one limit whatever rule charges it,
// under the rule's own name, and none is made anew for each charge.
func TestOneBudgetOfSeveralRules(t *testing.T) {
	taker, clock := place(override.Options{})
	var rules []*weir.Limit
	for i := range 3 {
		rules = append(rules, weir.Limit{Name: fmt.Sprint("rule ", i), Count: 100, Period: time.Hour}.MustCompile())
	}
	until := clock.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		override override.Override
		left     int64 // of 30 used
	}{
		"more":  {override.Override{Key: "more", Limit: rules[0], Until: until}, 70},
		"less":  {override.Override{Key: "less", Limit: &weir.Limit{Count: 40, Period: time.Minute}, Until: until}, 10},
		"none":  {override.Override{Key: "none", Until: until}, 999_999_970},
		"block": {override.Override{Key: "block", Limit: &weir.Limit{Period: time.Hour}, Until: until}, 0},
	} {
		charge(t, taker, name, rules[0], 30)
		if err := taker.Set(c.override); err != nil {
			t.Fatal(err)
		}
		instead := map[*weir.Limit]*weir.Limit{}
		ask := func(rule *weir.Limit, keep int64) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: name, Limit: rule, Cost: 0, Keep: keep})
			if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
			return a
		}
		for round := range 3 {
			for _, rule := range rules {
				a := ask(rule, 0)
				got := a.LimitOf(0)
				if a.Decisions[0].Remaining != c.left || got.Name != rule.Name || !got.Alike(ask(rules[0], 0).LimitOf(0)) {
					t.Errorf("%s: %v under %v named %s", name, a.Decisions, got, got.Name)
				}
				if round > 0 && instead[rule] != got {
					t.Errorf("%s: a limit of its own for each charge of %s", name, rule.Name)
				}
				instead[rule] = got
				if kept := ask(rule, 4).Decisions[0].Remaining; name != "none" && kept != max(0, c.left-4) {
					t.Errorf("%s: %d remain beside 4 that stay free", name, kept)
				}
			}
		}
	}
}

// TestAlternatives: a blocked alternative is passed over, and only one of those without a
// limit is granted.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).MustCompile()
	take := func(taker weir.Taker, keys ...string) []weir.Decision {
		a := storetest.NewAct()
		for i, key := range keys {
			a.Charges = append(a.Charges, weir.Charge{Key: key, HashTag: "tag", Limit: limit, Cost: 4, Alt: uint8(i)})
		}
		a.Decisions = make([]weir.Decision, len(keys))
		if taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil || !a.Allowed() {
			t.Errorf("%v: %v, %v", keys, a.Decisions, a.Err)
		}
		return a.Decisions
	}
	for name, c := range map[string]struct {
		keys []string
		want int
	}{
		"a blocked one":             {[]string{"blocked", "k"}, 1},
		"one without a limit":       {[]string{"blocked", "free", "k"}, 1},
		"two without a limit":       {[]string{"free", "free too", "k"}, 0},
		"nothing but without limit": {[]string{"free", "free too"}, 0},
		"a limit before":            {[]string{"k", "free"}, 0},
	} {
		taker, clock := place(override.Options{})
		end := clock.Now().Add(time.Hour)
		set(t, taker, "blocked", weir.PerHour(0), end)
		for _, key := range []string{"free", "free too"} {
			if err := taker.Set(override.Override{Key: key, Until: end}); err != nil {
				t.Fatal(err)
			}
		}
		for i, d := range take(taker, c.keys...) {
			if granted := d.Outcome == weir.Granted; granted != (i == c.want) || granted && d.Granted != 4 || !granted && d.Outcome != weir.NotEvaluated {
				t.Errorf("%s: charge %d: %v", name, i, d)
			}
		}
	}
}

// TestOwner: an override of an owner is of all charges that have it, and of no others, and
// holds before those of their keys.
func TestOwner(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).MustCompile()
	act := func(cost int64) *weir.Act {
		return storetest.NewAct(
			weir.Charge{Key: "own", HashTag: "tag", Owner: "caller", Limit: limit, Cost: cost},
			weir.Charge{Key: "pool", HashTag: "tag", Owner: "caller", Limit: limit, Cost: cost, Alt: 1, Keep: 2},
			weir.Charge{Key: "other", Limit: limit, Cost: cost, Group: 1},
		)
	}
	for name, c := range map[string]struct {
		limit           *weir.Limit
		allowed         bool
		own, pool, rest int64 // that remain after a cost of 4
	}{
		"blocked":       {weir.PerHour(0).MustCompile(), false, 10, 10, 10},
		"without limit": {nil, true, 10, 10, 6},
	} {
		taker, clock := place(override.Options{})
		set(t, taker, "own", weir.PerHour(5), clock.Now().Add(2*time.Hour))
		if err := taker.Set(override.Override{Key: "caller", Limit: c.limit, Until: clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		a := act(4)
		if taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil || a.Allowed() != c.allowed {
			t.Errorf("%s: %v, %v", name, a.Decisions, a.Err)
		}
		taker.Delete("own")
		for key, want := range map[string]int64{"own": c.own, "pool": c.pool, "other": c.rest} {
			if left := charge(t, taker, key, limit, 0).Remaining; left != want {
				t.Errorf("%s: %d of %s remain, want %d", name, left, key, want)
			}
		}
		set(t, taker, "own", weir.PerHour(5), clock.Now().Add(2*time.Hour))
		clock.Advance(time.Hour)
		a = act(0)
		if taker.Take(t.Context(), []*weir.Act{a}); a.Decisions[0].Remaining != 5 {
			t.Errorf("%s: %v once it has ended", name, a.Decisions)
		}
	}
	taker, clock := place(override.Options{})
	set(t, taker, "", weir.PerHour(0), clock.Now().Add(time.Hour))
	if d := charge(t, taker, "k", limit, 1); !d.Allowed() {
		t.Errorf("a charge without owner: %v", d)
	}
}

// seen is a Taker that notes under which limits it is asked about a key.
type seen struct {
	weir.Taker
	key    string
	limits map[*weir.Limit]bool
}

func (s seen) Take(ctx context.Context, acts []*weir.Act) {
	for _, a := range acts {
		for i := range a.Charges {
			if a.Charges[i].Key == s.key {
				s.limits[a.Charges[i].Limit] = true
			}
		}
	}
	s.Taker.Take(ctx, acts)
}

// TestOwnersDoNotShowInBudgets: layers below, which remember what is left of a budget, are
// asked about it under its own limit alone, whatever holds for one of its callers, and
// nothing is charged to it.
func TestOwnersDoNotShowInBudgets(t *testing.T) {
	t.Parallel()
	limit, other := weir.PerHour(10).MustCompile(), weir.PerHour(20).MustCompile()
	block := weir.PerHour(0).MustCompile()
	for _, c := range []struct {
		limit      *weir.Limit
		cost, upTo int64
		beside     bool // another rule's charge is in the act
		allowed    bool
		granted    int64
		remaining  int64 // of the caller's first charge
		charged    int64
	}{
		{block, 0, 0, false, true, 0, 0, 0},
		{block, 3, 0, false, false, 0, 0, 0},
		{block, 3, 9, false, false, 0, 0, 0},
		{block, 0, 0, true, true, 0, 0, 0},
		{block, 3, 0, true, false, 0, 0, 0},
		{nil, 0, 0, false, true, 0, 1_000_000_000, 0},
		{nil, 30, 0, false, true, 30, 1_000_000_000, 0},
		{nil, 3, 90, false, true, 90, 1_000_000_000, 0},
		{nil, 0, 0, true, true, 0, 1_000_000_000, 0},
		{nil, 15, 0, true, true, 15, 1_000_000_000, 0},
		{nil, 21, 0, true, false, 0, 1_000_000_000, 0},
		// A best effort beside other rules cannot leave one budget out.
		{nil, 3, 9, true, true, 9, 1, 9},
	} {
		clock := storetest.NewClock()
		below := seen{memengine.New(memengine.Options{Now: clock.Now}), "pool", map[*weir.Limit]bool{}}
		taker := override.Wrap(below, override.Options{Now: clock.Now})
		if err := taker.Set(override.Override{Key: "caller", Limit: c.limit, Until: clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		a := storetest.NewAct(weir.Charge{Key: "pool", Owner: "caller", Limit: limit, Cost: c.cost, UpTo: c.upTo})
		if c.beside {
			a.Charges = append(a.Charges, weir.Charge{Key: "other", Limit: other, Cost: c.cost, UpTo: c.upTo, Group: 1})
			a.Decisions = make([]weir.Decision, 2)
		}
		taker.Take(t.Context(), []*weir.Act{a})
		if d := a.Decisions[0]; a.Err != nil || a.Allowed() != c.allowed || d.Granted != c.granted || d.Remaining != c.remaining {
			t.Errorf("%+v: %v, %v", c, a.Decisions, a.Err)
		}
		if charged := 10 - charge(t, taker, "pool", limit, 0).Remaining; charged != c.charged {
			t.Errorf("%+v: %d charged", c, charged)
		}
		if delete(below.limits, limit); len(below.limits) > 0 {
			t.Errorf("%+v: asked about under %v", c, below.limits)
		}
	}
}

// TestGuarantees: an override lowers a guarantee, and leaves it as it is where it is more or
// none, which others would pay for.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 1000, Period: time.Hour, Burst: 200},
		Guarantees: map[string]int64{"web": 300, "ads": 500}, Headroom: 60,
	}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit *weir.Limit
		burst int64
	}{
		{nil, 30},
		{&weir.Limit{Count: 5000, Period: time.Hour, Burst: 190}, 30},
		{&weir.Limit{Count: 501, Period: time.Hour, Burst: 30}, 30},
		{&weir.Limit{Count: 9, Period: time.Minute, Burst: 9}, 30},
		{&weir.Limit{Count: 1, Period: time.Millisecond, Burst: 9}, 30},
		{&weir.Limit{Count: 500, Period: time.Hour}, 30},
		{&weir.Limit{Count: 8, Period: time.Minute, Burst: 9}, 9},
		{&weir.Limit{Count: 500, Period: time.Hour, Burst: 29}, 29},
		{&weir.Limit{Period: time.Hour}, 0},
	} {
		taker, clock := place(override.Options{})
		take := func(class string, cost int64) *weir.Act {
			a := shares.Limiter(taker, "budget", class).Act(acts.KindTake, "k", cost)
			if taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
			return a
		}
		own := take("ads", 0).Charges[0].Key
		if err := taker.Set(override.Override{Key: own, Limit: c.limit, Until: clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if left := take("ads", 0).Decisions[0].Remaining; left != c.burst {
			t.Errorf("%v: %d are guaranteed at once, want %d", c.limit, left, c.burst)
		}
		for range 1000 {
			take("other", 1)
			take("ads", 1)
		}
		if !take("web", 18).Allowed() {
			t.Errorf("%v: web is refused its guarantee", c.limit)
		}
	}
}

func TestBlock(t *testing.T) {
	t.Parallel()
	for _, limit := range append(limits(), weir.Limit{Name: "hourly", Algorithm: weir.Concurrency, Count: 5, Period: time.Hour}.MustCompile()) {
		taker, clock := place(override.Options{})
		held := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
		held.ID, held.Scope.Owner = "held before", held.Charges[0].Key
		taker.Take(context.Background(), []*weir.Act{held})
		before := charge(t, taker, "k", limit, 0).Remaining
		set(t, taker, "k", weir.Limit{Name: "hourly", Period: time.Second}, clock.Now().Add(time.Minute))
		d := charge(t, taker, "k", limit, 1)
		if d.Outcome != weir.Refused || d.RetryAfter != time.Minute || d.Source != acts.SourceLimit {
			t.Errorf("%v: %+v", limit, d)
		}
		// Under the block's own period nothing would be left to give back.
		clock.Advance(2 * time.Second)
		back := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
		back.Kind, back.ID, back.Scope.Owner = acts.KindRelease, held.ID, back.Charges[0].Key
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

// TestNoLimit: takes of a key without a limit are granted without asking, and
// charge nothing.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range limits() {
		taker, clock := place(override.Options{})
		charge(t, taker, "k", limit, 3)
		free(t, taker, "k", clock.Now().Add(time.Minute))
		for range 1000 {
			if d := charge(t, taker, "k", limit, 10); !d.Allowed() || d.Granted != 10 || d.Remaining != weir.MaxCost || !d.At.IsZero() {
				t.Fatalf("%v: %+v", limit, d)
			}
		}
		if d := charge(t, taker, "k", limit, 0); !d.Allowed() || d.Remaining < 10 {
			t.Errorf("%v: look: %+v", limit, d)
		}
		taker.Delete("k")
		if d := charge(t, taker, "k", limit, 0); d.Remaining != 7 {
			t.Errorf("%v: %d remain afterwards, want 7", limit, d.Remaining)
		}
	}
}

func free(t testing.TB, taker *override.Layer, key string, until time.Time) {
	t.Helper()
	if err := taker.Set(override.Override{Key: key, Until: until}); err != nil {
		t.Fatal(err)
	}
}

// TestNoLimitBesideOthers: the other keys of the act decide it, and it is charged
// to them alone.
func TestNoLimitBesideOthers(t *testing.T) {
	t.Parallel()
	for _, limit := range limits() {
		taker, clock := place(override.Options{})
		free(t, taker, "free", clock.Now().Add(time.Minute))
		both := func(cost, upTo int64) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "free", Limit: limit, Cost: cost, UpTo: upTo}, weir.Charge{Key: "k", Limit: limit, Cost: cost, UpTo: upTo})
			if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
				t.Fatal(a.Err)
			}
			if a.Charges[0].Cost != cost {
				t.Errorf("%v: the cost was changed to %d", limit, a.Charges[0].Cost)
			}
			return a
		}
		if a := both(8, 0); !a.Allowed() || a.Decisions[0].Granted != 8 || a.Decisions[1].Remaining != 2 {
			t.Errorf("%v: %+v", limit, a.Decisions)
		}
		if a := both(3, 0); a.Decisions[0].Outcome != weir.NotCharged || a.Decisions[0].Granted != 0 || a.Decisions[1].Outcome != weir.Refused {
			t.Errorf("%v: refused: %+v", limit, a.Decisions)
		}
		taker.Delete("free")
		if d := charge(t, taker, "free", limit, 0); d.Remaining != 10 {
			t.Errorf("%v: %d of 10 remain of what was not charged", limit, d.Remaining)
		}
		free(t, taker, "free", clock.Now().Add(time.Minute))
		if a := both(1, 5); !a.Allowed() || limit.Algorithm != weir.SlidingCounter && a.Decisions[0].Granted != 2 {
			t.Errorf("%v: up to: %+v", limit, a.Decisions)
		}
	}
}

// TestNoLimitAndIDs: what was taken without a limit can be settled and released,
// and what was taken before can be given back.
func TestNoLimitAndIDs(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).MustCompile()
	taker, clock := place(override.Options{})
	do := func(kind weir.Kind, id string, cost int64) *weir.Act {
		t.Helper()
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: cost})
		a.Kind, a.ID, a.Scope.Owner = kind, id, a.Charges[0].Key
		if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
			t.Fatalf("%v of %s: %v", kind, id, a.Err)
		}
		return a
	}
	do(acts.KindTake, "before", 4)
	free(t, taker, "k", clock.Now().Add(time.Minute))
	do(acts.KindTake, "during", 5)
	do(acts.KindSettle, "during", 7)
	do(acts.KindTake, "released", 5)
	do(acts.KindRelease, "released", 0)
	if a := do(acts.KindSettle, "before", 1); a.Decisions[0].Granted == 0 {
		t.Errorf("settled: %+v", a.Decisions[0])
	}
	taker.Delete("k")
	if d := charge(t, taker, "k", limit, 0); d.Remaining != 9 {
		t.Errorf("%d remain, want 9", d.Remaining)
	}
	holder := storetest.NewAct(weir.Charge{Key: "p", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour}.MustCompile(), Cost: 1})
	free(t, taker, "p", clock.Now().Add(time.Minute))
	if weir.TakeValid(t.Context(), []*weir.Act{holder}, taker.Take); !errors.Is(holder.Err, weir.ErrInvalid) {
		t.Errorf("a holder without an id: %v", holder.Err)
	}
}

// TestFreeChargesStayFree: what a hold was not charged because a key had no limit, no later act
// about it charges or refunds, whether the override is still in force or has ended.
func TestFreeChargesStayFree(t *testing.T) {
	t.Parallel()
	limit, slots := weir.PerHour(10).MustCompile(), weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Hour}.MustCompile()
	free := weir.Charge{Key: "free", HashTag: "tag", Limit: limit, Cost: 5}
	other := weir.Charge{Key: "other", HashTag: "tag", Limit: limit, Cost: 5, Group: 1}
	second := weir.Charge{Key: "other", HashTag: "tag", Limit: limit, Cost: 5, Alt: 1}
	for name, c := range map[string]struct {
		charges []weir.Charge
		free    int  // which charge is
		other   bool // the other key is charged
	}{
		"alone":                     {[]weir.Charge{free}, 0, false},
		"beside another":            {[]weir.Charge{free, other}, 0, true},
		"the first alternative":     {[]weir.Charge{free, second}, 0, false},
		"a slot":                    {[]weir.Charge{{Key: "free", HashTag: "tag", Limit: slots, Cost: 1}}, 0, false},
		"a slot beside another key": {[]weir.Charge{{Key: "free", HashTag: "tag", Limit: slots, Cost: 1}, other}, 0, true},
		"the second alternative": {[]weir.Charge{
			{Key: "other", HashTag: "tag", Limit: weir.PerHour(4).MustCompile(), Cost: 5}, {Key: "free", HashTag: "tag", Limit: limit, Cost: 5, Alt: 1},
		}, 1, false},
	} {
		for _, kind := range []weir.Kind{acts.KindSettle, acts.KindRefund, acts.KindRelease, acts.KindRenew} {
			for _, during := range []bool{true, false} {
				for _, cost := range []int64{0, c.charges[0].Cost} {
					for _, scope := range []algo.Scope{{Owner: "owner"}, {Owner: "owner", Asks: "5"}} {
						t.Run(fmt.Sprint(name, " ", kind, " during ", during, " cost ", cost, " ", scope.Asks), func(t *testing.T) {
							taker, clock := place(override.Options{})
							if err := taker.Set(override.Override{Key: "free", Until: clock.Now().Add(time.Minute)}); err != nil {
								t.Fatal(err)
							}
							act := func(kind weir.Kind, cost int64) *weir.Act {
								a := storetest.NewAct(slices.Clone(c.charges)...)
								for i := range a.Charges {
									a.Charges[i].Cost = min(cost, a.Charges[i].Cost+cost)
									if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots {
										a.Charges[i].Cost = min(1, cost)
									}
								}
								a.Kind, a.ID, a.Hold, a.Scope = kind, "id", time.Minute, scope
								if kind != acts.KindTake && scope.Asks != "" {
									a.Scope.Asks = kind.String()
								}
								if kind != acts.KindRenew && kind != acts.KindTake {
									a.Hold = 0
								}
								taker.Take(t.Context(), []*weir.Act{a})
								return a
							}
							for range 2 {
								a := act(acts.KindTake, cost)
								if a.Err != nil || !a.Allowed() || a.Decisions[c.free].Outcome != weir.Granted || a.Decisions[c.free].Granted != a.Charges[c.free].Cost {
									t.Fatalf("the take: %v, %v", a.Decisions, a.Err)
								}
							}
							if !during {
								clock.Advance(2 * time.Minute)
							}
							actual := map[weir.Kind]int64{acts.KindSettle: 7, acts.KindRefund: min(cost, 2)}[kind]
							for range 2 {
								a := act(kind, actual)
								if !c.other && kind == acts.KindRefund {
									continue // of a charge that was not made
								}
								if a.Err != nil || !a.Allowed() {
									t.Fatalf("%v: %v, %v", kind, a.Decisions, a.Err)
								}
							}
							clock.Advance(2 * time.Minute)
							for i := range c.charges {
								peek := storetest.NewAct(c.charges[i])
								peek.Charges[0].Cost, peek.Charges[0].Group, peek.Charges[0].Alt = 0, 0, 0
								taker.Take(t.Context(), []*weir.Act{peek})
								used := c.charges[i].Limit.Capacity() - peek.Decisions[0].Remaining
								want := int64(0)
								if c.other && i != c.free {
									want = map[weir.Kind]int64{acts.KindSettle: 7, acts.KindRefund: cost - actual, acts.KindRenew: cost}[kind]
								}
								if want = max(0, want-1); used < want || used > want+1 { // a unit drains in six minutes
									t.Errorf("%s is charged %d, want %d", c.charges[i].Key, used, want)
								}
							}
						})
					}
				}
			}
		}
	}
}

// TestNoLimitWithoutAStore: a take with an ID is granted although no store remembers the ID.
func TestNoLimitWithoutAStore(t *testing.T) {
	t.Parallel()
	taker := override.Wrap(acts.TakerFunc(func(_ context.Context, all []*weir.Act) {
		for _, a := range all {
			a.Err = weir.ErrNotApplied
		}
	}), override.Options{})
	free(t, taker, "k", time.Now().Add(time.Hour))
	for _, kind := range []weir.Kind{acts.KindTake, acts.KindSettle} {
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerHour(10).MustCompile(), Cost: 5})
		a.Kind, a.ID = kind, "id"
		taker.Take(t.Context(), []*weir.Act{a})
		if granted := kind == acts.KindTake; (a.Err == nil) != granted || granted && (a.Decisions[0].Granted != 5 || a.Decisions[0].Remaining != weir.MaxCost) {
			t.Errorf("%v: %v, %v", kind, a.Decisions, a.Err)
		}
	}
}

// TestNoLimitChargesNoUsage: while a key has no limit, usage that is only recorded charges the
// other keys alone, and what was granted without a store is not refunded by one.
func TestNoLimitChargesNoUsage(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	free(t, taker, "api#one:k", clock.Now().Add(time.Minute))
	l, err := weir.NewLimiter(taker, "api", weir.Limit{Name: "one", Count: 10, Period: time.Hour}, weir.Limit{Name: "two", Count: 10, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	record := l.Act(acts.KindRecord, "k", 4)
	if taker.Take(t.Context(), []*weir.Act{record}); record.Err != nil || !record.Allowed() {
		t.Fatalf("%v, %v", record.Decisions, record.Err)
	}
	r, err := l.Reserve(t.Context(), "k", 3, 0)
	if err != nil || !r.OK() {
		t.Fatal(r, err)
	}
	taker.Delete("api#one:k")
	if d, err := l.AllowN(t.Context(), "k", 2); err != nil || !d.Allowed() {
		t.Fatal(d, err)
	}
	if given, err := r.Cancel(t.Context()); given != 3 || err != nil {
		t.Errorf("%d units were cancelled, %v", given, err)
	}
	for i, want := range []int64{8, 4} {
		peek := l.Act(acts.KindTake, "k", 0)
		if taker.Take(t.Context(), []*weir.Act{peek}); peek.Decisions[i].Remaining != want {
			t.Errorf("limit %d: %d remain, want %d", i, peek.Decisions[i].Remaining, want)
		}
	}
	free(t, taker, "api#one:all", clock.Now().Add(time.Minute))
	free(t, taker, "api#two:all", clock.Now().Add(time.Minute))
	r, err = l.Reserve(t.Context(), "all", 3, 0)
	if err != nil || !r.OK() {
		t.Fatal(r, err)
	}
	if given, err := r.Cancel(t.Context()); given != 0 || err != nil {
		t.Errorf("%d units were cancelled that no store has charged, %v", given, err)
	}
	d, err := l.AllowN(t.Context(), "all", 3)
	if err != nil || !d.Allowed() {
		t.Fatal(d, err)
	}
	if given, err := l.Refund(t.Context(), "all", d, 2); given != 0 || err != nil {
		t.Errorf("%d units were refunded that no store has charged, %v", given, err)
	}
}

// TestLowerOverrideForgetsNothing: a lower limit refuses further units, and whatever ends a charge
// meanwhile leaves the other units charged.
func TestLowerOverrideForgetsNothing(t *testing.T) {
	t.Parallel()
	for id := range algo.Steps {
		limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 100, Period: 24 * time.Hour}.MustCompile()
		if limit.Algorithm == weir.Concurrency {
			continue
		}
		for name, c := range map[string]struct {
			kind weir.Kind
			id   string
			cost int64
			want int64
		}{
			"released":       {acts.KindRelease, "held", 0, 95},
			"settled below":  {acts.KindSettle, "held", 2, 97},
			"settled above":  {acts.KindSettle, "held", 8, 103},
			"refunded":       {acts.KindRefund, "held", 3, 97},
			"without an ID":  {acts.KindRefund, "", 3, 97},
			"charged beyond": {acts.KindRecord, "", 3, 103},
			"renewed":        {acts.KindRenew, "held", 0, 100},
			"refused":        {acts.KindTake, "", 1, 100},
		} {
			taker, clock := place(override.Options{})
			act := func(kind weir.Kind, id string, cost int64) *weir.Act {
				a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: cost, At: clock.Micros()})
				if a.Kind, a.ID, a.Scope.Owner = kind, id, "owner"; kind == acts.KindTake || kind == acts.KindRenew {
					a.Hold = time.Minute
				}
				if a.ID == "" {
					a.Hold = 0
				}
				if taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
					t.Fatalf("%v, %s: %v", limit, name, a.Err)
				}
				return a
			}
			act(acts.KindTake, "held", 5)
			act(acts.KindTake, "", 95)
			set(t, taker, "k", weir.PerDay(10), clock.Now().Add(time.Hour))
			if a := act(c.kind, c.id, c.cost); a.Allowed() == (name == "refused") || a.Decisions[0].Remaining != 0 {
				t.Errorf("%v, %s: %v", limit, name, a.Decisions)
			}
			if a := act(acts.KindTake, "", 1); a.Allowed() {
				t.Errorf("%v, %s: then granted under the override", limit, name)
			}
			taker.Delete("k")
			wide := *limit
			if wide.Count = 1000; wide.Burst > 0 {
				wide.Burst = 1000
			}
			a := storetest.NewAct(weir.Charge{Key: "k", Limit: wide.MustCompile()})
			if taker.Take(t.Context(), []*weir.Act{a}); 1000-a.Decisions[0].Remaining != c.want {
				t.Errorf("%v, %s: %d used, want %d", limit, name, 1000-a.Decisions[0].Remaining, c.want)
			}
		}
	}
}

// TestFits: the numbers of an override hold whatever the algorithm, unless it
// cannot have them; everything else is the key's own.
func TestFits(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	set(t, taker, "k", weir.Limit{Count: 1000, Period: time.Hour, Burst: 50}, clock.Now().Add(time.Hour))
	for _, c := range []struct {
		key   string
		limit weir.Limit
		left  int64
	}{
		{"k", weir.Limit{Name: "a"}, 50},
		{"k", weir.Limit{Algorithm: weir.SlidingLog}, 1000},
		{"k", weir.Limit{Algorithm: weir.FixedWindow, ChargeRefused: true}, 1000},
		{"k", weir.Limit{Algorithm: weir.FixedWindow, TimeZone: "UTC"}, 10},
		{"K", weir.Limit{}, 10},
		{"", weir.Limit{}, 10},
	} {
		c.limit.Count, c.limit.Period = 10, 24*time.Hour
		if d := charge(t, taker, c.key, c.limit.MustCompile(), 0); d.Remaining != c.left {
			t.Errorf("key %q, %v: %d remain, want %d", c.key, c.limit, d.Remaining, c.left)
		}
	}
	for _, bad := range []*weir.Limit{nil, {Name: "a", Count: 1, Period: time.Second}} {
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: bad, Cost: 1})
		if taker.Take(context.Background(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrInvalid) {
			t.Errorf("limit %v: %v", bad, a.Err)
		}
	}
}

// TestTellsTheLimit: a decision names the limit that decided.
func TestTellsTheLimit(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	own := weir.Limit{Name: "hourly", Count: 10, Period: time.Hour}.MustCompile()
	set(t, taker, "k", weir.PerMinute(70), clock.Now().Add(time.Hour))
	a := storetest.NewAct(weir.Charge{Key: "other", Limit: own, Cost: 1}, weir.Charge{Key: "k", Limit: own, Cost: 1})
	taker.Take(context.Background(), []*weir.Act{a})
	if a.LimitOf(0) != own || a.LimitOf(1).String() != "70/min" || a.LimitOf(1).Name != "hourly" || a.Charges[1].Limit != own {
		t.Errorf("decided by %v and %v, the charge is %v", a.LimitOf(0), a.LimitOf(1), a.Charges[1])
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{Max: 2})
	later := clock.Now().Add(time.Hour)
	set(t, taker, "old", weir.PerSecond(1), later)
	taker.Replace([]override.Override{
		{Key: "ended", Until: clock.Now()},
		{Key: "not compiled", Limit: &weir.Limit{Count: 1, Period: time.Second}, Until: later},
		{Key: "a", Until: later},
		{Key: "b", Limit: weir.PerSecond(0).MustCompile(), Until: later},
		{Key: "too many", Until: later},
	})
	if list := taker.List(); len(list) != 2 || list[0].Key != "a" || list[1].Key != "b" {
		t.Errorf("%+v", list)
	}
	if _, found := taker.Get("old"); found {
		t.Error("the old one is still in force")
	}
	if o, found := taker.Get("b"); !found || o.Limit.Count != 0 {
		t.Errorf("got %+v, %v", o, found)
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
		"count":     taker.Set(override.Override{Key: "c", Limit: &weir.Limit{Count: -1, Period: time.Second}, Until: later}),
		"until":     taker.Set(override.Override{Key: "c", Until: clock.Now()}),
		"key":       taker.Set(override.Override{Key: string(make([]byte, weir.MaxKeyBytes+1)), Until: later}),
		"overrides": taker.Set(override.Override{Key: "c", Until: later}),
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
	limit, more := weir.PerHour(1000).MustCompile(), weir.PerHour(2000).MustCompile()
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			key := fmt.Sprint("k", i%2)
			for j := range 200 {
				// The others may have moved the clock past its end.
				_ = taker.Set(override.Override{Key: key, Limit: more, Until: clock.Now().Add(time.Duration(j+1) * time.Microsecond)})
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

// TestOverridesStayWhileOthersAreSet: no decision misses an override while there are more and
// more of others.
func TestOverridesStayWhileOthersAreSet(t *testing.T) {
	t.Parallel()
	taker, clock := place(override.Options{})
	limit, more := weir.PerHour(1000).MustCompile(), weir.PerHour(2000).MustCompile()
	set(t, taker, "k", *more, clock.Now().Add(time.Hour))
	var setting sync.WaitGroup
	var done atomic.Bool
	setting.Go(func() {
		defer done.Store(true)
		for i := range 2000 {
			set(t, taker, fmt.Sprint("other", i), *more, clock.Now().Add(time.Hour))
		}
	})
	for takes := 0; !done.Load(); takes++ {
		if got := charge(t, taker, "k", limit, 0).Limit.Count; got != 2000 {
			t.Fatalf("take %d: a limit of %d", takes, got)
		}
	}
	setting.Wait()
}

// TestCostsNothing: without overrides, a Take allocates nothing.
func TestCostsNothing(t *testing.T) {
	clock := storetest.NewClock()
	taker := override.Wrap(idle{}, override.Options{Now: clock.Now})
	acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerHour(10).MustCompile(), Cost: 1})}
	costless := func(when string) {
		if n := testing.AllocsPerRun(100, func() { taker.Take(context.Background(), acts) }); n != 0 {
			t.Errorf("%s: %v allocations", when, n)
		}
	}
	costless("before")
	set(t, taker, "k", weir.PerHour(5), clock.Now().Add(time.Second))
	clock.Advance(time.Second)
	taker.Take(context.Background(), acts)
	costless("after")
}

// idle is a Taker that does nothing, and so allocates nothing, whatever the race
// detector makes of pools.
type idle struct{}

func (idle) Take(context.Context, []*weir.Act) {}

// A customer gets more for a day, and a key that misbehaves nothing.
func ExampleLayer_Set() {
	limits := override.Wrap(memengine.New(memengine.Options{}), override.Options{})
	limiter, err := weir.NewLimiter(limits, "test", weir.PerMinute(10))
	if err != nil {
		panic(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	more, none := weir.PerMinute(500), weir.PerMinute(0)
	fmt.Println(limits.Set(override.Override{Key: "test:tenant:7", Limit: &more, Until: tomorrow}))
	fmt.Println(limits.Set(override.Override{Key: "test:tenant:8", Limit: &none, Until: tomorrow}))
	fmt.Println(limits.Set(override.Override{Key: "test:tenant:9", Until: tomorrow}))
	for _, key := range []string{"tenant:6", "tenant:7", "tenant:8", "tenant:9"} {
		d, err := limiter.AllowN(context.Background(), key, 10)
		fmt.Println(d.Allowed(), d.Remaining, err)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true 0 <nil>
	// true 490 <nil>
	// false 0 <nil>
	// true 1000000000 <nil>
}
