package remote_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// nodes is a cluster behind wires, each of which has a fault of its own.
type nodes struct {
	*cluster
	mu      sync.Mutex // guards what follows
	faults  map[string]string
	delays  map[string]time.Duration
	perAct  time.Duration                 // added to the delay
	fails   func(*weir.Act) error         // acts that the store cannot decide
	holds   func(*weir.Act) time.Duration // acts that come later to the store
	moved   map[string]string             // nodes whose keys another one has
	panics  string                        // an ID at which the store panics, once it has decided
	largest atomic.Int64                  // acts of a call, without takes
}

// The faults of a wire.
const (
	well    = ""
	dead    = "dead"    // nothing is sent
	hanging = "hanging" // nothing is answered
	deaf    = "deaf"    // replies are lost
)

func newNodes() *nodes {
	return &nodes{cluster: newCluster(time.Now), faults: map[string]string{}, delays: map[string]time.Duration{}, moved: map[string]string{}}
}

func (n *nodes) set(node, fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[node] = fault
}

func (n *nodes) delay(node string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[node] = d
}

func (n *nodes) of(node string) (fault string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[node], n.delays[node]
}

// move has another node decide the keys of a node; itself again if they are the same.
func (n *nodes) move(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.moved[from] = to
}

func (n *nodes) Locate(a *weir.Act) (node string, lane int, alone bool) {
	all := n.Nodes(a)
	return all[0], 0, len(all) == 1
}

func (n *nodes) Nodes(a *weir.Act) (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range nodesOf(a) {
		if to, moved := n.moved[node]; moved {
			node = to
		}
		if !slices.Contains(all, node) {
			all = append(all, node)
		}
	}
	return all
}

func (n *nodes) Keeps() bool { return false }

