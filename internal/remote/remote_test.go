package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A pool of go-redis whose server is away looks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is for what must happen sooner or later.
const patience = 20 * time.Second

// stop waits for what a Taker does in the background.
func stop(t testing.TB, taker *remote.Remote) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// What is owed to a store that is away stays so.
		_ = taker.Stop(ctx)
	})
}

func wrap(t testing.TB, next weir.Taker, o remote.Options) *remote.Remote {
	t.Helper()
	taker := remote.New(store(next), o)
	stop(t, taker)
	return taker
}

// store is a Taker as a store elsewhere.
func store(t weir.Taker) calls.Store {
	if s, is := t.(calls.Store); is {
		return s
	}
	return storetest.Alone{Taker: t}
}

// A flaky store is a store in memory that can be away.
type flaky struct {
	weir.Taker
	err   atomic.Pointer[error]
	calls atomic.Int64
	mu    sync.Mutex
	keys  map[string]int64 // units recorded
}

func newFlaky(clock *storetest.Clock) *flaky {
	o := memengine.Options{}
	if clock != nil {
		o.Now = clock.Now
	}
	return &flaky{Taker: memengine.New(o), keys: map[string]int64{}}
}

func (f *flaky) fail(err error) {
	if err == nil {
		f.err.Store(nil)
		return
	}
	f.err.Store(&err)
}

func (f *flaky) Take(ctx context.Context, all []*weir.Act) {
	f.calls.Add(1)
	if err := f.err.Load(); err != nil {
		for _, a := range all {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, *err)
			if errors.Is(*err, weir.ErrNotApplied) {
				a.Err = fmt.Errorf("%w: %w", a.Err, &outage.Error{Cause: outage.ErrSilent})
			}
		}
		return
	}
	f.Taker.Take(ctx, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range all {
		if a.Kind == acts.KindRecord && a.Err == nil {
			f.keys[a.Charges[0].Key] += a.Charges[0].Cost
		}
	}
}

func (f *flaky) recorded(key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key]
}

// back has the store decide again, and waits until its instances know.
func back(t testing.TB, store *flaky, instances ...*remote.Remote) {
	t.Helper()
	store.fail(nil)
	for _, taker := range instances {
		testserver.Eventually(t, "the store is reachable", func() bool { return !unreachable(taker) })
	}
}

// unreachable reports whether a node of the store below is out.
func unreachable(taker *remote.Remote) bool {
	return len(taker.Outages()) > 0
}

var perHour = weir.PerHour(10).MustCompile()

func take(taker weir.Taker, charges ...weir.Charge) *weir.Act {
	a := storetest.NewAct(charges...)
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

// openUp makes the store unreachable.
func openUp(t testing.TB, taker *remote.Remote, store *flaky, err error) {
	t.Helper()
	store.fail(err)
	testserver.Eventually(t, "the store is unreachable", func() bool {
		taker.Ask(context.Background(), []*weir.Act{storetest.NewAct(weir.Charge{Key: "any", Limit: perHour})})
		return unreachable(taker)
	})
}

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return wrap(t, memory(t, clock), remote.Options{Now: clock.Now, Patience: time.Minute})
	})
}

func policies(c *weir.Charge) remote.Policy {
	switch c.Key[0] {
	case 'a':
		return remote.Allow
	case 'd':
		return remote.Deny
	case 'e':
		return remote.Error
	}
	return remote.Local
}

