// Package coalesce owns the calls of a remote store. It wraps a [weir.Taker] that
// costs a round trip.
//
// Acts that wait for the store leave together, in one call of the store, each decided
// by itself, in the order in which they came. A call that finds its lane idle leaves
// at once; calls that come while one is in flight wait for it to return. No timer
// gathers them, so batches grow with the load, and only then. A batch leaves once the
// callers of the one before have been woken and have run: what they ask next is in it.
//
// A caller waits as long as its context lasts. The call itself goes on without it: its
// acts are copies, the reply still arrives, and [weir.Pending] delivers it to the layer
// that answered the caller instead.
//
// A node of the store that sends no reply to any call for [Options.Silence], of time in
// which this process was able to hear, is out: all callers that wait for it are
// answered at once with an error, and later ones without asking, until a late reply or
// a probe shows that the node is back. See package internal/outage.
package coalesce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/outage"
)

// What the fields of [Options] are if they are zero.
const (
	DefaultMaxBatch   = 256
	DefaultMaxLanes   = 16
	DefaultMaxWaiting = 10_000
	DefaultTimeout    = 10 * time.Second
	DefaultSilence    = outage.DefaultSilence
	DefaultLate       = 20 * time.Millisecond
)

// maxLate is how many calls to one node may be out for longer than [Options.Late],
// beside one in each lane. It bounds memory and connections.
const maxLate = 8

// Options are the settings of a [Coalescer]. The zero value is a good one;
// negative fields count as zero.
type Options struct {
	// MaxBatch is how many acts of different calls leave together; the acts of
	// one call always do. Zero: [DefaultMaxBatch].
	MaxBatch int
	// MaxLanes is how many calls are in flight to one node at most, calls that are late
	// aside; a store that names more lanes has several in one. Zero: [DefaultMaxLanes].
	MaxLanes int
	// MaxWaiting is how many acts may wait in a lane; a call that finds more is
	// answered with [ErrFull]. Zero: [DefaultMaxWaiting].
	MaxWaiting int
	// Timeout is how long a call of the store goes on after its callers have left,
	// or up to a sixteenth less. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Silence is for how long a node may leave every call without a reply before it
	// is out; one whose last replies were slow, for up to five times as long. Zero:
	// [DefaultSilence].
	Silence time.Duration
	// Late is after how long a call no longer keeps the next one in its lane waiting.
	// Zero: [DefaultLate].
	Late time.Duration
	// Hears reports whether this process was able to hear since it was last asked. Nil:
	// a pipe tells; in virtual time nothing comes back through one.
	Hears func() bool
	// Logger receives a line when a node goes out and one when it is back. Nil: none.
	Logger *slog.Logger
}

// A Laner is a [weir.Taker] that can do more than one thing at a time: what it
// has to do in one lane does not hold up the others.
type Laner interface {
	// Lane returns the number of the lane for an act. Acts that begin with the
	// same key have the same lane. It never fails, however invalid the act.
	Lane(act *weir.Act) int
}

// A Noder is a [Laner] that consists of several nodes, which fail by themselves.
type Noder interface {
	Laner
	// Node returns the name of the node that decides an act, and reports whether no
	// other one has a part in it.
	Node(act *weir.Act) (name string, alone bool)
	// Nodes returns the names of all nodes that have a part in an act.
	Nodes(act *weir.Act) []string
}

// A Prober is a [weir.Taker] that can be asked for a sign of life.
type Prober interface {
	// Probe has a node write something, on a connection of its own, and returns an
	// error unless it did before ctx ended.
	Probe(ctx context.Context, node string) error
}

// A Keeper is a [weir.Taker] whose calls may wait on their callers' goroutines, because
// they can end before their replies come and have them all the same. Where it keeps
// nothing, a call waits on a goroutine of the Coalescer's.
type Keeper interface {
	// Keeps reports whether the error of a call that ends before its reply comes is a
	// [weir.Pending].
	Keeps() bool
	// Interrupt ends the calls that wait for a reply.
	Interrupt()
}

