package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A latecomer is a store whose replies can be late.
type latecomer struct {
	weir.Taker
	mu   sync.Mutex // guards what follows
	late bool
	held []*storetest.LateAct
}

func newLatecomer(clock *storetest.Clock) *latecomer {
	return &latecomer{Taker: memengine.New(memengine.Options{Now: clock.Now})}
}

func (l *latecomer) Take(ctx context.Context, acts []*weir.Act) {
	l.mu.Lock()
	late := l.late
	l.mu.Unlock()
	if !late || acts[0].Charges[0].Key == storetest.ProbeKey {
		l.Taker.Take(ctx, acts)
		return
	}
	for _, a := range acts {
		h := storetest.NewLateAct(a)
		l.mu.Lock()
		l.held = append(l.held, h)
		l.mu.Unlock()
	}
}

// hold has the replies to what comes next be late.
func (l *latecomer) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
}

// land has all late replies come: those of the store, or an error instead.
func (l *latecomer) land(err error, applied bool) {
	l.mu.Lock()
	held := l.held
	l.late, l.held = false, nil
	l.mu.Unlock()
	for _, h := range held {
		h.Land(func(a *weir.Act) {
			if applied {
				a.Err = nil
				l.Taker.Take(context.Background(), []*weir.Act{a})
			}
			if err != nil {
				a.Err = err
			}
		})
	}
}

// An arrival is what becomes of a late reply.
type arrival struct {
	name    string
	before  int64 // units that others have
	err     error
	applied bool
	granted bool
}

var arrivals = []arrival{
	{"granted there", 0, nil, true, true},
	{"refused there", 8, nil, true, false},
	{"not applied", 0, weir.ErrNotApplied, false, false},
	{"lost, applied", 0, weir.ErrAmbiguous, true, true},
	{"lost, not applied", 0, weir.ErrAmbiguous, false, false},
}

// A telling is what callers are told meanwhile.
type telling struct {
	name      string
	policy    remote.Policy
	instances int
	granted   bool
	err       bool
}

var tellings = []telling{
	{"told granted", remote.Local, 1, true, false},
	{"told refused", remote.Local, 100, false, false},
	{"denied", remote.Deny, 1, false, false},
	{"told an error", remote.Error, 1, false, true},
	{"allowed", remote.Allow, 1, true, false},
}

// TestSettled: whatever callers were told and whatever the store did, the store's state
// agrees with what callers were told in the end.
func TestSettled(t *testing.T) {
	t.Parallel()
	algorithms := []weir.Algorithm{
		weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.SlidingCounter,
		weir.TokenBucket, weir.GCRA, weir.LeakyBucket, weir.Concurrency,
	}
	for _, algorithm := range algorithms {
		for _, id := range []string{"no id", "an id of its client's", "an id of the server's"} {
			if algorithm == weir.Concurrency && id == "no id" {
				continue
			}
			for _, told := range tellings {
				for _, there := range arrivals {
					t.Run(fmt.Sprint(algorithm, "/", id, "/", told.name, "/", there.name), inVirtualTime(func(t *testing.T) {
						settles(t, algorithm, id, told, there)
					}))
				}
			}
		}
	}
}

func settles(t *testing.T, algorithm weir.Algorithm, id string, told telling, there arrival) {
	t.Helper()
	capacity, cost := int64(10), int64(3)
	if algorithm == weir.Concurrency {
		capacity, cost, there.before = 1, 1, min(1, there.before)
	}
	clock := storetest.NewClock()
	store := newLatecomer(clock)
	taker := wrap(t, store, remote.Options{
		Calls: calls.Options{Responsive: responsive},
		Now:   clock.Now, Policy: func(*weir.Charge) remote.Policy { return told.policy }, Instances: func() int { return told.instances },
	})
	l := weir.Limit{Algorithm: algorithm, Count: capacity, Period: 24 * time.Hour}
	if algorithm == weir.RollingWindow {
		l.Buckets = 4
	}
	wait := time.Duration(0)
	if algorithm == weir.LeakyBucket {
		l.Burst, wait = capacity, 24*time.Hour
	}
	limit := l.MustCompile()
	if there.before > 0 {
		others := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: there.before})
		others.ID, others.MaxWait, others.Scope.Owner = "others", wait, others.Charges[0].Key
		if store.Take(t.Context(), []*weir.Act{others}); others.Err != nil || !others.Allowed() {
			t.Fatal(others.Decisions, others.Err)
		}
	}
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: cost})
	a.MaxWait = wait
	if id != "no id" {
		a.ID, a.NewID, a.Scope.Owner = "id", id == "an id of the server's", a.Charges[0].Key
	}
	store.hold()
	taker.Take(t.Context(), []*weir.Act{a})
	if a.Err != nil != (told.err || a.ID != "") || a.Err == nil && a.Allowed() != told.granted {
		t.Fatalf("told %+v, %v", a.Decisions, a.Err)
	}
	store.land(there.err, there.applied)
	testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := taker.Stop(ctx); err != nil {
		t.Error(err)
	}
	want := min(capacity, owedBy(told, there, id, cost)+there.before)
	if n := used(t, store, "k", limit); n != want {
		t.Errorf("%d charged, want %d; %+v", n, want, taker.Stats())
	}
	doubtful := int64(0)
	if id == "no id" && told.policy == remote.Local && told.granted && errors.Is(there.err, weir.ErrAmbiguous) {
		doubtful = cost
	}
	if s := taker.Stats(); s.Doubtful != doubtful {
		t.Errorf("%d in doubt, want %d", s.Doubtful, doubtful)
	}
}

