package calls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A hanging store has nodes, each of which can stop answering: its calls return once it
// goes on. The node of a key is what stands before its colon.
type hanging struct {
	weir.Taker
	mu     sync.Mutex // guards what follows
	stops  map[string]chan struct{}
	probes atomic.Int64
	calls  atomic.Int64
}

func newHanging() *hanging {
	return &hanging{Taker: memengine.New(memengine.Options{}), stops: map[string]chan struct{}{}}
}

func nodeOf(key string) string { node, _, _ := strings.Cut(key, ":"); return node }

func (*hanging) Keeps() bool { return false }

func (h *hanging) Locate(a *weir.Act) (node string, lane int, alone bool) {
	nodes := h.Nodes(a)
	return nodes[0], 0, len(nodes) == 1
}

func (*hanging) Nodes(a *weir.Act) []string {
	nodes := []string{nodeOf(a.Charges[0].Key)}
	for i := range a.Charges {
		if node := nodeOf(a.Charges[i].Key); node != nodes[0] {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (h *hanging) Probe(ctx context.Context, node string) error {
	h.probes.Add(1)
	select {
	case <-h.stopped(node):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hanging) Take(ctx context.Context, acts []*weir.Act) {
	h.calls.Add(1)
	for _, a := range acts {
		for _, node := range h.Nodes(a) {
			<-h.stopped(node)
		}
	}
	h.Taker.Take(ctx, acts)
}

var goes = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// stopped is closed when the node goes on, or if it does.
func (h *hanging) stopped(node string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.stops[node]; c != nil {
		return c
	}
	return goes
}

// stop stops a node until the function that it returns is called.
func (h *hanging) stop(t *testing.T, node string) (goOn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.stops[node] = c
	goOn = sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.stops, node)
		close(c)
	})
	t.Cleanup(goOn)
	return goOn
}

func hang(t *testing.T, o Options) (*hanging, *Lanes) {
	t.Helper()
	h := newHanging()
	c := New(h, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return h, c
}

// ask asks in the background; done is closed when the act is answered.
func ask(c weir.Taker, acts ...*weir.Act) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		c.Take(context.Background(), acts)
	}()
	return done
}

// TestOutage: calls in flight and calls that wait are answered at once when their node
// goes out, later ones without asking; others go on; what had left has its outcome in
// the end.
func TestOutage(t *testing.T) {
	t.Parallel()
	h, c := hang(t, Options{Silence: 20 * time.Millisecond, Late: time.Hour})
	goOn := h.stop(t, "bad")
	left, waits := act("bad:k", 1), act("bad:k", 10)
	first := ask(c, left)
	testserver.Eventually(t, "in flight", func() bool { return h.calls.Load() == 1 })
	second := ask(c, waits)
	<-first
	<-second
	var out *outage.Error
	if !errors.Is(left.Err, weir.ErrAmbiguous) || errors.Is(left.Err, weir.ErrNotApplied) || !errors.As(left.Err, &out) || !out.Silent() || out.Node != "bad" {
		t.Errorf("in flight: %v", left.Err)
	}
	if !errors.Is(waits.Err, weir.ErrNotApplied) || errors.Is(waits.Err, weir.ErrAmbiguous) || !errors.As(waits.Err, &out) {
		t.Errorf("waiting: %v", waits.Err)
	}
	later, other, both := act("bad:k", 100), act("good:k", 1), storetest.NewAct(
		weir.Charge{Key: "good:k", Limit: perDay, Cost: 1}, weir.Charge{Key: "bad:k", Limit: perDay, Cost: 1})
	c.Take(t.Context(), []*weir.Act{later, other, both})
	if !errors.Is(later.Err, weir.ErrNotApplied) || !errors.Is(both.Err, weir.ErrNotApplied) || other.Err != nil || !other.Allowed() {
		t.Errorf("later: %v; of another node: %v; of both: %v", later.Err, other.Err, both.Err)
	}
	if c.Reachable(later) || !c.Reachable(other) || c.Reachable(both) || c.Stats().Unreachable != 1 {
		t.Errorf("%+v", c.Stats())
	}
	var late acts.Pending
	if !errors.As(left.Err, &late) {
		t.Fatalf("no outcome will come: %v", left.Err)
	}
	landed := make(chan *weir.Act, 2)
	late.Then(func(a *weir.Act) { landed <- a })
	goOn()
	if a := <-landed; a.Err != nil || !a.Allowed() {
		t.Errorf("the outcome: %+v, %v", a.Decisions, a.Err)
	}
	late.Then(func(a *weir.Act) { landed <- a })
	if a := <-landed; !a.Allowed() {
		t.Error("it is not told again")
	}
	testserver.Eventually(t, "back", func() bool { return c.Stats().Unreachable == 0 })
	if again := act("bad:k", 1); true {
		if c.Take(t.Context(), []*weir.Act{again}); again.Err != nil || again.Decisions[0].Remaining != perDay.Capacity()-2 {
			t.Errorf("afterwards: %+v, %v", again.Decisions, again.Err)
		}
	}
}

