package calls

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

var perDay = weir.PerDay(100).MustCompile()

// over is the context of a Stop that waits for no call.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// spread gives a Taker lanes, by the key of an act's first charge.
type spread struct {
	storetest.Alone
	lanes int
}

func (s spread) Locate(a *weir.Act) (node string, lane int, alone bool) {
	h := fnv.New32()
	if len(a.Charges) > 0 {
		h.Write([]byte(a.Charges[0].Key))
	}
	// Numbers that have to be folded, negative ones among them.
	return "", int(h.Sum32()%uint32(s.lanes))*999 - 1000, true
}

// A gate keeps a call that charges its key in the store until it is opened.
type gate struct {
	next      weir.Taker
	in, out   chan struct{}
	mu        sync.Mutex
	seen      []int // acts of each call that went through
	deadlines int   // calls that had one
	onTake    func(acts []*weir.Act)
}

const gateKey = "the gate"

func newGate(next weir.Taker) *gate {
	return &gate{next: next, in: make(chan struct{}), out: make(chan struct{})}
}

func (g *gate) Take(ctx context.Context, acts []*weir.Act) {
	if len(acts[0].Charges) > 0 && acts[0].Charges[0].Key == gateKey {
		g.in <- struct{}{}
		<-g.out
	} else {
		g.note(ctx, acts)
	}
	g.next.Take(ctx, acts)
}

func (g *gate) note(ctx context.Context, acts []*weir.Act) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, len(acts))
	if _, ok := ctx.Deadline(); ok {
		g.deadlines++
	}
	if g.onTake != nil {
		g.onTake(acts)
	}
}

func (g *gate) calls() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

// A road is one lane with a gate in front of a store.
type road struct {
	*Lanes
	gate *gate
	mu   sync.Mutex // one jam at a time
}

func newRoad(next weir.Taker, o Options) *road {
	g := newGate(next)
	if o.Silence == 0 {
		// A gate keeps calls for as long as a test likes.
		o.Silence, o.Late = time.Hour, time.Hour
	}
	return &road{Lanes: New(storetest.Alone{Taker: g}, o), gate: g}
}

func act(key string, cost int64) *weir.Act {
	return storetest.NewAct(weir.Charge{Key: key, Limit: perDay, Cost: cost})
}

// block occupies the lane until the function that it returns is called, which
// returns once the call that did it is back.
func (r *road) block() (open func()) {
	var blocking sync.WaitGroup
	blocking.Go(func() { r.Lanes.Take(context.Background(), []*weir.Act{act(gateKey, 0)}) })
	<-r.gate.in
	return func() {
		r.gate.out <- struct{}{}
		blocking.Wait()
	}
}

// until waits for a number of acts to wait.
func (r *road) until(waiting int64) {
	for r.Stats().Waiting != waiting {
		runtime.Gosched()
	}
}

// jam puts calls to the lane while it is busy, one behind the other, and returns
// when all are back.
func (r *road) jam(ctx context.Context, calls ...[]*weir.Act) {
	open := r.block()
	var callers sync.WaitGroup
	waiting := int64(0)
	for _, acts := range calls {
		callers.Go(func() { r.Lanes.Take(ctx, acts) })
		waiting += int64(len(acts))
		r.until(waiting)
	}
	open()
	callers.Wait()
}

// jammed is a Taker whose acts all wait for the lane, each called for by itself.
type jammed struct {
	*road
	cancellable bool
}

