// Package outage tells an outage of a store's node from lateness.
//
// A node is silent when a call was sent to it and no reply has come from it for a
// while in which this process was running and able to hear. A busy machine, a
// garbage collection or a frozen process delays replies, but it delays the process's
// own clock with them, so it is not taken for an outage. A node that has been slow to
// reply, because it is far away or gets little processor time, may be silent for longer
// than others.
package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// DefaultSilence is how long a node may be silent.
	DefaultSilence = 50 * time.Millisecond
	// Tick is how often a [Watch] looks at its nodes while calls are in flight.
	Tick = 5 * time.Millisecond
	// maxNodes bounds how many nodes are told apart. Names come from the store, so
	// only a cluster that changes its members for ever comes near it.
	maxNodes = 1024
)

// An Error says that a node is out: since when, and why. It has no class: calls that had
// left when the node went out may have been applied, and later ones were not.
type Error struct {
	Node  string
	Since time.Time
	// Cause is the last error before the verdict, or [ErrSilent].
	Cause error
}

// ErrSilent says that a node sent no reply for as long as it may be silent.
var ErrSilent = errors.New("no reply")

// Error names the node, the time and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("the store%s is unreachable since %s: %v", named(" ", e.Node), e.Since.UTC().Format(time.RFC3339), plain(e.Cause))
}

// plain is the text of a cause without the class of the call that met it.
func plain(cause error) string {
	text := cause.Error()
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured} {
		if _, after, found := strings.Cut(text, class.Error()+": "); found {
			return after
		}
	}
	return text
}

// Silent reports whether the node was silent, and not refusing.
func (e *Error) Silent() bool { return errors.Is(e.Cause, ErrSilent) }

func named(before, node string) string {
	if node == "" {
		return ""
	}
	return before + node
}

// Options are the settings of a [Watch].
type Options struct {
	// Silence is how long a node may be silent; one whose last replies were slow, three
	// times as long as these took, and at most five times Silence. Zero: [DefaultSilence].
	Silence time.Duration
	// Probe asks a node to write something, and returns an error unless it did. It
	// is called while a node is out, by one goroutine for each node.
	Probe func(ctx context.Context, node string) error
	// Hears reports whether this process was able to hear since it was last asked. It is
	// called at every tick. Nil: a pipe tells.
	Hears func() bool
	// Looked is called by the watching goroutine at every tick, after the nodes were
	// judged, and must not wait. Heard reports whether the process was able to hear
	// since the last tick.
	Looked func(heard bool)
	// Rest is called when the watch goes to sleep because nothing is in flight.
	Rest func()
	// Logger receives a line when a node goes out and one when it is back. Nil: none.
	Logger *slog.Logger
}

// A Watch judges the nodes of one store. It is safe for concurrent use. New starts
// nothing: one goroutine watches while calls are in flight, and one for each node
// that is out probes it. Stop waits for them.
type Watch struct {
	Options
	limit int // ticks of silence

	nodes  atomic.Pointer[map[string]*Node]
	out    atomic.Int32 // how many nodes are out
	begun  atomic.Int64 // outages since the start
	asleep atomic.Bool
	echo   echo

	mu      sync.Mutex // guards what follows; never held while waiting
	stopped bool
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	next    chan struct{} // closed at the next tick but one that heard
	later   chan struct{}
}