// TestCallsSinceBeforeAnOutage: an outage that begins once a caller has made sure that the store may
// decide cuts the call off, even if it is over when the call is sent, and calls of the same node only.
func TestCallsSinceBeforeAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := hang(t, Options{Responsive: func() bool { return true }})
		before, goOn := c.Begun(), store.stop(t, "a")
		<-ask(c, act("a:first", 1)) // by the outage
		for goOn(); !c.Reaches("a"); {
			time.Sleep(outage.Tick)
		}
		for _, tc := range []struct {
			key    string
			since  int64
			cutOff bool
		}{{"a:key", before, true}, {"a:key", c.Begun(), false}, {"b:key", before, false}} {
			a := act(tc.key, 1)
			c.TakeSince(t.Context(), tc.since, []*weir.Act{a})
			var out *outage.Error
			var late acts.Pending
			if (errors.As(a.Err, &out) && errors.As(a.Err, &late)) != tc.cutOff || a.Allowed() == tc.cutOff {
				t.Errorf("%s since %d: %v, %v", tc.key, tc.since, a.Decisions, a.Err)
			}
			if late == nil {
				continue
			}
			granted := false
			late.Then(func(reply *weir.Act) { granted = reply.Allowed() })
			if !granted {
				t.Error("the reply is lost")
			}
		}
	})
}

