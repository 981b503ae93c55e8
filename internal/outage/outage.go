// Package outage distinguishes an outage of a store's node from a late reply: an outage is
// silence that a probe confirms.
//
// A node is silent when a call was sent to it and no reply has come from it for a while. It
// is probed then, on a connection of its own, and it is unreachable if the probe fails or is
// not answered in time either. Any reply ends the doubt. Only time in which this process was
// responsive counts: a busy machine, a garbage collection or a frozen process delays replies,
// but it also stops the clock. A node that has been slow to reply, because it is far away or
// gets little processor time, may be silent for longer than others.
//
// A node that refuses to decide or breaks connections several times in a row is unreachable
// at once.
package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// DefaultSilence is how long a node may be silent.
	DefaultSilence = 50 * time.Millisecond
	// doubtTimeout ends the probe of a silent node in any case.
	doubtTimeout = 2 * time.Second
	// Tick is how often a [Watch] looks at its nodes while calls are in flight.
	Tick = 5 * time.Millisecond
	// maxNodes bounds how many nodes are told apart. Names come from the store, so
	// only a cluster that changes its members for ever comes near it.
	maxNodes = 1024
	// whenStopped is the reason of a recovery that is none: the watch has stopped.
	whenStopped = "stopped"
)

// An Error says that a node is unreachable, since when and why. It has no class: calls
// that were in flight when the outage began may have been applied, and later ones were
// not.
type Error struct {
	Node  string
	Since time.Time
	// Cause is the last error before the outage, or wraps [ErrSilent].
	Cause error

	number int64       // of the outages of all nodes, from 1
	logged atomic.Bool // it has begun in the log, so it ends there
}

// ErrNodeWell is in errors of a node that is well: it cannot decide that act only.
var ErrNodeWell = errors.New("the node is well")

// ErrSilent says that a node sent no reply for longer than it may be silent.
var ErrSilent = errors.New("no reply")

// Error names the node, the time and the cause, without the class of the call that met
// the cause.
func (e *Error) Error() string {
	node := ""
	if e.Node != "" {
		node = " " + e.Node
	}
	return fmt.Sprintf("the store%s is unreachable since %s: %s", node, e.Since.UTC().Format(time.RFC3339), causeText(e.Cause))
}

// causeText returns the text of an error without classes: its own, and that of a probe after a
// silence.
func causeText(err error) string {
	err = classless(err)
	text := err.Error()
	if list, joined := err.(interface{ Unwrap() []error }); joined {
		for _, part := range list.Unwrap() {
			text = strings.Replace(text, part.Error(), classless(part).Error(), 1)
		}
	}
	return text
}

// classless returns the error that a class was added to, or err if it has no class.
func classless(err error) error {
	for inner := err; inner != nil; {
		list, joined := inner.(interface{ Unwrap() []error })
		if !joined {
			inner = errors.Unwrap(inner)
			continue
		}
		parts := list.Unwrap()
		if i := slices.IndexFunc(parts, isClass); i >= 0 && i+1 < len(parts) {
			return parts[i+1]
		}
		break
	}
	return err
}

func isClass(err error) bool {
	return err == weir.ErrNotApplied || err == weir.ErrAmbiguous || err == weir.ErrMisconfigured
}

// Silent reports whether the node was silent; else it refused calls or lost them.
func (e *Error) Silent() bool { return errors.Is(e.Cause, ErrSilent) }

// Options are the settings of a [Watch].
type Options struct {
	// Silence is how long a node may be silent until it is probed. A node whose last replies were slow may
	// be silent for three times as long as these took, and at most for five times
	// Silence. Zero: [DefaultSilence].
	Silence time.Duration
	// Probe has a node write something, and returns an error unless it did. It is called
	// once for a node that is silent, and again and again for one that is unreachable, at most
	// twice at a time.
	Probe func(ctx context.Context, node string) error
	// Responsive reports whether this process was able to receive replies since the last
	// call. It is called at every tick. Nil: a pipe shows it.
	Responsive func() bool
	// OnTick is called by the watching goroutine at every tick, after the nodes were
	// judged, and must not wait. Responsive is as above. The ticks go on while it reports that
	// it needs them.
	OnTick func(responsive bool) (needed bool)
	// Logger receives a line when an outage begins and one when it ends. Nil: none.
	Logger *slog.Logger
}

