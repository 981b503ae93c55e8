package coalesce

import (
	"context"
	"errors"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// several is the name under which the lanes stand of acts that more than one node has
// a part in.
const several = "\x00several"

// A node is a server of the store with its lanes.
type node struct {
	*outage.Node
	lanes []lane
	// several: its calls go to more than one node, and the store says to which.
	several bool

	mu       sync.Mutex // guards what follows
	inFlight map[*batch]struct{}
	late     int // calls that no longer keep their lane
}

// node returns the node of a name.
func (c *Coalescer) node(name string) *node {
	if n, found := c.nodes.Load(name); found {
		return n.(*node)
	}
	n := &node{lanes: make([]lane, c.MaxLanes), several: name == several, inFlight: map[*batch]struct{}{}}
	if !n.several {
		n.Node = c.watch.Node(name)
		if n.Name != name {
			// There are too many nodes: the rest share one.
			return c.node(n.Name)
		}
	}
	for i := range n.lanes {
		n.lanes[i].node, n.lanes[i].maxBatch, n.lanes[i].maxWaiting = n, c.MaxBatch, c.MaxWaiting
	}
	first, _ := c.nodes.LoadOrStore(name, n)
	return first.(*node)
}

// lane returns the lane of an act.
func (c *Coalescer) lane(a *weir.Act) *lane {
	n := c.only
	if n == nil {
		name, alone := c.noder.Node(a)
		if !alone {
			name = several
		}
		n = c.node(name)
	}
	if c.laner == nil {
		return &n.lanes[0]
	}
	return &n.lanes[uint(c.laner.Lane(a))%uint(len(n.lanes))]
}

// send notes that a batch leaves, and returns the context of its call.
func (c *Coalescer) send(ctx context.Context, n *node, b *batch) context.Context {
	c.out.Add(1)
	if n.several {
		// Before the watch can see the batch.
		b.trace = &trace{coalescer: c, waiting: map[*node]outage.Era{}}
		ctx = outage.With(ctx, b.trace)
	}
	n.mu.Lock()
	n.inFlight[b] = struct{}{}
	n.mu.Unlock()
	if !n.several {
		b.era = n.Begin()
	}
	return ctx
}

// returned notes that a batch is back, and what that says of its node.
func (c *Coalescer) returned(n *node, b *batch) {
	n.mu.Lock()
	delete(n.inFlight, b)
	if b.late {
		n.late--
	}
	n.mu.Unlock()
	switch err := verdict(b.acts); {
	case n.several:
	case err != nil && b.ended, b.outage() != nil && errors.Is(err, weir.ErrNotApplied):
		// Its caller's time was over before it left, or the outage interrupted it: that is
		// no refusal.
		n.Left(b.era)
	default:
		conclude(n.Node, b.era, err)
	}
	if c.out.Add(-1) == 0 {
		if none := c.none.Swap(nil); none != nil {
			close(*none)
		}
	}
}

// conclude tells a node what became of a call.
func conclude(n *outage.Node, era outage.Era, err error) {
	switch {
	case err == nil:
		n.Heard(era)
	case errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured):
		n.Refused(era, err)
	default:
		n.Lost(era, err)
	}
}

// verdict is nil if the store decided any of the acts, and else the first error.
func verdict(acts []*weir.Act) error {
	var first error
	for _, a := range acts {
		if a.Err == nil || errors.Is(a.Err, weir.ErrInvalid) || errors.Is(a.Err, weir.ErrBackend) {
			return nil
		}
		if first == nil {
			first = a.Err
		}
	}
	return first
}

// A trace hears which nodes a call of several asks.
type trace struct {
	coalescer *Coalescer
	mu        sync.Mutex
	waiting   map[*node]outage.Era
}

// Asked implements [outage.Trace].
func (t *trace) Asked(name string) {
	n := t.coalescer.node(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[n] = n.Begin()
}

// Answered implements [outage.Trace].
func (t *trace) Answered(name string, err error) {
	n := t.coalescer.node(name)
	t.mu.Lock()
	era, asked := t.waiting[n]
	delete(t.waiting, n)
	t.mu.Unlock()
	if asked {
		conclude(n.Node, era, err)
	}
}

// out returns the outage of a node whose reply is missing; nil if there is none.
func (t *trace) out() *outage.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.waiting {
		if out := n.Out(); out != nil {
			return out
		}
	}
	return nil
}

// sign notes that a node said something that is no reply to a call.
func (c *Coalescer) sign(name string) {
	if n, found := c.nodes.Load(name); found {
		n.(*node).Sign()
	}
}

// look answers those who wait for nodes that are out, and makes way for others where a
// call is late. The watch calls it at every tick.
func (c *Coalescer) look(heard bool) {
	c.nodes.Range(func(_, v any) bool {
		n := v.(*node)
		if n.several {
			for _, b := range n.tell(func(b *batch) *outage.Error { return b.trace.out() }) {
				c.letGo(n, b)
			}
		} else if out := n.Out(); out != nil {
			n.tell(func(*batch) *outage.Error { return out })
			n.dismiss(out)
			if c.keeper != nil {
				c.keeper.Interrupt()
			}
		}
		if heard {
			c.makeWay(n)
		}
		return true
	})
}

// tell answers the callers of batches in flight for which there is an outage, and
// returns these batches.
func (n *node) tell(of func(*batch) *outage.Error) []*batch {
	n.mu.Lock()
	defer n.mu.Unlock()
	var told []*batch
	for b := range n.inFlight {
		if out := of(b); out != nil {
			b.release(out)
			told = append(told, b)
		}
	}
	return told
}

// letGo frees the lane of a batch whose callers are answered: what comes behind it goes
// to nodes that are not out. It does not count as late any more.
func (c *Coalescer) letGo(n *node, b *batch) {
	n.uncount(b)
	for i := range n.lanes {
		c.giveUp(&n.lanes[i], b)
	}
}

// dismiss answers the callers of batches that have not left. Those that have do not count
// as late.
func (n *node) dismiss(out *outage.Error) {
	for i := range n.lanes {
		l := &n.lanes[i]
		for _, b := range l.clear() {
			b.release(out)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = 0
	for b := range n.inFlight {
		b.late = false
	}
}

// makeWay frees the lanes whose calls are late, for as many calls as may be.
func (c *Coalescer) makeWay(n *node) {
	ticks := int((c.Late + outage.Tick - 1) / outage.Tick)
	for i := range n.lanes {
		l := &n.lanes[i]
		b := l.overdue(ticks)
		if b == nil || !n.count(b) {
			continue
		}
		freed, start := l.free(b)
		if !freed {
			n.uncount(b)
		}
		if start {
			c.start(l)
		}
	}
}

// count counts one more late call, unless there are too many, or the reply has come.
func (n *node) count(b *batch) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, out := n.inFlight[b]; !out || n.late >= maxLate {
		return false
	}
	n.late++
	b.late = true
	return true
}

// uncount takes a late call out of the count.
func (n *node) uncount(b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b.late {
		n.late--
		b.late = false
	}
}
