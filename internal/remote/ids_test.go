package remote_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// about does something to an id.
func about(taker weir.Taker, kind weir.Kind, id string, c weir.Charge) *weir.Act {
	a := storetest.NewAct(c)
	a.Kind, a.ID, a.Scope.Owner = kind, id, a.Charges[0].Key
	taker.Take(context.Background(), []*weir.Act{a})
	return a
}

// used is what a store has charged of a limit.
func used(t testing.TB, store weir.Taker, key string, limit *weir.Limit) int64 {
	t.Helper()
	a := take(store, weir.Charge{Key: key, Limit: limit})
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return limit.Capacity() - a.Decisions[0].Remaining
}

// TestIDsInAnOutage: a take with an id that was decided here happens once, is settled
// and released here, and becomes the store's with what its caller was told last.
func TestIDsInAnOutage(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now})
	limit := weir.PerDay(100).MustCompile()
	charge := func(cost int64) weir.Charge { return weir.Charge{Key: "k", Limit: limit, Cost: cost} }
	about(taker, acts.KindTake, "before", charge(10))
	openUp(t, taker, store, weir.ErrNotApplied)
	if a := about(taker, acts.KindRefund, "before", charge(1)); !acts.Kept(a.Err) {
		t.Errorf("a refund of what the store knows: %+v, %v", a.Decisions, a.Err)
	}
	for _, kind := range []weir.Kind{acts.KindSettle, acts.KindRelease, acts.KindRenew} {
		if a := about(taker, kind, "before", charge(1)); !errors.Is(a.Err, weir.ErrNotApplied) {
			t.Errorf("%v of what the store knows: %+v, %v", kind, a.Decisions, a.Err)
		}
	}
	if a := about(taker, acts.KindReset, "", charge(0)); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("a reset: %v", a.Err)
	}
	for range 2 {
		if a := about(taker, acts.KindTake, "kept", charge(20)); !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback || a.Decisions[0].Remaining != 70 {
			t.Errorf("taken: %+v, %v", a.Decisions, a.Err)
		}
	}
	about(taker, acts.KindTake, "settled", charge(20))
	about(taker, acts.KindTake, "released", charge(5))
	if a := about(taker, acts.KindSettle, "settled", charge(23)); a.Err != nil || a.Decisions[0].Granted != 23 {
		t.Errorf("settled: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRelease, "released", charge(0)); a.Err != nil || a.Decisions[0].Granted != 5 {
		t.Errorf("released: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	if n := used(t, store, "k", limit); n != 9+20+23 {
		t.Errorf("%d charged, want 52", n)
	}
	for _, at := range []weir.Taker{taker, store} { // here, and from any other instance
		if a := about(at, acts.KindTake, "kept", charge(20)); !a.Allowed() || a.Decisions[0].Granted != 20 || a.Decisions[0].Source != acts.SourceStore {
			t.Errorf("repeated: %+v, %v", a.Decisions, a.Err)
		}
	}
	if a := about(taker, acts.KindRelease, "kept", charge(0)); a.Err != nil || a.Decisions[0].Granted != 20 {
		t.Errorf("released afterwards: %+v, %v", a.Decisions, a.Err)
	}
	if n := used(t, store, "k", limit); n != 32 {
		t.Errorf("%d charged in the end, want 32", n)
	}
}

// TestReloadInAnOutage: a take that was decided here is settled here as it was taken, after
// its limits have changed, and the store charges what remains.
func TestReloadInAnOutage(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now})
	limit := weir.PerDay(100).MustCompile()
	act := func(kind weir.Kind, cost int64, keys ...string) *weir.Act {
		a := storetest.NewAct()
		for _, key := range keys {
			a.Charges = append(a.Charges, weir.Charge{Key: key, HashTag: "tag", Limit: limit, Cost: cost})
		}
		a.Kind, a.ID, a.Decisions, a.Scope.Owner = kind, "id", make([]weir.Decision, len(keys)), a.Charges[0].Key
		a.Scope = algo.Scope{Owner: "caller", Asks: fmt.Sprint(cost)}
		taker.Take(context.Background(), []*weir.Act{a})
		return a
	}
	openUp(t, taker, store, weir.ErrNotApplied)
	if a := act(acts.KindTake, 20, "old", "kept"); !a.Allowed() {
		t.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindTake, 20, "new", "kept"); !a.Allowed() || a.Decisions[1].Granted != 20 || a.Decisions[0].Outcome != weir.NotEvaluated {
		t.Errorf("repeated: %+v, %v", a.Decisions, a.Err)
	}
	if a := act(acts.KindSettle, 5, "new", "kept"); a.Err != nil || a.Decisions[1].Granted != 5 {
		t.Errorf("settled: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	for key, want := range map[string]int64{"old": 20, "kept": 5, "new": 0} {
		a := take(store, weir.Charge{Key: key, HashTag: "tag", Limit: limit})
		if n := limit.Capacity() - a.Decisions[0].Remaining; n != want {
			t.Errorf("%d of %s are charged, want %d", n, key, want)
		}
	}
	if a := act(acts.KindRelease, 0, "new"); !errors.Is(a.Err, weir.ErrSettled) {
		t.Errorf("released: %v", a.Err)
	}
}