// A Watch judges the nodes of one store. It is safe for concurrent use. New starts
// nothing: one goroutine watches while calls are in flight, and one probes each
// unreachable node. Stop waits for them.
type Watch struct {
	Options
	limit int // ticks of silence

	nodes       atomic.Pointer[map[string]*Node]
	unreachable atomic.Int32 // nodes
	outages     atomic.Int64 // since the start
	asleep      atomic.Bool  // nobody watches
	echo        echo

	mu        sync.Mutex // guards what follows; never held while waiting
	stopped   bool
	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	nextTick  chan struct{} // closed at the next tick at which the process was responsive
	afterNext chan struct{} // closed at the one after that
}

// New returns a watch without nodes.
func New(o Options) *Watch {
	o.Silence = cmp.Or(max(o.Silence, 0), DefaultSilence)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	w := &Watch{Options: o, limit: int(max(1, (o.Silence+Tick-1)/Tick))}
	w.nodes.Store(&map[string]*Node{})
	w.asleep.Store(true)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Node returns the node of a name, which it adds if need be. Names beyond a bound share
// one node.
func (w *Watch) Node(name string) *Node {
	if n := (*w.nodes.Load())[name]; n != nil {
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := *w.nodes.Load()
	if len(known) >= maxNodes {
		name = ""
	}
	if n := known[name]; n != nil {
		return n
	}
	n := &Node{Name: name, watch: w}
	more := maps.Clone(known)
	more[name] = n
	w.nodes.Store(&more)
	return n
}

// Nodes returns all nodes, in no order.
func (w *Watch) Nodes() []*Node { return slices.Collect(maps.Values(*w.nodes.Load())) }

// Any reports whether any node is unreachable.
func (w *Watch) Any() bool { return w.unreachable.Load() > 0 }

// Verdict returns how long a node that used to reply at once may be silent until it is
// unreachable.
func (w *Watch) Verdict() time.Duration {
	return time.Duration(w.limit+probePatience+1) * Tick
}

// Outages returns the number of outages that have begun since the start.
func (w *Watch) Outages() int64 { return w.outages.Load() }

// wake starts the watching goroutine unless it runs.
func (w *Watch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || !w.asleep.Load() {
		return
	}
	if w.Responsive == nil && !w.echo.open() {
		// Without a pipe nothing shows whether this process is responsive: judge nothing.
		return
	}
	w.asleep.Store(false)
	w.work.Go(w.run)
}

// idleTicks is for how many ticks nothing is in flight before the watch sleeps, so
// that calls that come one by one do not wake it each time.
const idleTicks = 20

func (w *Watch) run() {
	ticker := time.NewTicker(Tick)
	defer ticker.Stop()
	for idle := 0; ; {
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			w.sleep(true)
			return
		}
		responsive := w.responsive()
		idle++
		for _, n := range *w.nodes.Load() {
			if n.tick(responsive, w.limit) {
				idle = 0
			}
		}
		if w.OnTick != nil && w.OnTick(responsive) {
			idle = 0
		}
		if responsive {
			w.ticked()
		}
		if idle > idleTicks && w.sleep(false) {
			return
		}
	}
}

// responsive reports whether this process was able to receive replies since the last
// tick. A reply that has come shows it as well as an echo does, unless somebody wants all
// of them read; an echo at each tick takes 1 µs of the 20 of a call that is alone.
func (w *Watch) responsive() bool {
	if w.Responsive != nil {
		return w.Responsive()
	}
	replied := false
	for _, n := range *w.nodes.Load() {
		replied = n.gotReply() || replied
	}
	if replied && !w.awaited() {
		w.echo.awaited = false
		return true
	}
	return w.echo.returned()
}

// awaited reports whether somebody waits for whole ticks.
func (w *Watch) awaited() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nextTick != nil || w.afterNext != nil
}