func (j jammed) Take(_ context.Context, acts []*weir.Act) {
	j.mu.Lock()
	defer j.mu.Unlock()
	ctx := context.Background()
	if j.cancellable {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	calls := make([][]*weir.Act, len(acts))
	for i := range acts {
		calls[i] = acts[i : i+1]
	}
	j.jam(ctx, calls...)
}

// kinds are the ways through a Coalescer, over a store.
var kinds = map[string]func(weir.Taker) weir.Taker{
	"alone": func(next weir.Taker) weir.Taker {
		return New(storetest.Alone{Taker: next}, Options{Silence: time.Hour})
	},
	"split": func(next weir.Taker) weir.Taker {
		return New(spread{storetest.Alone{Taker: next}, 3}, Options{Silence: time.Hour})
	},
	"together": func(next weir.Taker) weir.Taker {
		return jammed{newRoad(next, Options{}), false}
	},
	"together, in copies": func(next weir.Taker) weir.Taker {
		return jammed{newRoad(next, Options{}), true}
	},
	"in small batches": func(next weir.Taker) weir.Taker {
		return jammed{newRoad(next, Options{MaxBatch: 2}), true}
	},
}

// TestTwins demands the same answers as without a Coalescer, to random histories
// of calls with many acts.
func TestTwins(t *testing.T) {
	t.Parallel()
	for name, wrap := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			open := func() weir.Taker { return memengine.New(memengine.Options{Now: clock.Now}) }
			if err := (storetest.Twins{A: open(), B: wrap(open()), Clock: clock, Seed: 1, Listed: true}).Compare(5_000); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCallsTravelTogether(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{})
	var calls [][]*weir.Act
	for range 150 {
		calls = append(calls, []*weir.Act{act("hot", 1)})
	}
	calls = append(calls, []*weir.Act{act("a", 1), act("b", 101), act("", 1)})
	r.jam(context.Background(), calls...)
	for i, acts := range calls[:150] {
		want := weir.Granted
		if i >= 100 {
			want = weir.Refused
		}
		if d := acts[0].Decisions[0]; acts[0].Err != nil || d.Outcome != want {
			t.Errorf("call %d: %v, %v; want %v", i, d.Outcome, acts[0].Err, want)
		}
	}
	last := calls[150]
	if !last[0].Allowed() || last[1].Allowed() || last[1].Decisions[0].RetryAfter != weir.Never {
		t.Errorf("acts of another call: %+v, %+v", last[0], last[1])
	}
	if got := r.gate.calls(); len(got) != 1 || got[0] != 153 || r.gate.deadlines != 1 {
		t.Errorf("calls of the store: %v, %d with a deadline", got, r.gate.deadlines)
	}
	if s, want := r.Stats(), (Stats{Batches: 2, Acts: 154, Largest: 153}); s != want {
		t.Errorf("stats %+v, want %+v", s, want)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{MaxBatch: 4})
	var calls [][]*weir.Act
	for _, n := range []int{1, 2, 2, 9, 1, 3, 1} {
		acts := make([]*weir.Act, n)
		for i := range acts {
			acts[i] = act("k", 1)
		}
		calls = append(calls, acts)
	}
	r.jam(context.Background(), calls...)
	want := []int{3, 2, 9, 4, 1}
	got := r.gate.calls()
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("batches of %v, want %v: a call stays whole, and nobody overtakes", got, want)
		}
	}
}

// TestNobodyIsLeftBehind has callers who ask again as soon as they are answered: they
// stay together, but for those who are just then on a processor.
func TestNobodyIsLeftBehind(t *testing.T) {
	t.Parallel()
	callers, each := 16*runtime.GOMAXPROCS(0), 200
	distant := acts.TakerFunc(func(context.Context, []*weir.Act) { time.Sleep(time.Microsecond) })
	r := newRoad(distant, Options{MaxBatch: 2 * callers})
	open := r.block()
	var asking sync.WaitGroup
	for i := range callers {
		asking.Go(func() {
			for range each {
				r.Lanes.Take(context.Background(), []*weir.Act{act(fmt.Sprint(i), 1)})
			}
		})
	}
	r.until(int64(callers))
	open()
	asking.Wait()
	if s := r.Stats(); s.Batches > int64(2*each) {
		t.Errorf("%d acts of %d callers in %d batches", s.Acts, callers, s.Batches)
	}
}

func TestFullLaneRefuses(t *testing.T) {
	t.Parallel()
	r := newRoad(memengine.New(memengine.Options{}), Options{MaxWaiting: 3})
	open := r.block()
	var callers sync.WaitGroup
	first := []*weir.Act{act("k", 1), act("k", 1), act("k", 1), act("k", 1)}
	callers.Go(func() { r.Take(context.Background(), first) })
	r.until(4) // nobody else waits: a large call is not kept out for ever
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		a := act("k", 1)
		if r.Take(ctx, []*weir.Act{a}); !errors.Is(a.Err, ErrFull) || !errors.Is(a.Err, weir.ErrNotApplied) {
			t.Errorf("behind a full lane: %v", a.Err)
		}
	}
	open()
	callers.Wait()
	look := act("k", 0)
	if r.Take(context.Background(), []*weir.Act{look}); look.Decisions[0].Remaining != 96 || r.Stats().Rejected != 2 {
		t.Errorf("remaining %d, %+v", look.Decisions[0].Remaining, r.Stats())
	}
}