func (n *nodes) Probe(ctx context.Context, node string) error {
	switch fault, _ := n.of(node); fault {
	case dead, deaf:
		return outage.ErrSilent
	case hanging:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (n *nodes) Take(ctx context.Context, all []*weir.Act) {
	fault, delay := n.of(n.Nodes(all[0])[0])
	if !slices.ContainsFunc(all, func(a *weir.Act) bool { return a.Kind == acts.KindTake }) && int64(len(all)) > n.largest.Load() {
		n.largest.Store(int64(len(all)))
	}
	for _, a := range all {
		if n.holds != nil {
			delay = max(delay, n.holds(a))
		}
	}
	time.Sleep(delay + n.perAct*time.Duration(len(all)))
	fail := func(class error) {
		for _, a := range all {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, class)
		}
	}
	switch fault {
	case dead:
		fail(weir.ErrNotApplied)
	case hanging:
		<-ctx.Done()
		fail(weir.ErrAmbiguous)
	default:
		var good []*weir.Act
		for _, a := range all {
			if n.fails != nil {
				if err := n.fails(a); err != nil {
					a.Err = fmt.Errorf("weir: %v: %w: unexpected answer", a.Kind, err)
					continue
				}
			}
			good = append(good, a)
		}
		n.cluster.Take(ctx, good)
		if slices.ContainsFunc(all, func(a *weir.Act) bool { return n.panics != "" && a.ID == n.panics && a.Kind == acts.KindTake }) {
			panic("the store panics")
		}
		if fault == deaf {
			fail(weir.ErrAmbiguous)
		}
	}
}

// remote returns a Remote over nodes, in virtual time.
func (n *nodes) remote(t *testing.T, o remote.Options) *remote.Remote {
	o.Now, o.Calls.Responsive = time.Now, responsive
	return wrap(t, n, o)
}

// declare has the outages of nodes declared.
func (n *nodes) declare(t *testing.T, r *remote.Remote, fault string, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		n.set(node, fault)
	}
	for tries := 0; len(r.Outages()) < len(nodes); tries++ {
		if tries > 1000 {
			t.Fatal("no outage")
		}
		for _, node := range nodes {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			key := node
			if key == "" {
				key = "a" // which has moved there
			}
			r.Ask(ctx, []*weir.Act{storetest.NewAct(weir.Charge{Key: key, Limit: many})})
			cancel()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// reached waits until no outage lasts.
func reached(r *remote.Remote) {
	for len(r.Outages()) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// reconciled waits until nothing is owed, and returns how long that took.
func reconciled(t *testing.T, r *remote.Remote) time.Duration {
	t.Helper()
	began := time.Now()
	for r.Stats().Outstanding > 0 {
		if time.Since(began) > 10*time.Minute {
			t.Fatalf("still owed: %+v", r.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

var (
	many      = weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 10_000_000, Period: 360 * 24 * time.Hour}.MustCompile()
	manySlots = weir.Limit{Algorithm: weir.Concurrency, Count: 100_000, Period: time.Hour}.MustCompile()
)

// takeID takes one unit of keys with an ID, "" for none, and returns how long that took.
func takeID(r weir.Taker, id string, limit *weir.Limit, keys ...string) (*weir.Act, time.Duration) {
	a := storetest.NewAct()
	for _, key := range keys {
		a.Charges = append(a.Charges, weir.Charge{Key: key, Limit: limit, Cost: 1})
	}
	a.Decisions = make([]weir.Decision, len(keys))
	a.ID, a.NewID, a.Scope.Owner = id, id != "", a.Charges[0].Key
	began := time.Now()
	r.Take(context.Background(), []*weir.Act{a})
	return a, time.Since(began)
}

// byStore reports whether the store decided an act.
func byStore(a *weir.Act) bool { return a.Err == nil && a.Decisions[0].Source == acts.SourceStore }

// TestOneNodeOut: whatever is owed to a node that is unreachable, the keys of another one are
// decided by their store within one round trip, also keys of takes over both.
func TestOneNodeOut(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.declare(t, r, dead, "b")
		if a, _ := takeID(r, "id", many, "a", "b"); a.Err != nil || a.Decisions[0].Source != acts.SourceFallback {
			t.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
		if a, _ := takeID(r, "", many, "a", "b"); a.Err != nil {
			t.Fatal(a.Err)
		}
		for i := range 300 {
			a, took := takeID(r, []string{"", fmt.Sprint("id ", i)}[i%2], many, "a")
			if !byStore(a) || took > 20*time.Millisecond {
				t.Errorf("take %d after %v: %+v, %v", i, took, a.Decisions, a.Err)
			}
			time.Sleep(time.Second)
		}
		// The take over both can be ended: here, and at the node that is reachable.
		end := storetest.NewAct(weir.Charge{Key: "a", Limit: many}, weir.Charge{Key: "b", Limit: many})
		end.Kind, end.ID, end.Scope.Owner = acts.KindRelease, "id", end.Charges[0].Key
		if r.Take(t.Context(), []*weir.Act{end}); end.Err != nil {
			t.Errorf("released: %v", end.Err)
		}
		n.set("b", well)
		reconciled(t, r)
		if a, b := n.used("a", many), n.used("b", many); a != 301 || b != 1 {
			t.Errorf("%d and %d charged, want 301 and 1", a, b)
		}
	})(t)
}

// TestHangingNodeKeepsNobodyWaiting: two nodes come back, one of which then hangs. Debts of the
// other one are paid, and its keys are decided by the store.
func TestHangingNodeKeepsNobodyWaiting(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{Patience: 100 * time.Millisecond}) // less than an outage takes to begin
		n.declare(t, r, dead, "a", "b")
		for i := range 40 {
			takeID(r, "", many, fmt.Sprint("a", i))
			takeID(r, "", many, fmt.Sprint("b", i))
		}
		n.fails = func(a *weir.Act) error {
			if a.Kind == acts.KindRecord && a.Charges[0].Key[:1] == "b" {
				return weir.ErrNotApplied // b's units stay outstanding
			}
			return nil
		}
		n.set("a", well)
		n.set("b", well)
		reached(r)
		n.set("b", hanging)
		// The acts of one call, too, do not wait for what is owed to the other's node.
		both := []*weir.Act{storetest.NewAct(weir.Charge{Key: "b0", Limit: many, Cost: 1}), storetest.NewAct(weir.Charge{Key: "a0", Limit: many, Cost: 1})}
		if r.Take(t.Context(), both); !byStore(both[1]) {
			t.Errorf("%+v, %v", both[1].Decisions, both[1].Err)
		}
		for i := range 2000 {
			a, took := takeID(r, []string{"", fmt.Sprint("id ", i)}[i%2], many, fmt.Sprint("a", i%40))
			if !byStore(a) || took > 20*time.Millisecond {
				t.Fatalf("take %d after %v: %+v, %v", i, took, a.Decisions, a.Err)
			}
			time.Sleep(time.Millisecond)
		}
		n.fails = nil
		n.set("b", well)
		reconciled(t, r)
	})(t)
}

// TestManyIDsOfOneKey: a payment has a bound, however much is owed about a key, and no caller waits
// for longer than its patience; callers of other nodes do not wait.
func TestManyIDsOfOneKey(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.declare(t, r, dead, "a")
		for i := range 5000 {
			if a, _ := takeID(r, fmt.Sprint("id", i), many, "a"); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		n.perAct = 100 * time.Microsecond
		n.set("a", well)
		reached(r)
		var other atomic.Int64
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				a, took := takeID(r, "", many, "b")
				if other.Store(max(other.Load(), int64(took))); !byStore(a) {
					t.Errorf("the other node's key: %+v, %v", a.Decisions, a.Err)
				}
			}
		}()
		for r.Stats().Outstanding > 0 {
			if _, took := takeID(r, "", many, "a"); took > remote.DefaultPatience+20*time.Millisecond {
				t.Errorf("the key waited for %v", took)
			}
		}
		close(stop)
		<-done
		if slowest := time.Duration(other.Load()); slowest > 20*time.Millisecond {
			t.Errorf("the other node's key waited for %v", slowest)
		}
		if largest := n.largest.Load(); largest > calls.DefaultMaxBatch {
			t.Errorf("a call of %d debts", largest)
		}
	})(t)
}

