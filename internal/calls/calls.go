// Package calls sends the acts of many callers to a store in few calls, and judges which
// of its nodes are reachable. It knows how an act gets to a node and back, and nothing of what
// an act without a reply is answered: that is package remote's.
//
// Acts that wait for the store are sent in one call, a batch. Each is decided separately,
// in the order of arrival. If a caller finds its lane idle, its acts are sent at once.
// Callers that arrive while a call is in flight wait for it to return. No timer gathers
// them, so batches grow only with the load. A batch is sent when the callers of the
// previous one have run again, so that it includes their next acts.
//
// A call goes on after its callers have left: its acts are copies, and [acts.Pending]
// delivers the late reply.
package calls

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

// Options are the settings of [Lanes]. The zero value is a good one; negative fields count
// as zero.
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
	// Called is called with the acts of each call of the store that has returned, and its
	// duration, for metrics. Nil: not called.
	Called func(acts []*weir.Act, took time.Duration)
	// OnReply is called with the acts of each call whose reply has come or never will, before
	// their callers are answered. It may read them until it returns. Nil: not called.
	OnReply func(acts []*weir.Act)
	// Logger receives a line when an outage begins and one when it ends. Nil: none.
	Logger *slog.Logger
}

// A Store decides acts on other machines. It is safe for concurrent use.
type Store interface {
	// Take asks the store. If it returns before the reply has come, and [Store.Keeps], the
	// error of an act is a [acts.Pending].
	weir.Taker
	// Locate returns the name of the node that decides an act, and the lane of the act
	// there: a call in one lane does not delay the other lanes. Acts that begin with the same
	// key have the same lane. If alone is false, other nodes have a part in the act. Locate
	// never fails, however invalid the act.
	Locate(act *weir.Act) (node string, lane int, alone bool)
	// Nodes returns the names of all nodes that have a part in an act.
	Nodes(act *weir.Act) []string
	// Probe has a node write something, on a connection of its own, and returns an
	// error unless it did before ctx ended.
	Probe(ctx context.Context, node string) error
	// Keeps reports whether the reply to a call that has ended is still read, so that a call
	// may wait on its caller's goroutine.
	Keeps() bool
}

// ErrFull says that too many calls were waiting for the store already. Its class
// is [weir.ErrNotApplied].
var ErrFull = fmt.Errorf("%w: too many calls wait for the store", weir.ErrNotApplied)

// Lanes send acts to a store, for several callers at a time. They are safe for concurrent
// use. Create them with New, which starts nothing. The first call starts a goroutine, and
// Stop waits for calls in flight.
type Lanes struct {
	Options
	store  Store
	direct bool // calls may wait on their callers' goroutines
	watch  *outage.Watch
	ends   *deadline.Group
	lone   *deadline.Group // of calls that wait on their callers' goroutines
	nodes  sync.Map        // of *node by name
	first  atomic.Pointer[node]
	work   atomic.Int64 // calls of the store, and goroutines that send batches
	late   atomic.Int64 // replies that came after their callers had left
}

// New returns the lanes of a store.
func New(store Store, o Options) *Lanes {
	o.MaxBatch = cmp.Or(max(o.MaxBatch, 0), DefaultMaxBatch)
	o.MaxLanes = cmp.Or(max(o.MaxLanes, 0), DefaultMaxLanes)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	o.Timeout = cmp.Or(max(o.Timeout, 0), DefaultTimeout)
	o.Late = cmp.Or(max(o.Late, 0), DefaultLate)
	c := &Lanes{Options: o, store: store, direct: store.Keeps(), ends: deadline.NewGroup(o.Timeout)}
	c.watch = outage.New(outage.Options{
		Silence: o.Silence, Responsive: o.Responsive, Probe: c.probe, OnTick: c.tick, Logger: o.Logger,
	})
	// The group's contexts end up to a sixteenth earlier.
	c.lone = deadline.NewGroup(c.watch.Verdict() * 9 / 8)
	return c
}

// probe has a node write something. A store that panics fails its probe.
func (c *Lanes) probe(ctx context.Context, node string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("weir: probe: %w: the store panicked: %v", weir.ErrAmbiguous, cause)
		}
	}()
	return c.store.Probe(ctx, node)
}