// TestSlots: holders that came in during an outage have their slots in the store
// afterwards, above the limit if need be, at every instance.
func TestSlots(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	const instances, n = 2, 4
	room := weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: n, Period: time.Minute}.MustCompile(), Cost: 1}
	var fleet []*remote.Remote
	for range instances {
		fleet = append(fleet, wrap(t, store, remote.Options{Now: clock.Now, Instances: func() int { return instances }}))
	}
	if !about(fleet[0], acts.KindTake, "before", room).Allowed() {
		t.Fatal("no room at first")
	}
	store.fail(weir.ErrNotApplied)
	var here []string
	for i, taker := range fleet {
		for j := range n {
			if id := fmt.Sprintf("here%d%d", i, j); about(taker, acts.KindTake, id, room).Allowed() {
				here = append(here, id)
			}
		}
	}
	// The first has heard that three are left, the second nothing.
	if want := []string{"here00", "here10", "here11"}; !slices.Equal(here, want) {
		t.Fatalf("slots given: %v, want %v", here, want)
	}
	if a := about(fleet[0], acts.KindRenew, "here00", room); a.Err != nil || a.Decisions[0].Source != acts.SourceFallback {
		t.Errorf("renewed meanwhile: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(fleet[1], acts.KindRelease, "here11", room); a.Err != nil || a.Decisions[0].Granted != 1 {
		t.Errorf("released meanwhile: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	for _, taker := range fleet {
		testserver.Eventually(t, "settled", func() bool { return taker.Stats().Outstanding == 0 })
	}
	for _, id := range []string{"before", "here00", "here10"} {
		for i := range fleet {
			if a := about(fleet[i], acts.KindRenew, id, room); a.Err != nil || a.Decisions[0].Source != acts.SourceStore {
				t.Errorf("renew %s at %d: %+v, %v", id, i, a.Decisions, a.Err)
			}
		}
	}
	if a := about(fleet[0], acts.KindTake, "fourth", room); !a.Allowed() || a.Decisions[0].Remaining != 0 {
		t.Errorf("room for a fourth: %+v, %v", a.Decisions, a.Err)
	}
	for i, id := range []string{"here00", "fourth", "before", "here10"} {
		if a := about(fleet[i%2], acts.KindRelease, id, room); a.Err != nil || a.Decisions[0].Granted != 1 {
			t.Errorf("release %s: %+v, %v", id, a.Decisions, a.Err)
		}
	}
	if a := take(store, weir.Charge{Key: "k", Limit: room.Limit}); a.Decisions[0].Remaining != n {
		t.Errorf("%d of %d slots left in the end", a.Decisions[0].Remaining, n)
	}
}

// TestRefundsAndRecords without ids are done here as far as there is something.
func TestRefundsAndRecords(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := newFlaky(clock)
	taker := wrap(t, store, remote.Options{Now: clock.Now, Policy: policies})
	limit := weir.PerDay(10).MustCompile()
	openUp(t, taker, store, weir.ErrNotApplied)
	d := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 6}).Decisions[0]
	if a := about(taker, acts.KindRefund, "", weir.Charge{Key: "k", Limit: limit, Cost: 4, At: d.At.UnixMicro()}); a.Err != nil || a.Decisions[0].Granted != 4 {
		t.Errorf("refunded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRecord, "", weir.Charge{Key: "k", Limit: limit, Cost: 3}); a.Err != nil || a.Decisions[0].Remaining != 5 {
		t.Errorf("recorded: %+v, %v", a.Decisions, a.Err)
	}
	if a := about(taker, acts.KindRecord, "", weir.Charge{Key: "allowed", Limit: limit, Cost: 3}); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("recorded under allow: %+v, %v", a.Decisions, a.Err)
	}
	store.fail(nil)
	testserver.Eventually(t, "charged back", func() bool { return taker.Stats().Outstanding == 0 })
	if store.recorded("k") != 5 {
		t.Errorf("%d charged back, want 6 - 4 + 3", store.recorded("k"))
	}
}