// TestDebtThatFails: a debt that the store cannot do is repeated in the background, and keeps
// nobody from the store.
func TestDebtThatFails(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.declare(t, r, dead, "a")
		takeID(r, "bad", many, "a")
		var mended atomic.Bool
		n.fails = func(a *weir.Act) error {
			if a.ID == "bad" && !mended.Load() {
				return weir.ErrAmbiguous
			}
			return nil
		}
		n.set("a", well)
		reached(r)
		time.Sleep(time.Second)
		for i := range 300 {
			for _, id := range []string{"", fmt.Sprint("id ", i)} {
				if a, took := takeID(r, id, many, "a"); !byStore(a) || took > 20*time.Millisecond {
					t.Fatalf("%d s after the outage, after %v: %+v, %v", i, took, a.Decisions, a.Err)
				}
			}
			time.Sleep(time.Second)
		}
		mended.Store(true)
		if took := reconciled(t, r); took > 10*time.Second {
			t.Errorf("paid %v after the store could", took)
		}
		if used := n.used("a", many); used != 601 {
			t.Errorf("%d charged", used)
		}
	})(t)
}

// TestActsWaitForWhatIsInFlight: while units are on their way to the store, it decides nothing about
// their key, although their call no longer keeps its lane.
func TestActsWaitForWhatIsInFlight(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.declare(t, r, dead, "a")
		limit := weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 10, Period: 24 * time.Hour}.MustCompile()
		for range 10 {
			takeID(r, "", limit, "a")
		}
		n.holds = func(a *weir.Act) time.Duration {
			if a.Kind == acts.KindRecord {
				return 150 * time.Millisecond
			}
			return 0
		}
		n.set("a", well)
		reached(r)
		time.Sleep(50 * time.Millisecond) // the background pays
		if a, _ := takeID(r, "", limit, "a"); a.Err != nil || a.Allowed() {
			t.Errorf("an eleventh of ten: %+v, %v", a.Decisions, a.Err)
		}
		if a, _ := takeID(r, "id", limit, "a"); a.Err != nil || a.Allowed() {
			t.Errorf("a twelfth of ten: %+v, %v", a.Decisions, a.Err)
		}
		reconciled(t, r)
	})(t)
}

// TestShareBeginsWithoutWhatIsOwed: what the store knows after an outage lacks the units that it has yet
// to record, so that the share of the next outage is less by them.
func TestShareBeginsWithoutWhatIsOwed(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		limit := weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 10, Period: 24 * time.Hour}.MustCompile()
		tried := 0
		granted := func(tries int) (granted int) {
			for i := range tries {
				tried++
				if a, _ := takeID(r, []string{"", fmt.Sprint("id ", tried)}[i%2], limit, "a"); a.Err == nil && a.Allowed() {
					granted++
				}
			}
			return granted
		}
		n.declare(t, r, dead, "a")
		if got := granted(4); got != 4 {
			t.Fatalf("%d of 4", got)
		}
		for range 4 {
			takeID(n.cluster, "", limit, "a") // by another instance
		}
		n.fails = func(a *weir.Act) error {
			if a.Kind == acts.KindRecord || a.Kind == acts.KindAmend {
				return weir.ErrNotApplied
			}
			return nil
		}
		n.set("a", well)
		reached(r)
		time.Sleep(50 * time.Millisecond) // the background fails
		r.Ask(t.Context(), []*weir.Act{storetest.NewAct(weir.Charge{Key: "a", Limit: limit})})
		n.declare(t, r, dead, "a")
		if got := granted(8); got != 2 {
			t.Errorf("%d more of 10 granted, after 4 here and 4 elsewhere", got)
		}
	})(t)
}

