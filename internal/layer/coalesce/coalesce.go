// Package coalesce owns the calls of a remote store. It wraps a [weir.Taker] that
// costs a round trip.
//
// Acts that wait for the store are sent in one call, a batch. Each is decided separately,
// in the order of arrival. If a caller finds its lane idle, its acts are sent at once.
// Callers that arrive while a call is in flight wait for it to return. No timer gathers
// them, so batches grow only with the load. A batch is sent when the callers of the
// previous one have run again, so that it includes their next acts.
//
// A caller waits as long as its context lasts. The call goes on without it: its acts are
// copies, and [weir.Pending] delivers the late reply to the layer that answered the
// caller instead.
//
// A node of the store that sends no reply to any call for [Options.Silence], in time in
// which this process was responsive, is unreachable: all callers that wait for it are
// answered at once with an error, and later ones without a call, until a late reply or a
// probe ends the outage. See package internal/outage.
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

// The defaults of [Options].
const (
	DefaultMaxBatch   = 256
	DefaultMaxLanes   = 16
	DefaultMaxWaiting = 10_000
	DefaultTimeout    = 10 * time.Second
	DefaultSilence    = outage.DefaultSilence
	DefaultLate       = 20 * time.Millisecond
)

// maxLate is how many late calls, see [Options.Late], one node may have beside one in each
// lane. It bounds memory and connections.
const maxLate = 8

// Options are the settings of a [Coalescer]. The zero value is a good one;
// negative fields count as zero.
type Options struct {
	// MaxBatch is how many acts of different callers are sent together; the acts of
	// one caller always are. Zero: [DefaultMaxBatch].
	MaxBatch int
	// MaxLanes is how many calls are in flight to one node at most, calls that are late
	// aside; a store that names more lanes has several in one. Zero: [DefaultMaxLanes].
	MaxLanes int
	// MaxWaiting is how many acts may wait in a lane; a caller that finds more gets
	// [ErrFull]. Zero: [DefaultMaxWaiting].
	MaxWaiting int
	// Timeout is how long a call of the store goes on after its callers have left,
	// or up to a sixteenth less. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Silence is how long a node may leave every call without a reply before it is
	// unreachable; see [outage.Options]. Zero: [DefaultSilence].
	Silence time.Duration
	// Late is how long a call may keep the next one in its lane waiting. Zero:
	// [DefaultLate].
	Late time.Duration
	// Responsive reports whether this process was able to receive replies since the last
	// call. Nil: a pipe shows it; in virtual time nothing comes back through one.
	Responsive func() bool
	// Logger receives a line when an outage begins and one when it ends. Nil: none.
	Logger *slog.Logger
}

// A Laner is a [weir.Taker] that can have several calls in flight: a call in one lane
// does not delay the other lanes.
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

// A Prober is a [weir.Taker] whose nodes can be probed.
type Prober interface {
	// Probe has a node write something, on a connection of its own, and returns an
	// error unless it did before ctx ended.
	Probe(ctx context.Context, node string) error
}

// A Keeper is a [weir.Taker] whose calls can end before their replies come, and deliver
// these all the same, so that a call may wait on its caller's goroutine.
type Keeper interface {
	// Keeps reports whether the error of a call that ends before its reply comes is a
	// [weir.Pending].
	Keeps() bool
	// Interrupt ends the calls that wait for a reply.
	Interrupt()
}

// A Greeter is a [weir.Taker] that notices when a node sends something that is no reply to
// a call: it greets a connection, or does not know a script.
type Greeter interface {
	// OnGreeting has f called with the name of the node each time, from many goroutines.
	OnGreeting(f func(node string))
}

// ProbeKey is the key that probes charge in a store that is no [Prober].
const ProbeKey = "coalesce;probe"

var probeLimit = weir.Limit{Count: 1_000_000, Period: time.Second}.MustCompile()

// ErrFull says that too many calls were waiting for the store already. Its class
// is [weir.ErrNotApplied].
var ErrFull = fmt.Errorf("%w: too many calls wait for the store", weir.ErrNotApplied)

// A Coalescer calls another Taker, for several callers at a time. It is safe for
// concurrent use. Create it with Wrap. It starts no goroutine before the first call, and
// Stop waits for calls in flight.
type Coalescer struct {
	Options
	next   weir.Taker
	laner  Laner  // nil: all acts have one lane
	noder  Noder  // nil: there is one node
	keeper Keeper // nil: no call waits on its caller's goroutine
	watch  *outage.Watch
	ends   *deadline.Group
	nodes  sync.Map // of *node by name
	only   *node    // nil if there may be several
	first  atomic.Pointer[node]
	// onReply is called with replies; nil: nothing is.
	onReply atomic.Pointer[func([]*weir.Act)]
	work    atomic.Int64 // calls of the store, and goroutines that send batches
	late    atomic.Int64 // replies that came after their callers had left
}