// Take decides the acts. Each caller's context is its own: once it ends, Take
// returns. Acts that were not sent by then are not charged, and their error is of the
// class [weir.ErrNotApplied]; acts in flight are charged or not, once, and their
// error is of the class [weir.ErrAmbiguous] and a [acts.Pending]. Both wrap the
// context's error, or an [outage.Error] if the node became unreachable.
//
// A call of the store has the values of its caller's context if it carries the acts of
// one caller, and never its end. If the wrapped Taker panics, so does each call that
// waits for it.
//
// Acts of different lanes are sent in different calls, at different instants, unless
// they have a key in common.
func (c *Lanes) Take(ctx context.Context, acts []*weir.Act) { c.TakeSince(ctx, c.Begun(), acts) }

// Begun returns how many outages have begun.
func (c *Lanes) Begun() int64 { return c.watch.Outages() }

// TakeSince is Take for a caller that has made sure, after so many outages had begun, that the store
// may decide the acts. If an outage of one of their nodes has begun since, a take that the store
// granted has a [acts.Pending], although its reply has come: others may have been answered without
// the node meanwhile, from a share that does not count the take.
func (c *Lanes) TakeSince(ctx context.Context, outages int64, acts []*weir.Act) {
	sole, others := c.board(ctx, outages, c.Unreachable(acts))
	if sole != nil {
		defer sole.await() // also if the store ends this goroutine
		if sole.batch.direct {
			c.call(sole.within(), sole.batch)
		}
	}
	for _, t := range others {
		defer t.await() // all of them, also if the store has panicked
	}
}

// errPosted is the cause of a reply that nobody waits for.
var errPosted = errors.New("the reply is not waited for")

// Post has the acts sent with the next batches of their lanes, and returns at once. The error of
// an act is a [acts.Pending], unless it cannot be sent. It does not panic if the wrapped Taker
// does.
func (c *Lanes) Post(acts []*weir.Act) {
	acts = c.Unreachable(acts)
	for len(acts) > 0 {
		var same []*weir.Act
		l := c.lane(acts[0])
		same, acts = c.apart(l, acts)
		t := c.ticket(context.Background(), c.Begun(), l, same)
		t.posted = true
		if !t.board() {
			continue
		}
		for i, a := range same {
			a.Err = &pending{kind: a.Kind, cause: errPosted, batch: t.batch, act: t.own[i]}
		}
	}
}

// Node returns the name of the node that decides an act's first charge, and whether it decides the
// others, too.
func (c *Lanes) Node(a *weir.Act) (name string, alone bool) {
	name, _, alone = c.store.Locate(a)
	return name, alone
}

// Reaches reports whether a node is reachable.
func (c *Lanes) Reaches(name string) bool { return !c.watch.Any() || c.node(name).Outage() == nil }

// board puts acts into the next batches of their lanes. It returns the tickets of those that
// have to be waited for: one, if all are in one batch.
func (c *Lanes) board(ctx context.Context, outages int64, acts []*weir.Act) (sole *ticket, others []*ticket) {
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
			return nil, c.split(ctx, outages, acts)
		}
	}
	t := c.ticket(ctx, outages, l, acts)
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
func (c *Lanes) Unreachable(acts []*weir.Act) (others []*weir.Act) {
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
func (c *Lanes) Reachable(a *weir.Act) bool { return !c.watch.Any() || c.outageOf(a) == nil }

// outageOf returns the outage that concerns an act; nil if there is none.
func (c *Lanes) outageOf(a *weir.Act) *outage.Error {
	for _, name := range c.store.Nodes(a) {
		if out := c.node(name).Outage(); out != nil {
			return out
		}
	}
	return nil
}

// Stop waits until no call of the store is in flight, or ctx ends; the error then says
// how many are. Watching and probing end at once: every later call asks the store,
// reachable or not. It may be called again.
func (c *Lanes) Stop(ctx context.Context) error {
	c.watch.Stop()
	// Calls are only counted, because waking the waiting callers would cost them more.
	for c.work.Load() > 0 {
		select {
		case <-time.After(outage.Tick):
		case <-ctx.Done():
			return fmt.Errorf("weir: stop: %d calls of the store have no reply: %w", c.Stats().InFlight, ctx.Err())
		}
	}
	return nil
}

// Outages returns the outages that last, one for each unreachable node.
func (c *Lanes) Outages() []*outage.Error {
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