// TestPolicies: each policy by itself and beside others, as the contract says.
func TestPolicies(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now, Policy: policies})
	openUp(t, taker, store, weir.ErrNotApplied)
	limit := weir.PerHour(2).MustCompile()
	granted := func(s weir.Source, remaining int64) weir.Decision {
		return weir.Decision{Outcome: weir.Granted, Source: s, Granted: 1, Remaining: remaining}
	}
	closed := weir.Decision{Outcome: weir.Refused, Source: acts.SourceFailClosed, RetryAfter: remote.RetryAfter}
	for _, c := range []struct {
		keys string
		want []weir.Decision // nil: an error
	}{
		{"a", []weir.Decision{granted(acts.SourceFailOpen, 2)}},
		{"d", []weir.Decision{closed}},
		{"e", nil},
		{"l", []weir.Decision{granted(acts.SourceFallback, 1)}},
		{"al", []weir.Decision{granted(acts.SourceFailOpen, 2), granted(acts.SourceFallback, 0)}},
		{"al", []weir.Decision{
			{Outcome: weir.NotCharged, Source: acts.SourceFailOpen, Remaining: 2},
			{Outcome: weir.Refused, Source: acts.SourceFallback, RetryAfter: 30 * time.Minute},
		}},
		{"ad", []weir.Decision{{}, closed}},
		{"ld", []weir.Decision{{}, closed}},
		{"ade", nil},
		{"le", nil},
	} {
		var charges []weir.Charge
		for _, key := range c.keys {
			charges = append(charges, weir.Charge{Key: string(key), Limit: limit, Cost: 1})
		}
		a := take(taker, charges...)
		if c.want == nil {
			if !errors.Is(a.Err, weir.ErrNotApplied) {
				t.Errorf("%s: %+v, %v", c.keys, a.Decisions, a.Err)
			}
			continue
		}
		for i, d := range a.Decisions {
			d.At, d.ResetAfter = time.Time{}, 0
			if a.Err != nil || d != c.want[i] {
				t.Errorf("%s, charge %d: %+v, %v, want %+v", c.keys, i, d, a.Err, c.want[i])
			}
		}
	}
}

// TestAnswersThatNeedNoStore are the same with and without one.
func TestAnswersThatNeedNoStore(t *testing.T) {
	t.Parallel()
	store := newFlaky(nil)
	taker := wrap(t, store, remote.Options{Policy: policies})
	openUp(t, taker, store, weir.ErrMisconfigured)
	for _, key := range []string{"a", "d", "e", "l"} {
		none := weir.PerHour(0).MustCompile()
		if a := take(taker, weir.Charge{Key: key, Limit: none, Cost: 1}); a.Err != nil || a.Decisions[0].Source != acts.SourceLimit {
			t.Errorf("%s, count 0: %+v, %v", key, a.Decisions, a.Err)
		}
		a := storetest.NewAct(weir.Charge{Key: key, Limit: none, Cost: -1})
		if weir.TakeValid(t.Context(), []*weir.Act{a}, taker.Take); !errors.Is(a.Err, weir.ErrInvalid) {
			t.Errorf("%s, negative: %v", key, a.Err)
		}
	}
	if a := take(taker, weir.Charge{Key: "d", Limit: weir.PerHour(1).MustCompile()}); a.Err != nil || !a.Allowed() || a.Decisions[0].Remaining != 0 {
		t.Errorf("a look under deny: %+v, %v", a.Decisions, a.Err)
	}
}

// TestClasses: every class but invalid is a failure, and what the caller gets says
// by its class what is known.
func TestClasses(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(10).MustCompile()
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured, weir.ErrBackend} {
		store := newFlaky(nil)
		taker := wrap(t, store, remote.Options{Policy: policies})
		store.fail(class)
		if a := take(taker, weir.Charge{Key: "e", Limit: limit, Cost: 1}); !errors.Is(a.Err, class) {
			t.Errorf("%v: told as %v", class, a.Err)
		}
	}
	store := newFlaky(nil)
	taker := wrap(t, store, remote.Options{})
	store.fail(weir.ErrUnknownID)
	for range 100 {
		if a := take(taker, weir.Charge{Key: "l", Limit: limit, Cost: 1}); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Fatalf("an answer became %+v, %v", a.Decisions, a.Err)
		}
	}
}