// TestAllowBinds: what was granted without limit in an outage can be settled and released, here
// and afterwards at any instance, and is not charged.
func TestAllowBinds(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	for _, charge := range []weir.Charge{
		{Key: "allowed", Limit: weir.PerDay(10).MustCompile(), Cost: 4},
		{Key: "allowed", Limit: weir.Limit{Algorithm: weir.Concurrency, Count: 4, Period: time.Minute}.MustCompile(), Cost: 1},
	} {
		store := newFlaky(clock)
		taker := wrap(t, store, remote.Options{Now: clock.Now, Policy: policies})
		openUp(t, taker, store, weir.ErrNotApplied)
		for _, id := range []string{"settled", "released", "kept"} {
			if a := about(taker, acts.KindTake, id, charge); !a.Allowed() || a.Decisions[0].Source != acts.SourceFailOpen {
				t.Errorf("%+v, %v", a.Decisions, a.Err)
			}
		}
		end := charge
		end.Cost = 0
		if a, b := about(taker, acts.KindSettle, "settled", end), about(taker, acts.KindRelease, "released", end); a.Err != nil || b.Err != nil {
			t.Errorf("settled: %v, released: %v", a.Err, b.Err)
		}
		back(t, store, taker)
		testserver.Eventually(t, "amended", func() bool { return taker.Stats().Outstanding == 0 })
		if n := used(t, store, "allowed", charge.Limit); n != 0 {
			t.Errorf("%v: %d charged", charge.Limit, n)
		}
		if a := about(store, acts.KindRelease, "kept", end); a.Err != nil {
			t.Errorf("%v: released afterwards: %v", charge.Limit, a.Err)
		}
	}
}

// TestRefusalBindsNobody: after the outage a repeat gets the store's answer.
func TestRefusalBindsNobody(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct {
		granted int64
		source  weir.Source
	}{"deny": {0, acts.SourceFailClosed}, "local": {10, acts.SourceFallback}} {
		clock := storetest.NewClock()
		store := newFlaky(clock)
		taker := wrap(t, store, remote.Options{Now: clock.Now, Policy: policies})
		charge := weir.Charge{Key: key, Limit: weir.PerDay(10).MustCompile(), Cost: 3}
		about(taker, acts.KindTake, "before", charge)
		openUp(t, taker, store, weir.ErrNotApplied)
		about(taker, acts.KindTake, "fill", weir.Charge{Key: key, Limit: charge.Limit, Cost: 1, UpTo: 10})
		for _, id := range []string{"before", "later"} {
			if a := about(taker, acts.KindTake, id, charge); a.Err != nil || a.Allowed() || a.Decisions[0].Source != c.source {
				t.Errorf("%s: %+v, %v", key, a.Decisions, a.Err)
			}
		}
		back(t, store, taker)
		testserver.Eventually(t, "amended", func() bool { return taker.Stats().Outstanding == 0 })
		if a := about(taker, acts.KindTake, "before", charge); !a.Allowed() || a.Decisions[0].Granted != 3 {
			t.Errorf("%s: repeated: %+v, %v", key, a.Decisions, a.Err)
		}
	}
}

// A link carries calls to a store, and delays, loses and refuses some of them. It has a
// lane for each key.
type link struct {
	store  weir.Taker
	bad    bool
	steady bool         // never five failures in a row, which are an outage
	failed atomic.Int64 // since the last beat
}

func (l *link) Locate(a *weir.Act) (node string, lane int, alone bool) {
	if a.Charges[0].Key == "beat" {
		return "", 255, true // which no other call keeps waiting
	}
	return "", int(crc32.ChecksumIEEE([]byte(a.Charges[0].Key)) & 127), true
}

func (*link) Nodes(*weir.Act) []string { return []string{""} }
func (*link) Keeps() bool              { return false }

func (l *link) Probe(ctx context.Context, node string) error {
	return storetest.Alone{Taker: l}.Probe(ctx, node)
}