// sleep ends the watching, unless something is in flight again.
func (w *Watch) sleep(always bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asleep.Store(true)
	for _, n := range *w.nodes.Load() {
		if !always && uint32(n.inFlight.Load()) > 0 {
			w.asleep.Store(false)
			return false
		}
	}
	if w.Responsive == nil {
		w.echo.close()
	}
	for _, c := range []chan struct{}{w.nextTick, w.afterNext} {
		if c != nil {
			close(c)
		}
	}
	w.nextTick, w.afterNext = nil, nil
	return true
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// WholeTick returns a channel that is closed once this process was responsive for a whole
// tick from now, or at once if nobody watches: replies that came before are read by then.
func (w *Watch) WholeTick() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asleep.Load() {
		return closed
	}
	if w.afterNext == nil {
		w.afterNext = make(chan struct{})
	}
	return w.afterNext
}

// ticked ends the waits of those who have waited for a whole tick.
func (w *Watch) ticked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nextTick != nil {
		close(w.nextTick)
	}
	w.nextTick, w.afterNext = w.afterNext, nil
}

// Stop ends watching and probing, and waits for both. All outages end, so that every
// later call asks the store. It may be called again.
func (w *Watch) Stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.cancel()
	w.work.Wait()
	for _, n := range w.Nodes() {
		n.recover(whenStopped)
	}
}

// A probe may take probeTimeout. The next one follows after probePause on average, and
// after probeLater once probeSoon have failed, so that many instances do not keep a
// recovering node busy; or after probeBarred if the node does not let us in. Beside those,
// one at a time may take patientProbe, for a node that is far away or gets little CPU.
const (
	probeTimeout = 200 * time.Millisecond
	patientProbe = 5 * time.Second
	probePause   = 20 * time.Millisecond
	probeLater   = 150 * time.Millisecond
	probeBarred  = time.Second
	probeSoon    = 50
)

// probe probes a node until it answers or a late reply ends that outage.
func (w *Watch) probe(n *Node, out *Error) {
	ctx, cancel := context.WithCancel(w.ctx)
	var patient sync.WaitGroup
	defer patient.Wait()
	defer cancel()
	var waiting atomic.Bool
	for tries := 0; n.outage.Load() == out; tries++ {
		err := w.ask(ctx, n, probeTimeout)
		pause := probePause
		switch {
		case err == nil:
			return
		case errors.Is(err, weir.ErrMisconfigured):
			pause = probeBarred
		case tries >= probeSoon:
			pause = probeLater
		}
		if errors.Is(err, errNoAnswer) && waiting.CompareAndSwap(false, true) {
			patient.Go(func() {
				defer waiting.Store(false)
				_ = w.ask(ctx, n, patientProbe)
			})
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-w.ctx.Done():
			return
		}
	}
}

// errNoAnswer says that a probe took all of its time.
var errNoAnswer = errors.New("the probe was not answered in time")

// ask probes a node once, and ends its outage if it answers.
func (w *Watch) ask(ctx context.Context, n *Node, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	if err := w.Probe(ctx, n.Name); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	n.answered.Add(1)
	n.recover("a probe was answered")
	return nil
}

// An echo is a byte that this process sends to itself through the poller and the run
// queue that replies come through: until it has come back, no reply could have been
// received either.
type echo struct {
	in       *os.File
	received *atomic.Int64
	sent     int64
	awaited  bool // the last byte was sent at the last tick, or is still on its way
}

// open makes the pipe, and reports whether it could.
func (e *echo) open() bool {
	out, in, err := os.Pipe()
	if err != nil {
		return false
	}
	*e = echo{in: in, received: new(atomic.Int64)}
	go receive(out, e.received) // ends when the pipe is closed
	return true
}

func receive(out *os.File, received *atomic.Int64) {
	defer out.Close()
	buffer := make([]byte, 16)
	for {
		n, err := out.Read(buffer)
		if err != nil {
			return
		}
		received.Add(int64(n))
	}
}

// returned reports whether the last byte has come back, and sends the next one if so.
func (e *echo) returned() bool {
	if e.received.Load() < e.sent {
		return false
	}
	returned := e.awaited
	if n, err := e.in.Write([]byte{0}); err == nil {
		e.sent += int64(n)
		e.awaited = true
	}
	return returned
}

func (e *echo) close() { _ = e.in.Close() }