// TestChargesBack: what was granted while the store was away is charged to the
// unit once it is back, at most one full drain, and not what counts no more.
func TestChargesBack(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []weir.Algorithm{
		weir.GCRA, weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.TokenBucket, weir.SlidingCounter, weir.LeakyBucket,
	} {
		clock := storetest.NewClock()
		store := newFlaky(clock)
		taker := wrap(t, store, remote.Options{Now: clock.Now})
		limit := weir.Limit{Algorithm: algorithm, Count: 100, Period: time.Hour}.MustCompile()
		charge := func(key string, cost int64) *weir.Act {
			return take(taker, weir.Charge{Key: key, Limit: limit, Cost: cost})
		}
		charge("k", 30)
		openUp(t, taker, store, weir.ErrNotApplied)
		for _, cost := range []int64{5, 7} {
			if a := charge("k", cost); !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback {
				t.Errorf("%v: %+v, %v", limit, a.Decisions, a.Err)
			}
		}
		if d := charge("k", 0).Decisions[0]; d.Remaining != 58 {
			t.Errorf("%v: %d remain here, want what the store had left", limit, d.Remaining)
		}
		charge("other", 1)
		store.fail(nil)
		testserver.Eventually(t, "charged back", func() bool { return taker.Stats().Outstanding == 0 })
		if store.recorded("k") != 12 || store.recorded("other") != 1 || taker.Stats().Recorded != 13 || taker.Stats().Doubtful != 0 {
			t.Errorf("%v: %d and %d recorded, %+v", limit, store.recorded("k"), store.recorded("other"), taker.Stats())
		}
		if d := charge("k", 0).Decisions[0]; d.Remaining != 58 || d.Source != acts.SourceStore {
			t.Errorf("%v: then %+v", limit, d)
		}
		openUp(t, taker, store, weir.ErrNotApplied)
		charge("k", 1)
		clock.Advance(3 * time.Hour)
		testserver.Eventually(t, "forgotten", func() bool { return taker.Stats().Outstanding == 0 })
		store.fail(nil)
		if store.recorded("k") != 12 {
			t.Errorf("%v: charged what counts no more: %d", limit, store.recorded("k"))
		}
	}
}

// TestHalfLoadAfterAnOutage: callers at half of the limit are refused nothing, however long the
// outage was. A log or ring has half of the units that still count, as it keeps them for longer.
func TestHalfLoadAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []weir.Algorithm{
		weir.GCRA, weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.TokenBucket, weir.SlidingCounter, weir.LeakyBucket,
	} {
		for _, periods := range []time.Duration{1, 4, 20} { // in halves
			clock := storetest.NewClock()
			store := newFlaky(clock)
			taker := wrap(t, store, remote.Options{Now: clock.Now})
			charge := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: algorithm, Count: 60, Period: time.Minute}.MustCompile(), Cost: 1}
			half := func(d time.Duration) (refused int) {
				for range d / (2 * time.Second) {
					if clock.Advance(2 * time.Second); !take(taker, charge).Allowed() {
						refused++
					}
				}
				return refused
			}
			openUp(t, taker, store, weir.ErrNotApplied)
			if n := half(periods * 30 * time.Second); n > 0 {
				t.Errorf("%v: %d refused in the outage", algorithm, n)
			}
			store.fail(nil)
			testserver.Eventually(t, "recorded", func() bool { return taker.Stats().Outstanding == 0 })
			if n := store.recorded("k"); (algorithm == weir.SlidingLog || algorithm == weir.RollingWindow) && n != map[time.Duration]int64{1: 12, 4: 16, 20: 16}[periods] {
				t.Errorf("%v: %d recorded after %d halves of the period", algorithm, n, periods)
			}
			if n := half(3 * time.Minute); n > 0 {
				t.Errorf("%v: %d refused after an outage of %d halves of the period", algorithm, n, periods)
			}
		}
	}
}