// TestKeysMoveToAnotherNode: what is owed to a node whose keys another one has is paid there, and
// nothing is asked about the keys before.
func TestKeysMoveToAnotherNode(t *testing.T) {
	limit := weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 10, Period: 24 * time.Hour}.MustCompile()
	for _, from := range []string{"", "b"} { // a cluster that is not known yet, and a node that dies
		t.Run("from "+from, inVirtualTime(func(t *testing.T) {
			n := newNodes()
			r := n.remote(t, remote.Options{})
			n.move("a", from)
			n.declare(t, r, dead, from)
			for i := range 10 {
				takeID(r, []string{"", fmt.Sprint("id ", i)}[i%2], limit, "a")
			}
			n.move("a", "a")
			if from == "b" {
				time.Sleep(500 * time.Millisecond)
			}
			for _, id := range []string{"", "another"} {
				if a, _ := takeID(r, id, limit, "a"); !byStore(a) || a.Allowed() {
					t.Errorf("an eleventh of ten: %+v, %v", a.Decisions, a.Err)
				}
			}
			reconciled(t, r)
			if used := n.used("a", limit); used != 10 {
				t.Errorf("%d charged", used)
			}
			if len(r.Outages()) != 1 {
				t.Error("the node came back")
			}
		}))
	}
}

// TestWithdrawalsOfADeadNode: they delay no withdrawal of another node.
func TestWithdrawalsOfADeadNode(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.set("a", deaf)
		var all []*weir.Act
		for i := range 1000 {
			a := storetest.NewAct(weir.Charge{Key: "a", Limit: manySlots, Cost: 1})
			a.ID, a.NewID, a.Scope.Owner = fmt.Sprint("id", i), true, a.Charges[0].Key
			all = append(all, a)
		}
		r.Take(t.Context(), all)
		n.declare(t, r, dead, "a")
		if owed := r.Stats().Withdrawals; owed != 1000 {
			t.Errorf("%d withdrawals are owed, want 1000", owed)
		}
		n.set("b", deaf)
		takeID(r, "id", manySlots, "b")
		n.set("b", well)
		began := time.Now()
		for n.used("b", manySlots) > 0 && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("withdrawn after %v", took)
		}
		n.set("a", well)
		if reconciled(t, r); n.used("a", manySlots) > 0 {
			t.Errorf("%d slots are held", n.used("a", manySlots))
		}
	})(t)
}

// TestSlowStoreIsWithdrawn: a store that takes longer than callers wait owes no more the longer it
// lasts: a withdrawal is sent with the next batch.
func TestSlowStoreIsWithdrawn(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		n.delay("a", 30*time.Millisecond)
		r := n.remote(t, remote.Options{Patience: 20 * time.Millisecond})
		var work sync.WaitGroup
		var told atomic.Int64
		most := 0
		const takes = 4000
		for i := range takes {
			work.Go(func() {
				if a, _ := takeID(r, fmt.Sprint("id", i), manySlots, fmt.Sprint("a", i%50)); a.Err == nil {
					told.Add(1)
				}
			})
			if time.Sleep(500 * time.Microsecond); i%200 == 0 {
				most = max(most, r.Stats().Withdrawals)
			}
		}
		work.Wait()
		if most > 500 {
			t.Errorf("up to %d withdrawals were owed", most)
		}
		reconciled(t, r)
		held := int64(0)
		for i := range 50 {
			held += n.used(fmt.Sprint("a", i), manySlots)
		}
		if held != told.Load() || held > takes/2 {
			t.Errorf("%d slots are held, %d granted", held, told.Load())
		}
		if s := r.Stats(); s.Doubtful > 0 {
			t.Errorf("%+v", s)
		}
	})(t)
}