// A Signer is a [weir.Taker] that notices when a node of it says something that is no
// reply to a call: that it greets a connection, or does not know a script.
type Signer interface {
	// OnSign has f called with the name of the node each time, from many goroutines.
	OnSign(f func(node string))
}

// ProbeKey is the key that is charged to find out whether a store answers that is no
// [Prober].
const ProbeKey = "coalesce;probe"

var probeLimit = weir.Limit{Count: 1_000_000, Period: time.Second}.MustCompile()

// ErrFull says that too many calls were waiting for the store already. Its class
// is [weir.ErrNotApplied].
var ErrFull = fmt.Errorf("%w: too many calls wait for the store", weir.ErrNotApplied)

// A Coalescer asks another Taker, for several callers at a time. It is safe for
// concurrent use. Create it with Wrap; it starts nothing before the first call, and
// Stop waits for what is in flight.
type Coalescer struct {
	Options
	next  weir.Taker
	laner Laner // nil: all acts have one lane
	noder Noder // nil: there is one node
	// keeper lets lone calls wait on their callers' goroutines; nil: none.
	keeper Keeper
	watch  *outage.Watch
	ends   *deadline.Group
	only   *node // where there is one

	nodes   sync.Map   // of *node by name
	hands   chan *lane // to workers that wait for more
	rest    atomic.Pointer[chan struct{}]
	working sync.WaitGroup
	mu      sync.Mutex // guards stopped
	stopped bool
	out     atomic.Int64                  // calls of the store that have not returned
	none    atomic.Pointer[chan struct{}] // closed when there are none; nil if nobody waits
	late    atomic.Int64                  // replies that came after their callers had left
}

// Wrap returns a Coalescer that asks next. If next is a [Laner], one call is in
// flight in each lane, else one at all, calls that are late aside.
func Wrap(next weir.Taker, o Options) *Coalescer {
	o.MaxBatch = cmp.Or(max(o.MaxBatch, 0), DefaultMaxBatch)
	o.MaxLanes = cmp.Or(max(o.MaxLanes, 0), DefaultMaxLanes)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	o.Timeout = cmp.Or(max(o.Timeout, 0), DefaultTimeout)
	o.Late = cmp.Or(max(o.Late, 0), DefaultLate)
	c := &Coalescer{Options: o, next: next, ends: deadline.NewGroup(o.Timeout), hands: make(chan *lane)}
	c.laner, _ = weir.As[Laner](next)
	c.noder, _ = weir.As[Noder](next)
	if k, ok := weir.As[Keeper](next); ok && k.Keeps() {
		c.keeper = k
	}
	if c.laner == nil {
		c.MaxLanes = 1
	}
	c.watch = outage.New(outage.Options{
		Silence: o.Silence, Hears: o.Hears, Probe: c.probe, Looked: c.look, Rest: c.sendHome, Logger: o.Logger,
	})
	c.sendHome()
	if c.noder == nil {
		c.only = c.node("")
	}
	if s, ok := weir.As[Signer](next); ok {
		s.OnSign(c.sign)
	}
	return c
}

// Unwrap returns the Taker that c asks.
func (c *Coalescer) Unwrap() weir.Taker { return c.next }

// probe asks a node for a sign of life. A store that panics gives none.
func (c *Coalescer) probe(ctx context.Context, node string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("weir: probe: %w: the store panicked: %v", weir.ErrAmbiguous, cause)
		}
	}()
	if p, ok := weir.As[Prober](c.next); ok {
		return p.Probe(ctx, node)
	}
	a := weir.Act{Charges: []weir.Charge{{Key: ProbeKey, Limit: probeLimit, Cost: 1}}, Decisions: make([]weir.Decision, 1)}
	c.next.Take(ctx, []*weir.Act{&a})
	return a.Err
}