// TestSingleFailures are recorded without an outage, unless the store may have made the charge.
func TestSingleFailures(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(100).MustCompile()
	for class, want := range map[error]remote.Stats{
		weir.ErrNotApplied: {Recorded: 3}, weir.ErrMisconfigured: {Recorded: 3},
		weir.ErrAmbiguous: {Doubtful: 3}, weir.ErrBackend: {Doubtful: 3},
	} {
		store := newFlaky(nil)
		taker := wrap(t, store, remote.Options{})
		store.fail(class)
		if a := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 3}); !a.Allowed() {
			t.Errorf("%v: %+v, %v", class, a.Decisions, a.Err)
		}
		store.fail(nil)
		testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
		if s := taker.Stats(); s.Recorded != want.Recorded || s.Doubtful != want.Doubtful {
			t.Errorf("%v: %d recorded, %d doubtful", class, s.Recorded, s.Doubtful)
		}
	}
}

// losing is a store that loses its replies to acts of a kind.
func losing(store weir.Taker, kind weir.Kind) weir.Taker {
	return acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
		store.Take(ctx, all)
		for _, a := range all {
			if a.Kind == kind {
				a.Err = weir.ErrAmbiguous
			}
		}
	})
}

// TestRecordsAreSentOnce: the store records what was granted without it, and its reply is lost.
func TestRecordsAreSentOnce(t *testing.T) {
	t.Parallel()
	store := newFlaky(nil)
	taker := wrap(t, losing(store, acts.KindRecord), remote.Options{})
	store.fail(weir.ErrNotApplied)
	take(taker, weir.Charge{Key: "k", Limit: perHour, Cost: 3})
	store.fail(nil)
	testserver.Eventually(t, "recorded", func() bool { return taker.Stats().Outstanding == 0 })
	if s := taker.Stats(); store.recorded("k") != 3 || s.Recorded != 0 || s.Doubtful != 3 {
		t.Errorf("%d recorded, %+v", store.recorded("k"), s)
	}
}

// TestShare: K instances grant no more than K shares, at least 1 each, whatever
// became of the limit's numbers.
func TestShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit     weir.Limit
		instances int
		share     int
	}{
		{weir.PerHour(100), 3, 33},
		{weir.PerHour(2), 3, 1},
		{weir.PerHour(100), 0, 100},
		{weir.Limit{Count: 100, Burst: 10, Period: time.Hour}, 4, 2},
		{weir.Limit{Algorithm: weir.Concurrency, Count: 10, Period: time.Hour}, 3, 3},
		{weir.Limit{Algorithm: weir.TokenBucket, Count: 999_983, Burst: 30, Period: time.Hour}, 7, 4},
		{weir.Limit{Algorithm: weir.FixedWindow, Count: 12, Period: 24 * time.Hour, TimeZone: "Europe/Paris"}, 5, 2},
	} {
		store := newFlaky(storetest.NewClock())
		clock := storetest.NewClock()
		taker := wrap(t, store, remote.Options{Instances: func() int { return c.instances }, Now: clock.Now})
		openUp(t, taker, store, weir.ErrNotApplied)
		limit, granted := c.limit.MustCompile(), 0
		for i := range 200 {
			a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
			a.ID, a.Scope.Owner = fmt.Sprint(i), a.Charges[0].Key
			if taker.Take(context.Background(), []*weir.Act{a}); a.Allowed() {
				granted++
			}
		}
		if granted != c.share {
			t.Errorf("%v of one of %d: granted %d, want %d", limit, c.instances, granted, c.share)
		}
	}
}