// TestLanesAreIndependent takes in one lane while another is blocked.
func TestLanesAreIndependent(t *testing.T) {
	t.Parallel()
	g := newGate(memengine.New(memengine.Options{}))
	r := &road{Lanes: New(spread{storetest.Alone{Taker: g}, 2}, Options{MaxLanes: 2, Silence: time.Hour}), gate: g}
	lane := func(a *weir.Act) int { _, lane, _ := spread{lanes: 2}.Locate(a); return lane }
	var here, there string
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if lane(act(key, 1)) == lane(act(gateKey, 1)) {
			here = key
		} else {
			there = key
		}
	}
	open := r.block()
	a := act(there, 1)
	if r.Take(context.Background(), []*weir.Act{a}); !a.Allowed() {
		t.Errorf("in the other lane: %v", a.Err)
	}
	// A call of both lanes is back when both are, and half of it leaves at once.
	both := []*weir.Act{act(here, 1), act(there, 1), act(here, 2), act(there, 2)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Take(context.Background(), both)
	}()
	r.until(2)
	for r.Stats().Acts < 3 {
		runtime.Gosched()
	}
	select {
	case <-done:
		t.Error("a call returned before its acts were decided")
	default:
	}
	open()
	<-done
	for i, want := range []int64{99, 98, 97, 96} {
		if got := both[i].Decisions[0].Remaining; both[i].Err != nil || got != want {
			t.Errorf("act %d: remaining %d, %v; want %d", i, got, both[i].Err, want)
		}
	}
}

// TestOrderWithinACall has a call of several lanes whose acts share a key.
func TestOrderWithinACall(t *testing.T) {
	t.Parallel()
	c := New(spread{storetest.Alone{Taker: memengine.New(memengine.Options{})}, 16}, Options{Silence: time.Hour})
	t.Cleanup(func() { _ = c.Stop(over) })
	for range 100 {
		all := []*weir.Act{
			storetest.NewAct(weir.Charge{Key: "a", Limit: perDay, Cost: 60}, weir.Charge{Key: "x", Limit: perDay, Cost: 60}),
			storetest.NewAct(weir.Charge{Key: "b", Limit: perDay, Cost: 60}, weir.Charge{Key: "x", Limit: perDay, Cost: 60}),
		}
		if c.Take(context.Background(), all); !all[0].Allowed() || all[1].Allowed() {
			t.Fatalf("the second act was decided first: %+v, %+v", all[0].Decisions, all[1].Decisions)
		}
		for _, key := range []string{"a", "b", "x"} {
			reset := act(key, 0)
			reset.Kind = acts.KindReset
			c.Take(context.Background(), []*weir.Act{reset})
		}
	}
}

func TestNothingAndNobody(t *testing.T) {
	t.Parallel()
	c := New(storetest.Alone{Taker: memengine.New(memengine.Options{})}, Options{MaxBatch: -1, MaxLanes: -1, MaxWaiting: -1, Timeout: -time.Second})
	t.Cleanup(func() { _ = c.Stop(over) })
	c.Take(context.Background(), nil)
	a := &weir.Act{}
	if c.Take(context.Background(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrInvalid) {
		t.Errorf("an act without charges: %v", a.Err)
	}
}

// TestLoneCallAddsLittle bounds what owning a lone call allocates: the batch, the
// channel that wakes its caller and the context.
func TestLoneCallAddsLittle(t *testing.T) {
	c := New(storetest.Alone{Taker: nothing{}}, Options{})
	t.Cleanup(func() { _ = c.Stop(over) })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	acts := []*weir.Act{act("k", 1)}
	if n := testing.AllocsPerRun(1000, func() { c.Take(ctx, acts) }); n > 8 { // the race detector adds some
		t.Errorf("%v allocations", n)
	}
}

// nothing is a store that decides nothing.
type nothing struct{}

func (nothing) Take(context.Context, []*weir.Act) {}

// BenchmarkIdleLane is what a lone call pays.
func BenchmarkIdleLane(b *testing.B) {
	c := New(storetest.Alone{Taker: nothing{}}, Options{})
	b.Cleanup(func() { _ = c.Stop(over) })
	acts := []*weir.Act{act("k", 1)}
	b.ReportAllocs()
	for b.Loop() {
		c.Take(context.Background(), acts)
	}
}