// TestTimesOfAnOutage: silence of less than 200 ms is no outage. Callers of a node that stays silent
// are answered then, later ones at once, and a node that goes on is called again within 300 ms.
func TestTimesOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHanging()
		c := New(h, Options{Responsive: func() bool { return true }})
		answered := func(a *weir.Act) time.Duration {
			began := time.Now()
			<-ask(c, a)
			return time.Since(began)
		}
		goOn := h.stop(t, "late")
		time.AfterFunc(190*time.Millisecond, goOn)
		if a := act("late:k", 1); answered(a) != 190*time.Millisecond || a.Err != nil || c.Stats().Outages > 0 {
			t.Errorf("a late reply: %v, %d outages", a.Err, c.Stats().Outages)
		}
		goOn = h.stop(t, "out")
		if d := answered(act("out:k", 1)); d < 200*time.Millisecond || d > 220*time.Millisecond {
			t.Errorf("the first caller was answered after %v", d)
		}
		if d := answered(act("out:k", 1)); d > 0 {
			t.Errorf("a later caller was answered after %v", d)
		}
		time.Sleep(time.Minute)
		goOn()
		if time.Sleep(300 * time.Millisecond); c.Stats().Unreachable > 0 {
			t.Error("still unreachable")
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOutageOfOneOfSeveral: an act of two nodes is answered when one goes out, and keeps
// no lane from acts of two others.
func TestOutageOfOneOfSeveral(t *testing.T) {
	t.Parallel()
	h, c := hang(t, Options{Silence: 20 * time.Millisecond, Late: time.Hour})
	h.stop(t, "bad")
	of := func(a, b string) *weir.Act {
		return storetest.NewAct(weir.Charge{Key: a, Limit: perDay, Cost: 1}, weir.Charge{Key: b, Limit: perDay, Cost: 1})
	}
	torn := of("good:k", "bad:k")
	<-ask(c, torn)
	if !errors.Is(torn.Err, weir.ErrAmbiguous) {
		t.Errorf("%v", torn.Err)
	}
	for range 3 {
		whole := of("good:k", "fine:k")
		if <-ask(c, whole); whole.Err != nil {
			t.Error(whole.Err)
		}
	}
}

// TestLateCallsFreeTheirLane, so many of them; their callers have the replies.
func TestLateCallsFreeTheirLane(t *testing.T) {
	t.Parallel()
	h, c := hang(t, Options{Silence: time.Hour, Late: 10 * time.Millisecond})
	goOn := h.stop(t, "slow")
	var all []chan struct{}
	var acts []*weir.Act
	for i := range 12 {
		a := act("slow:k", 1)
		acts, all = append(acts, a), append(all, ask(c, a))
		if want := int64(min(i+1, 9)); want == int64(i+1) {
			testserver.Eventually(t, fmt.Sprint(want, " in flight"), func() bool { return h.calls.Load() == want })
		}
	}
	time.Sleep(50 * time.Millisecond)
	if n := h.calls.Load(); n != 9 {
		t.Errorf("%d calls in flight, want 1 and 8 that are late", n)
	}
	goOn()
	for i := range all {
		if <-all[i]; acts[i].Err != nil {
			t.Error(acts[i].Err)
		}
	}
}

// A halfDead store is one whose probes are answered and whose calls may hang.
type halfDead struct{ *hanging }

func (halfDead) Probe(context.Context, string) error { return nil }

// TestDeadConnectionsFreeTheirLane: calls without a reply keep the others waiting for two
// seconds, while probes show that the node is well.
func TestDeadConnectionsFreeTheirLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := halfDead{newHanging()}
		c := New(h, Options{Late: 10 * time.Millisecond, Responsive: func() bool { return true }})
		goOn, all := h.stop(t, "slow"), []chan struct{}(nil)
		for range maxLate + 2 {
			all = append(all, ask(c, act("slow:k", 1)))
			time.Sleep(50 * time.Millisecond)
		}
		if n := h.calls.Load(); n != maxLate+1 {
			t.Errorf("%d calls in flight, want 1 and %d that are late", n, maxLate)
		}
		time.Sleep(3 * time.Second)
		if n := h.calls.Load(); n != maxLate+2 || len(c.Outages()) > 0 {
			t.Errorf("after two seconds %d calls are in flight, want %d; %v", n, maxLate+2, c.Outages())
		}
		goOn()
		for _, done := range all {
			<-done
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStopWaitsForLateReplies, as long as its context lasts.
func TestStopWaitsForLateReplies(t *testing.T) {
	t.Parallel()
	h := newHanging()
	c := New(h, Options{Silence: time.Hour})
	goOn := h.stop(t, "n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c.Take(ctx, []*weir.Act{act("n:k", 1)})
	if err := c.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 calls") {
		t.Error(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(context.Background()) }()
	goOn()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A frozen store is a node that reads calls and answers nothing. It keeps late replies.
type frozen struct {
	storetest.Alone
	mu   sync.Mutex // guards what follows
	late []*storetest.LateAct
}

func (*frozen) Locate(a *weir.Act) (node string, lane int, alone bool) {
	return "", int(a.Charges[0].Key[0]), true
}

func (*frozen) Keeps() bool { return true }

func (*frozen) Probe(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f *frozen) Take(ctx context.Context, all []*weir.Act) {
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range all {
		f.late = append(f.late, storetest.NewLateAct(a))
	}
}

// TestLoneCallsAreReleased: calls that wait on their callers' goroutines end with the outage, too,
// however long their callers would wait. Their replies are still awaited.
func TestLoneCallsAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &frozen{}
		c := New(store, Options{MaxLanes: 32, Responsive: func() bool { return true }})
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began, a := time.Now(), act(string(rune('a'+i)), 1)
				c.Take(ctx, []*weir.Act{a})
				var out *outage.Error
				var late acts.Pending
				if took := time.Since(began); took > 300*time.Millisecond || !errors.As(a.Err, &out) || !errors.As(a.Err, &late) {
					t.Errorf("after %v: %v", took, a.Err)
				}
			})
		}
		work.Wait()
		if n := len(store.late); n != 20 {
			t.Errorf("%d replies are awaited", n)
		}
		for _, late := range store.late {
			late.Land(func(a *weir.Act) { a.Err = weir.ErrAmbiguous })
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A piecemeal store sends each act by itself, and all replies are late.
type piecemeal struct {
	hanging
	mu   sync.Mutex
	late []*storetest.LateAct
}

// land lets the reply to one of them come, and be that of a store that grants.
func (p *piecemeal) land(i int) {
	p.late[i].Land(func(a *weir.Act) {
		a.Err, a.Decisions[0] = nil, weir.Decision{Outcome: weir.Granted, Granted: a.Charges[0].Cost, Source: acts.SourceStore}
	})
}

func (*piecemeal) Keeps() bool { return true }

func (p *piecemeal) Take(_ context.Context, acts []*weir.Act) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range acts {
		p.late = append(p.late, storetest.NewLateAct(a))
	}
}

// TestEveryReplyOfACallIsAwaited: acts of one call may have left in several, whose
// replies come by themselves.
func TestEveryReplyOfACallIsAwaited(t *testing.T) {
	t.Parallel()
	p := &piecemeal{}
	c := New(p, Options{Silence: time.Hour})
	acts := []*weir.Act{act("n:a", 1), act("n:b", 2), act("n:c", 3)}
	done := ask(c, acts...)
	testserver.Eventually(t, "in flight", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.late) == 3 })
	p.land(0)
	p.land(2)
	select {
	case <-done:
		t.Error("answered although one reply is missing")
	case <-time.After(20 * time.Millisecond):
	}
	p.land(1)
	<-done
	for i, a := range acts {
		if a.Err != nil || a.Decisions[0].Granted != int64(i+1) {
			t.Errorf("%+v, %v", a.Decisions, a.Err)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLateCallsAreNotOvertaken: a lone call whose caller has left keeps its lane for a
// while, and the next one leaves behind it.
func TestLateCallsAreNotOvertaken(t *testing.T) {
	t.Parallel()
	p := &piecemeal{}
	c := New(p, Options{Silence: time.Hour, Late: time.Hour})
	out := func() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.late) }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	c.Take(ctx, []*weir.Act{act("n:k", 1)})
	second := act("n:k", 1)
	done := ask(c, second)
	testserver.Eventually(t, "waits", func() bool { return c.Stats().Waiting == 1 })
	if out() != 1 {
		t.Error("it was overtaken")
	}
	p.land(0)
	testserver.Eventually(t, "leaves", func() bool { return out() == 2 })
	p.land(1)
	if <-done; second.Err != nil {
		t.Error(second.Err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