// TestOddLimits: a share of any valid limit is valid.
func TestOddLimits(t *testing.T) {
	t.Parallel()
	store := newFlaky(nil)
	var instances atomic.Int64
	taker := wrap(t, store, remote.Options{Instances: func() int { return int(instances.Load()) }})
	openUp(t, taker, store, weir.ErrNotApplied)
	for id := range weir.Concurrency {
		for _, l := range []weir.Limit{
			{Count: 1_000_000_000, Period: 366 * 24 * time.Hour},
			{Count: 1_000_000_000, Period: time.Millisecond},
			{Count: 1, Period: 366 * 24 * time.Hour},
			{Count: 999_999_937, Period: 999_983 * time.Millisecond},
		} {
			l.Algorithm = id
			limit, err := l.Compile()
			for _, n := range []int64{2, 3, 7, 1000, 1_000_003} {
				if instances.Store(n); err != nil {
					continue
				}
				if a := take(taker, weir.Charge{Key: fmt.Sprint(id, l, n), Limit: limit, Cost: 1}); !a.Allowed() {
					t.Errorf("%v, one of %d: %+v, %v", limit, n, a.Decisions, a.Err)
				}
			}
		}
	}
}

// TestStop: while the store is away it says what is lost, and afterwards every take
// asks the store; once it is back it charges back what is left.
func TestStop(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(100).MustCompile()
	for _, back := range []bool{false, true} {
		store := newFlaky(nil)
		taker := remote.New(storetest.Alone{Taker: store}, remote.Options{})
		store.fail(weir.ErrNotApplied)
		if !back {
			openUp(t, taker, store, weir.ErrNotApplied)
		}
		take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 3})
		if back {
			store.fail(nil)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := taker.Stop(ctx)
			if cancel(); (err == nil) != back || back != (store.recorded("k") == 3) {
				t.Errorf("back %v: %v, %d recorded", back, err, store.recorded("k"))
			}
		}
		store.fail(nil)
		if a := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 1}); a.Err != nil || a.Decisions[0].Source != acts.SourceStore {
			t.Errorf("afterwards: %+v, %v", a.Decisions, a.Err)
		}
	}
}

// TestKeep has two classes share a budget through an outage: neither the last known state
// nor the local shares may lose what one of them keeps free.
func TestKeep(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now, Instances: func() int { return 4 }})
	limit := weir.PerHour(100).MustCompile()
	granted := func(key string, keep int64) (n int) {
		for range 200 {
			if take(taker, weir.Charge{Key: key, Limit: limit, Cost: 1, Keep: keep}).Allowed() {
				n++
			}
		}
		return n
	}
	if n := granted("known", 60); n != 40 {
		t.Fatalf("granted %d of 100 - 60", n)
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	if n := granted("known", 0); n != 15 {
		t.Errorf("granted %d of a quarter of the 60 that were kept free", n)
	}
	if n := granted("other", 42); n != 25-11 {
		t.Errorf("granted %d of 25, of which 11 stay free", n)
	}
	if n := granted("other", 0); n != 11 {
		t.Errorf("granted %d of the 11 that were kept free", n)
	}
	larger := weir.Charge{Key: "other", Limit: limit, Cost: 1, Keep: 99}
	if d := take(taker, larger).Decisions[0]; d.RetryAfter == weir.Never {
		t.Errorf("%+v", d)
	}
}