// Wrap returns a Coalescer that asks next. If next is a [Laner], one call is in
// flight in each lane, else one at all, calls that are late aside.
func Wrap(next weir.Taker, o Options) *Coalescer {
	o.MaxBatch = cmp.Or(max(o.MaxBatch, 0), DefaultMaxBatch)
	o.MaxLanes = cmp.Or(max(o.MaxLanes, 0), DefaultMaxLanes)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	o.Timeout = cmp.Or(max(o.Timeout, 0), DefaultTimeout)
	o.Late = cmp.Or(max(o.Late, 0), DefaultLate)
	c := &Coalescer{Options: o, next: next, ends: deadline.NewGroup(o.Timeout)}
	c.laner, _ = weir.As[Laner](next)
	c.noder, _ = weir.As[Noder](next)
	if k, ok := weir.As[Keeper](next); ok && k.Keeps() {
		c.keeper = k
	}
	if c.laner == nil {
		c.MaxLanes = 1
	}
	c.watch = outage.New(outage.Options{
		Silence: o.Silence, Responsive: o.Responsive, Probe: c.probe, OnTick: c.tick, Logger: o.Logger,
	})
	if c.noder == nil {
		c.only = c.node("")
	}
	if g, ok := weir.As[Greeter](next); ok {
		g.OnGreeting(func(name string) {
			if n, found := c.nodes.Load(name); found {
				n.(*node).Alive()
			}
		})
	}
	return c
}

// OnReply has f called with the acts of each call whose reply has come or never will, before
// their callers are answered and before [Coalescer.Left] leaves them out. It may read the acts
// until it returns.
func (c *Coalescer) OnReply(f func(acts []*weir.Act)) { c.onReply.Store(&f) }

// Unwrap returns the Taker that c asks.
func (c *Coalescer) Unwrap() weir.Taker { return c.next }

// probe has a node write something. A store that panics fails its probe.
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
// returns. Acts that were not sent by then are not charged, and their error is of the
// class [weir.ErrNotApplied]; acts in flight are charged or not, once, and their
// error is of the class [weir.ErrAmbiguous] and a [weir.Pending]. Both wrap the
// context's error, or an [outage.Error] if the node became unreachable.
//
// A call of the store has the values of its caller's context if it carries the acts of
// one caller, and never its end. If the wrapped Taker panics, so does each call that
// waits for it.
//
// Acts of different lanes are sent in different calls, at different instants, unless
// they have a key in common.
func (c *Coalescer) Take(ctx context.Context, acts []*weir.Act) {
	c.TakeKnown(ctx, c.Unreachable(acts), nil, 0)
}

// TakeKnown is like Take, for a caller that has to know when [Coalescer.Left] knows of
// the acts. It notifies r once, with the given number, at that time or when it is certain
// that the acts will not be sent. It does not check whether their nodes are reachable,
// see [Coalescer.Unreachable].
func (c *Coalescer) TakeKnown(ctx context.Context, acts []*weir.Act, r interface{ Registered(number uint64) }, number uint64) {
	sole, others := c.board(ctx, acts, r, number)
	if sole != nil {
		defer sole.await() // also if the store ends this goroutine
		if sole.batch.direct {
			c.call(sole.within(), sole.batch)
		}
	}
	for _, t := range others {
		t.await()
	}
}

// board puts acts into the next batches of their lanes. It returns the tickets of those that
// have to be waited for: one, if all are in one batch.
func (c *Coalescer) board(ctx context.Context, acts []*weir.Act, r interface{ Registered(number uint64) }, number uint64) (sole *ticket, others []*ticket) {
	if r != nil {
		defer r.Registered(number)
	}
	if err := ctx.Err(); err != nil {
		fail(acts, weir.ErrNotApplied, err)
		return nil, nil
	}
	if len(acts) == 0 {
		return nil, nil
	}
	l := c.lane(acts[0])
	if len(acts) > 1 && !c.sameLane(l, acts) {
		if l = c.shared(acts); l == nil {
			return nil, c.split(ctx, acts)
		}
	}
	t := c.ticket(ctx, l, acts)
	if t.sole = true; !t.board() {
		return nil, nil
	}
	return t, nil
}

// fail answers the acts with an error of a class.
func fail(acts []*weir.Act, class, err error) {
	for _, a := range acts {
		a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, class, err)
	}
}

// Unreachable answers the acts that have a part in a node that is unreachable, and returns
// the others.
func (c *Coalescer) Unreachable(acts []*weir.Act) (others []*weir.Act) {
	if !c.watch.Any() {
		return acts
	}
	others = make([]*weir.Act, 0, len(acts))
	for _, a := range acts {
		if out := c.outageOf(a); out != nil {
			a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
			continue
		}
		others = append(others, a)
	}
	return others
}

// Reachable reports whether every node that has a part in an act is reachable.
func (c *Coalescer) Reachable(a *weir.Act) bool { return !c.watch.Any() || c.outageOf(a) == nil }

// outageOf returns the outage that concerns an act; nil if there is none.
func (c *Coalescer) outageOf(a *weir.Act) *outage.Error {
	if c.noder == nil {
		return c.only.Outage()
	}
	for _, name := range c.noder.Nodes(a) {
		if out := c.node(name).Outage(); out != nil {
			return out
		}
	}
	return nil
}

// Stop waits until no call of the store is in flight, or ctx ends; the error then says
// how many are. Watching and probing end at once: every later call asks the store,
// reachable or not. It may be called again.
func (c *Coalescer) Stop(ctx context.Context) error {
	c.watch.Stop()
	// Calls only count, because waking the waiting callers would cost them more.
	for c.work.Load() > 0 {
		select {
		case <-time.After(outage.Tick):
		case <-ctx.Done():
			return fmt.Errorf("coalesce: stop: %d calls of the store have no reply: %w", c.Stats().InFlight, ctx.Err())
		}
	}
	return nil
}

// Outages returns the outages that last, one for each unreachable node.
func (c *Coalescer) Outages() []*outage.Error {
	var all []*outage.Error
	if !c.watch.Any() {
		return nil
	}
	for _, n := range c.watch.Nodes() {
		if out := n.Outage(); out != nil {
			all = append(all, out)
		}
	}
	return all
}

var errNoReturn = errors.New("the store did not return")