// owedBy is how many units a caller's charge has to have in the store.
func owedBy(told telling, there arrival, id string, cost int64) int64 {
	charged := int64(0)
	if there.granted {
		charged = cost
	}
	switch {
	case id == "no id" && (told.policy == remote.Allow || errors.Is(there.err, weir.ErrAmbiguous)):
		return charged
	case id == "no id" && told.granted:
		return cost
	}
	return 0
}

// TestLateRecordsAndParts: a record that was answered here counts once, and a take of up
// to so many units as much as its caller was told.
func TestLateRecordsAndParts(t *testing.T) {
	t.Parallel()
	for _, there := range arrivals {
		if errors.Is(there.err, weir.ErrAmbiguous) {
			continue
		}
		t.Run(there.name, inVirtualTime(func(t *testing.T) {
			clock := storetest.NewClock()
			store := newLatecomer(clock)
			taker := wrap(t, store, remote.Options{Now: clock.Now, Calls: calls.Options{Responsive: responsive}})
			limit := weir.PerDay(100).MustCompile()
			store.hold()
			record := storetest.NewAct(weir.Charge{Key: "recorded", Limit: limit, Cost: 4})
			record.Kind = acts.KindRecord
			part := storetest.NewAct(weir.Charge{Key: "part", Limit: limit, Cost: 1, UpTo: 20})
			taker.Take(t.Context(), []*weir.Act{record, part})
			if record.Err != nil || part.Err != nil || part.Decisions[0].Granted != 20 {
				t.Fatalf("%v; %+v, %v", record.Err, part.Decisions, part.Err)
			}
			others := storetest.NewAct(weir.Charge{Key: "part", Limit: limit, Cost: 85})
			store.Taker.Take(t.Context(), []*weir.Act{others})
			store.land(there.err, there.applied)
			testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
			if n := used(t, store, "recorded", limit); n != 4 {
				t.Errorf("%d recorded", n)
			}
			// As many as there are, for it was told more than there were.
			if n := used(t, store, "part", limit); n != 100 {
				t.Errorf("%d charged", n)
			}
		}))
	}
}

// TestAmendmentsKeepTheirOrder: what a caller was told later is sent when the reply to
// what it was told before has come.
func TestAmendmentsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newLatecomer(clock)
	away := newFlaky(clock)
	away.Taker = store
	taker := wrap(t, away, remote.Options{Now: clock.Now})
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour}.MustCompile(), Cost: 1}
	away.fail(weir.ErrNotApplied)
	if a := about(taker, acts.KindTake, "holder", room); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	store.hold()
	away.fail(nil)
	out := func() int { store.mu.Lock(); defer store.mu.Unlock(); return len(store.held) }
	testserver.Eventually(t, "an amendment is in flight", func() bool { return out() == 1 })
	if a := about(taker, acts.KindRelease, "holder", room); a.Err != nil || a.Decisions[0].Granted != 1 {
		t.Errorf("%+v, %v", a.Decisions, a.Err)
	}
	time.Sleep(30 * time.Millisecond)
	if out() != 1 {
		t.Errorf("%d amendments in flight", out())
	}
	store.land(nil, true)
	testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	if n := used(t, store, "k", room.Limit); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestStoreIsToldFirst: the first decision of the store after an outage knows what was
// granted without it.
func TestStoreIsToldFirst(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now})
	limit := weir.PerDay(10).MustCompile()
	for i := range 100 {
		plain, named := weir.Charge{Key: fmt.Sprint("plain", i), Limit: limit, Cost: 10}, weir.Charge{Key: fmt.Sprint("named", i), Limit: limit, Cost: 10}
		store.fail(weir.ErrNotApplied)
		if a, b := take(taker, plain), about(taker, acts.KindTake, "id", named); !a.Allowed() || !b.Allowed() {
			t.Fatalf("%+v, %+v", a.Decisions, b.Decisions)
		}
		back(t, store, taker)
		plain.Cost, named.Cost = 1, 1
		if a, b := take(taker, plain), take(taker, named); a.Allowed() || b.Allowed() || a.Err != nil || b.Err != nil {
			t.Fatalf("round %d: %+v, %+v", i, a.Decisions, b.Decisions)
		}
	}
}

// TestReplyThatHasCome is taken instead of a decision by policy.
func TestReplyThatHasCome(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newLatecomer(clock)
	arrived := acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
		store.hold()
		store.Take(ctx, acts)
		go store.land(nil, true)
	})
	front := wrap(t, arrived, remote.Options{Now: clock.Now})
	a := take(front, weir.Charge{Key: "k", Limit: weir.PerDay(10).MustCompile(), Cost: 1})
	if a.Err != nil || a.Decisions[0].Source != acts.SourceStore || front.Stats().Local != 0 {
		t.Errorf("%+v, %v", a.Decisions, a.Err)
	}
}