// TestAlternatives has acts with alternatives decided during an outage, and the store charged
// for those that were granted.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Policy: policies, Now: clock.Now})
	limit := weir.PerHour(10).MustCompile()
	alternatives := func(first, second string) []weir.Charge {
		return []weir.Charge{
			{Key: first, HashTag: "tag", Limit: limit, Cost: 6},
			{Key: second, HashTag: "tag", Limit: limit, Cost: 6, Alt: 1},
		}
	}
	want := func(a *weir.Act, first, second weir.Outcome) {
		t.Helper()
		if a.Err != nil || a.Decisions[0].Outcome != first || a.Decisions[1].Outcome != second {
			t.Errorf("%v: %v, %v; want %v, %v", a.Charges, a.Decisions, a.Err, first, second)
		}
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	want(take(taker, alternatives("l1", "l2")...), weir.Granted, weir.NotEvaluated)
	second := storetest.NewAct(alternatives("l1", "l2")...)
	second.ID, second.Scope.Owner = "second", second.Charges[0].Key
	taker.Take(t.Context(), []*weir.Act{second})
	want(second, weir.NotEvaluated, weir.Granted)
	want(take(taker, alternatives("l1", "l2")...), weir.Refused, weir.Refused)
	want(take(taker, alternatives("a1", "a2")...), weir.Granted, weir.NotEvaluated)
	want(take(taker, alternatives("d1", "d2")...), weir.Refused, weir.Refused)
	want(take(taker, alternatives("a1", "l3")...), weir.Granted, weir.NotEvaluated)
	if a := take(taker, alternatives("l4", "d4")...); a.Allowed() {
		t.Errorf("one alternative is to be refused: %v", a.Decisions)
	}
	settle := storetest.NewAct(alternatives("l1", "l2")...)
	settle.Kind, settle.ID, settle.Scope.Owner = acts.KindSettle, "second", settle.Charges[0].Key
	settle.Charges[0].Cost, settle.Charges[1].Cost = 2, 2
	taker.Take(t.Context(), []*weir.Act{settle})
	want(settle, weir.NotEvaluated, weir.Granted)
	store.fail(nil)
	testserver.Eventually(t, "the store is reachable", func() bool { return !unreachable(taker) })
	for _, key := range []string{"l1", "l2"} {
		// The store is charged before it decides.
		take(taker, weir.Charge{Key: key, HashTag: "tag", Limit: limit})
	}
	for key, left := range map[string]int64{"l1": 4, "l2": 8} {
		if d := take(store, weir.Charge{Key: key, HashTag: "tag", Limit: limit}).Decisions[0]; d.Remaining != left {
			t.Errorf("%s: %d remain in the store, want %d", key, d.Remaining, left)
		}
	}
}

// TestSettlingSurvivesAPanic: a store that panics in the background ends nothing, and is
// told again as far as that is safe.
func TestSettlingSurvivesAPanic(t *testing.T) {
	t.Parallel()
	store := newFlaky(nil)
	var panics atomic.Int64
	next := acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
		if all[0].Kind == acts.KindAmend && panics.Add(1) < 3 {
			panic("broken")
		}
		store.Take(ctx, all)
	})
	taker := wrap(t, next, remote.Options{})
	limit := weir.PerDay(100).MustCompile()
	store.fail(weir.ErrNotApplied)
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 7})
	a.ID, a.Scope.Owner = "one", a.Charges[0].Key
	if taker.Take(t.Context(), []*weir.Act{a}); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	if n := used(t, store, "k", limit); n != 7 || panics.Load() != 3 {
		t.Errorf("%d charged after %d panics", n, panics.Load()-1)
	}
}

// TestReconcilingLeavesTheStoreItsTime: recording what was granted in an outage takes a fifth of
// the store's time.
func TestReconcilingLeavesTheStoreItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 10 * time.Millisecond // of a call
		store := newFlaky(nil)
		var began []time.Time
		slow := acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
			if all[0].Kind == acts.KindRecord && store.err.Load() == nil {
				began = append(began, time.Now())
				time.Sleep(each)
			}
			store.Take(ctx, all)
		})
		taker := wrap(t, slow, remote.Options{Calls: calls.Options{Responsive: responsive}})
		openUp(t, taker, store, weir.ErrNotApplied)
		for i := range 1000 {
			take(taker, weir.Charge{Key: fmt.Sprint(i), Limit: perHour, Cost: 1})
		}
		store.fail(nil)
		testserver.Eventually(t, "recorded", func() bool { return taker.Stats().Outstanding == 0 })
		last := len(began) - 1
		if took := began[last].Sub(began[0]); last < 10 || took < 5*each*time.Duration(last) {
			t.Errorf("%d calls in %v", last+1, took)
		}
	})
}