// Take decides the acts. Each caller's context is its own: once it ends, Take
// returns. What had not left by then is not charged, and its error is of the
// class [weir.ErrNotApplied]; what had left is charged or not, once, and its
// error is of the class [weir.ErrAmbiguous] and a [weir.Pending]. Both wrap the
// context's error, or an [outage.Error] where the node has gone out.
//
// A call of the store has the values of its caller's context if it carries the acts of
// one caller, and never its end. If the wrapped Taker panics, so does each call that
// waits for it.
//
// Acts of different lanes leave in different calls, at different instants,
// unless they have a key in common.
func (c *Coalescer) Take(ctx context.Context, acts []*weir.Act) {
	if err := ctx.Err(); err != nil {
		fail(acts, weir.ErrNotApplied, err)
		return
	}
	if c.watch.Any() {
		acts = c.reachable(acts)
	}
	if len(acts) == 0 {
		return
	}
	if l := c.lane(acts[0]); len(acts) == 1 || c.sameLane(l, acts) {
		c.take(ctx, l, acts)
	} else if l := c.shared(acts); l != nil {
		c.take(ctx, l, acts)
	} else {
		c.split(ctx, acts)
	}
}

// fail says by its class what an end means for the acts.
func fail(acts []*weir.Act, class, err error) {
	for _, a := range acts {
		a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, class, err)
	}
}

// reachable answers the acts that touch a node that is out, and returns the others.
func (c *Coalescer) reachable(acts []*weir.Act) []*weir.Act {
	left := make([]*weir.Act, 0, len(acts))
	for _, a := range acts {
		if out := c.outOf(a); out != nil {
			a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
			continue
		}
		left = append(left, a)
	}
	return left
}

// Reachable reports whether the store would be asked for an act: no node that has a part
// in it is out.
func (c *Coalescer) Reachable(a *weir.Act) bool { return !c.watch.Any() || c.outOf(a) == nil }

// outOf returns the outage that an act would meet; nil if there is none.
func (c *Coalescer) outOf(a *weir.Act) *outage.Error {
	if c.noder == nil {
		return c.only.Out()
	}
	for _, name := range c.noder.Nodes(a) {
		if out := c.node(name).Out(); out != nil {
			return out
		}
	}
	return nil
}

// take decides acts of one lane.
func (c *Coalescer) take(ctx context.Context, l *lane, acts []*weir.Act) {
	if c.keeper != nil && c.alone(ctx, l, acts) {
		return
	}
	if t := c.board(ctx, l, acts, true); t.batch != nil {
		t.await(ctx)
	}
}

// Stop waits until no call of the store is in flight any more, or ctx ends; the error
// then says how many are. Watching and probing end at once: every later call asks the
// store, whatever is known of it. It may be called again.
func (c *Coalescer) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.watch.Stop()
	c.sendHome()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.working.Wait()
		c.landed(ctx)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("coalesce: stop: %d calls of the store have no reply: %w", c.out.Load(), ctx.Err())
	}
}

// landed waits until no call of the store is out, those aside that came after it was
// called, or until ctx ends.
func (c *Coalescer) landed(ctx context.Context) {
	fresh := make(chan struct{})
	none := &fresh
	for !c.none.CompareAndSwap(nil, &fresh) {
		if none = c.none.Load(); none != nil {
			break
		}
		none = &fresh
	}
	if c.out.Load() == 0 {
		return
	}
	select {
	case <-*none:
	case <-ctx.Done():
	}
}

// Outages are the nodes that are out now, each with its time and cause.
func (c *Coalescer) Outages() []*outage.Error {
	var all []*outage.Error
	if !c.watch.Any() {
		return nil
	}
	for _, n := range c.watch.Nodes() {
		if out := n.Out(); out != nil {
			all = append(all, out)
		}
	}
	return all
}

var errNoReturn = errors.New("the store did not return")