func (l *link) Take(ctx context.Context, all []*weir.Act) {
	time.Sleep(time.Millisecond)
	fault := rand.IntN(8)
	beat := all[0].Charges[0].Key == "beat"
	if !l.bad || beat {
		fault = 0
	}
	if beat {
		l.failed.Store(0)
	}
	fail := func(err error) bool {
		// Another beat may be seen after the failures that follow it.
		if l.steady && l.failed.Add(1) > 2 {
			return false
		}
		for _, a := range all {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
		}
		return true
	}
	switch fault {
	case 1, 2: // the request is late
		time.Sleep(rand.N(time.Second))
	case 3, 4: // the reply is late
		defer time.Sleep(rand.N(time.Second))
	case 5: // it is lost
		defer fail(weir.ErrAmbiguous)
		defer time.Sleep(rand.N(time.Second))
	case 6: // cut
		defer fail(weir.ErrAmbiguous)
	case 7:
		if fail(weir.ErrNotApplied) {
			return
		}
	}
	l.store.Take(ctx, all)
}

// TestIDsAcrossInstances: an ID that one instance granted is known to the other one, however
// late replies are, and whether they come. The one exception is an outage of the first, until
// that has ended.
func TestIDsAcrossInstances(t *testing.T) {
	t.Parallel()
	for name, beats := range map[string]bool{"reachable": true, "outages": false} {
		for _, policy := range []remote.Policy{remote.Local, remote.Allow, remote.Deny} {
			t.Run(fmt.Sprint(name, "/", policy), inVirtualTime(func(t *testing.T) { acrossInstances(t, beats, policy) }))
		}
	}
}

func acrossInstances(t *testing.T, beats bool, policy remote.Policy) {
	store := memengine.New(memengine.Options{Now: time.Now})
	at := func(bad bool) *remote.Remote {
		return wrap(t, &link{store: store, bad: bad, steady: beats}, remote.Options{
			Policy: func(*weir.Charge) remote.Policy { return policy }, Now: time.Now,
			Calls: calls.Options{MaxLanes: 256, Responsive: responsive},
		})
	}
	a, b := at(true), at(false)
	room := weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour}.MustCompile()
	units := weir.PerDay(10).MustCompile()
	beating, rest := context.WithCancel(t.Context())
	defer rest()
	if beats {
		go func() { // replies come all the time
			for beating.Err() == nil {
				take(a, weir.Charge{Key: "beat", Limit: units, Cost: 0})
				time.Sleep(time.Millisecond)
			}
		}()
	}
	locally := 0
	for i := range 150 {
		time.Sleep(20 * time.Millisecond) // fewer failures than replies
		slot, unit := weir.Charge{Key: fmt.Sprint("room", i), Limit: room, Cost: 1}, weir.Charge{Key: fmt.Sprint("units", i), Limit: units, Cost: 1}
		act := func(kind weir.Kind, at weir.Taker) *weir.Act {
			own := storetest.NewAct(slot, unit)
			own.Kind, own.ID, own.NewID, own.Scope.Owner = kind, "id", i%2 == 1, own.Charges[0].Key
			at.Take(t.Context(), []*weir.Act{own})
			return own
		}
		took := act(acts.KindTake, a)
		switch {
		case took.Err != nil && i%2 == 1:
			continue // its caller never got the ID
		case took.Err != nil:
			if took = act(acts.KindTake, b); took.Err != nil || !took.Allowed() {
				t.Fatalf("repeated at the other instance: %+v, %v", took.Decisions, took.Err)
			}
		case !took.Allowed():
			if beats || policy != remote.Deny {
				t.Fatalf("refused: %+v", took.Decisions)
			}
			continue
		case took.Decisions[0].Source != acts.SourceStore:
			if locally++; beats {
				t.Fatalf("decided locally: %+v", took.Decisions)
			}
			// Many replies in a row may be lost.
			for began := time.Now(); a.Stats().Outstanding > 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 5*time.Minute {
					t.Fatal("the outage has not ended within 5 minutes")
				}
			}
		}
		if ended := act(acts.KindRelease, []weir.Taker{b, a}[rand.IntN(2)]); ended.Err != nil && !acts.Kept(ended.Err) {
			t.Fatalf("released: %v", ended.Err)
		}
	}
	if rest(); !beats && policy != remote.Deny && locally == 0 {
		t.Error("nothing was decided in an outage")
	}
	time.Sleep(20 * time.Second)
	for i := range 150 {
		for key, limit := range map[string]*weir.Limit{"room": room, "units": units} {
			if n := used(t, store, fmt.Sprint(key, i), limit); n != 0 {
				t.Errorf("%s%d: %d stay", key, i, n)
			}
		}
	}
}