// TestExpiredWithdrawals: withdrawals whose takes the store has forgotten end, and keep no other one
// from being sent.
func TestExpiredWithdrawals(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		brief := weir.Limit{Algorithm: weir.GCRA, Count: 1, Period: time.Hour, Burst: 1000}.MustCompile()
		long := weir.Limit{Algorithm: weir.Concurrency, Count: 100, Period: 10 * time.Hour}.MustCompile()
		r := n.remote(t, remote.Options{})
		n.set("a", deaf)
		var all []*weir.Act
		for i := range 200 {
			c := weir.Charge{Key: "a", Limit: brief, Cost: 1}
			if i == 199 {
				c = weir.Charge{Key: "along", Limit: long, Cost: 1}
			}
			a := storetest.NewAct(c)
			a.ID, a.NewID, a.Scope.Owner = fmt.Sprint("id", i), true, a.Charges[0].Key
			all = append(all, a)
		}
		r.Take(t.Context(), all)
		n.declare(t, r, dead, "a")
		time.Sleep(2 * acts.IDLife)
		n.set("a", well)
		if took := reconciled(t, r); took > 5*time.Second {
			t.Errorf("reconciled after %v", took)
		}
		if used := n.used("along", long); used > 0 {
			t.Errorf("%d slots are held", used)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})(t)
}

// TestManyDebtsAndAHotKey: a key is decided by the store after one round trip for what is owed about
// it, whatever is owed about others.
func TestManyDebtsAndAHotKey(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.declare(t, r, dead, "a")
		debts := min(131_000, storetest.Length(5000))
		for i := range debts {
			if a, _ := takeID(r, "", many, fmt.Sprint("a", i)); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		if owed, doubtful := r.Stats().Outstanding, r.Stats().Doubtful; owed != debts || doubtful > 0 {
			t.Fatalf("%d are owed, %d doubtful", owed, doubtful)
		}
		n.delay("a", 10*time.Millisecond)
		n.set("a", well)
		reached(r)
		for i := range 20 {
			// The lane may have a call of the background in flight.
			if a, took := takeID(r, "", many, fmt.Sprint("a", debts/20*i)); !byStore(a) || took > 4*10*time.Millisecond {
				t.Errorf("after %v: %+v, %v", took, a.Decisions, a.Err)
			}
		}
		if owed := r.Stats().Outstanding; owed < debts/2 {
			t.Fatalf("only %d are owed", owed)
		}
		n.delay("a", 0)
		reconciled(t, r)
	})(t)
}

// TestLedgerHasABound: by the memory that debts take, not only by their number.
func TestLedgerHasABound(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{MaxKeys: 1000})
		n.declare(t, r, dead, "a")
		var keys []string
		for i := range 32 {
			keys = append(keys, fmt.Sprint("a", i))
		}
		granted := int64(0)
		for i := range 1000 {
			if a, _ := takeID(r, fmt.Sprint("id", i), many, keys...); a.Err == nil {
				granted++
			}
		}
		if granted == 0 || granted > 200 {
			t.Errorf("%d takes with IDs and 32 charges are owed", granted)
		}
		n.set("a", well)
		reconciled(t, r)
		n.declare(t, r, dead, "a")
		if a, _ := takeID(r, "after", many, "a0"); a.Err != nil {
			t.Errorf("the memory is not free again: %v", a.Err)
		}
		n.set("a", well)
		reconciled(t, r)
		if used := n.used("a0", many); used != granted+1 {
			t.Errorf("%d charged, want %d", used, granted+1)
		}
	})(t)
}

// TestPanicOfTheStore: its callers panic, and what it may have charged them is withdrawn.
func TestPanicOfTheStore(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		r := n.remote(t, remote.Options{})
		n.panics = "id"
		take := func(keys ...string) (cause any) {
			defer func() { cause = recover() }()
			takeID(r, "id", manySlots, keys...)
			return nil
		}
		for _, keys := range [][]string{{"a"}, {"a", "b"}} {
			if cause := take(keys...); cause == nil {
				t.Error("the panic of the store was swallowed")
			}
			reconciled(t, r)
			for _, key := range keys {
				if used := n.used(key, manySlots); used > 0 {
					t.Errorf("%d slots of %s are held", used, key)
				}
			}
		}
	})(t)
}

// TestPanicOfACallback: no lock stays locked.
func TestPanicOfACallback(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		n := newNodes()
		var panics atomic.Bool
		r := n.remote(t, remote.Options{Policy: func(*weir.Charge) remote.Policy {
			if panics.Load() {
				panic("the policy panics")
			}
			return remote.Local
		}})
		n.declare(t, r, dead, "a")
		func() {
			defer func() { _ = recover() }()
			panics.Store(true)
			takeID(r, "", many, "a")
			t.Error("the panic of the policy was swallowed")
		}()
		panics.Store(false)
		if a, _ := takeID(r, "", many, "a"); a.Err != nil {
			t.Error(a.Err)
		}
		n.set("a", well)
		reconciled(t, r)
	})(t)
}