// New returns a watch that knows no node.
func New(o Options) *Watch {
	o.Silence = cmp.Or(max(o.Silence, 0), DefaultSilence)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	w := &Watch{Options: o, limit: int(max(1, (o.Silence+Tick-1)/Tick))}
	w.nodes.Store(&map[string]*Node{})
	w.asleep.Store(true)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Node returns the node of a name. Names beyond a bound share one node.
func (w *Watch) Node(name string) *Node {
	if n := (*w.nodes.Load())[name]; n != nil {
		return n
	}
	return w.add(name)
}

func (w *Watch) add(name string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := *w.nodes.Load()
	if len(known) >= maxNodes {
		name = ""
	}
	if n := known[name]; n != nil {
		return n
	}
	more := make(map[string]*Node, len(known)+1)
	for key, n := range known {
		more[key] = n
	}
	n := &Node{Name: name, watch: w}
	more[name] = n
	w.nodes.Store(&more)
	return n
}

// Nodes returns all nodes that were asked for.
func (w *Watch) Nodes() []*Node {
	known := *w.nodes.Load()
	all := make([]*Node, 0, len(known))
	for _, n := range known {
		all = append(all, n)
	}
	return all
}

// Any reports whether any node is out.
func (w *Watch) Any() bool { return w.out.Load() > 0 }

// Begun is how many outages there were since the start.
func (w *Watch) Begun() int64 { return w.begun.Load() }

// wake starts the watching goroutine unless it runs.
func (w *Watch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || !w.asleep.Load() {
		return
	}
	if w.Hears == nil && !w.echo.open() {
		// Without a pipe nothing tells whether this process hears: judge nothing.
		return
	}
	w.asleep.Store(false)
	w.work.Go(w.run)
}

// idleTicks is for how many ticks nothing is in flight before the watch sleeps, so
// that calls that come one by one do not wake it each time.
const idleTicks = 20

// hears reports whether this process was able to hear since the last tick.
func (w *Watch) hears() bool {
	if w.Hears != nil {
		return w.Hears()
	}
	return w.echo.returned()
}

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
		heard := w.hears()
		if w.look(heard) {
			idle = 0
		} else {
			idle++
		}
		if w.Looked != nil {
			w.Looked(heard)
		}
		if heard {
			w.listened()
		}
		if idle > idleTicks && w.sleep(false) {
			return
		}
	}
}

// look judges all nodes and reports whether anything is in flight.
func (w *Watch) look(heard bool) bool {
	busy := false
	for _, n := range *w.nodes.Load() {
		busy = n.look(heard, w.limit) || busy
	}
	return busy
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
	if w.Hears == nil {
		w.echo.close()
	}
	w.release()
	if w.Rest != nil {
		w.Rest()
	}
	return true
}

// Heard returns a channel that is closed once this process was able to hear for a
// whole tick from now, or at once if nobody watches.
func (w *Watch) Heard() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asleep.Load() {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if w.later == nil {
		w.later = make(chan struct{})
	}
	return w.later
}

// listened ends the waits of those who have been here for a whole tick.
func (w *Watch) listened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		close(w.next)
	}
	w.next, w.later = w.later, nil
}

// release ends all waits.
func (w *Watch) release() {
	for _, c := range []chan struct{}{w.next, w.later} {
		if c != nil {
			close(c)
		}
	}
	w.next, w.later = nil, nil
}

// Stop ends watching and probing: nodes that are out count as back, so that every
// call asks the store. It returns when nothing runs any more. It may be called again.
func (w *Watch) Stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.cancel()
	w.work.Wait()
	for _, n := range w.Nodes() {
		n.back("stopped")
	}
}

// What a probe may take, and how long it is until the next one: at first, and once
// an outage lasts, so that many instances do not keep a node busy that is coming back.
const (
	probeTimeout = 200 * time.Millisecond
	probePause   = 20 * time.Millisecond
	probeLater   = 150 * time.Millisecond
	probeBarred  = time.Second
	probeSoon    = 50 // probes
)

// probe asks a node until it answers or is back by a late reply.
func (w *Watch) probe(n *Node) {
	for tried := 0; n.out.Load() != nil; tried++ {
		ctx, cancel := context.WithTimeout(w.ctx, probeTimeout)
		err := w.Probe(ctx, n.Name)
		cancel()
		pause := probePause
		switch {
		case err == nil:
			n.back("a probe was answered")
			return
		case errors.Is(err, weir.ErrMisconfigured):
			pause = probeBarred
		case tried >= probeSoon:
			pause = probeLater
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-w.ctx.Done():
			return
		}
	}
}
