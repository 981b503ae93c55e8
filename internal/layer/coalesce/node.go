package coalesce

import (
	"context"
	"errors"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// several is the name of the node for acts that more than one node has a part in.
const several = "\x00several"

// A node is a server of the store with its lanes.
type node struct {
	*outage.Node // nil: its calls go to several nodes, and the store reports to which
	name         string
	lanes        []lane

	mu       sync.Mutex // guards what follows
	inFlight map[*batch]struct{}
	late     int // calls that no longer keep their lane
}

// node returns the node of a name.
func (c *Coalescer) node(name string) *node {
	// Most stores have one, and a map's hash costs more than a comparison.
	if n := c.first.Load(); n != nil && n.name == name {
		return n
	}
	if n, found := c.nodes.Load(name); found {
		return n.(*node)
	}
	n := &node{name: name, lanes: make([]lane, c.MaxLanes), inFlight: map[*batch]struct{}{}}
	if name != several {
		n.Node = c.watch.Node(name)
		if n.Name != name {
			// There are too many nodes: the rest share one.
			return c.node(n.Name)
		}
	}
	for i := range n.lanes {
		n.lanes[i].node, n.lanes[i].maxBatch, n.lanes[i].maxWaiting, n.lanes[i].direct = n, c.MaxBatch, c.MaxWaiting, c.keeper != nil
	}
	known, _ := c.nodes.LoadOrStore(name, n)
	c.first.CompareAndSwap(nil, known.(*node))
	return known.(*node)
}

// each calls f for every node.
func (c *Coalescer) each(f func(*node)) {
	c.nodes.Range(func(_, n any) bool {
		f(n.(*node))
		return true
	})
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

// send notes that a batch is sent, and returns the context of its call.
func (c *Coalescer) send(ctx context.Context, b *batch) context.Context {
	n := b.lane.node
	if n.Node == nil {
		// Before the watch can see the batch.
		b.trace = &trace{coalescer: c, waiting: map[*node]outage.Generation{}}
		ctx = outage.WithTrace(ctx, b.trace)
	}
	n.mu.Lock()
	n.inFlight[b] = struct{}{}
	n.mu.Unlock()
	if n.Node != nil {
		b.generation = n.Begin()
	}
	return ctx
}

// received notes that a batch is no longer in flight, and updates the state of the node.
func (n *node) received(b *batch) {
	n.mu.Lock()
	delete(n.inFlight, b)
	n.setLate(b, false)
	n.mu.Unlock()
	if n.Node == nil {
		return
	}
	err := verdict(b.acts)
	if err != nil && b.expired || b.outageOf() != nil && errors.Is(err, weir.ErrNotApplied) {
		// Its own time was over before it was sent, or the outage interrupted it: that is
		// no refusal.
		n.TimedOut(b.generation)
		return
	}
	n.conclude(b.generation, err)
}

// conclude reports the result of a call to the watch.
func (n *node) conclude(g outage.Generation, err error) {
	switch {
	case err == nil:
		n.Decided(g)
	case errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured):
		n.Refused(g, err)
	default:
		n.Lost(g, err)
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

// A trace notes which nodes a call asks.
type trace struct {
	coalescer *Coalescer
	mu        sync.Mutex
	waiting   map[*node]outage.Generation
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
	g, asked := t.waiting[n]
	delete(t.waiting, n)
	t.mu.Unlock()
	if asked {
		n.conclude(g, err)
	}
}

// outage returns the outage of a node whose reply is missing; nil if there is none.
func (t *trace) outage() *outage.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.waiting {
		if out := n.Outage(); out != nil {
			return out
		}
	}
	return nil
}

// tick answers the callers of unreachable nodes, and frees the lanes of late calls. The
// watch calls it at every tick.
func (c *Coalescer) tick(responsive bool) {
	c.each(func(n *node) {
		var out *outage.Error
		if n.Node != nil {
			out = n.Outage()
		}
		if out != nil {
			for i := range n.lanes {
				n.lanes[i].dismiss(out)
			}
		}
		late := n.judge(out, responsive, int((c.Late+outage.Tick-1)/outage.Tick))
		// A call that ends now has been answered with the outage.
		if out != nil && c.keeper != nil {
			c.keeper.Interrupt()
		}
		for _, b := range late {
			c.free(b)
		}
	})
}

// judge answers the callers of calls in flight that an outage concerns, counts as late
// the calls that last for longer than so many ticks, as far as there may be more, and
// returns the batches that no longer keep their lanes. During an outage no call is late:
// its lane is kept until the outage is over, unless the next batch goes to other nodes.
func (n *node) judge(out *outage.Error, responsive bool, ticks int) (free []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.inFlight {
		if b.trace != nil {
			out = b.trace.outage()
		}
		switch {
		case out != nil:
			b.answer(out)
			b.ticks = 0
			n.setLate(b, false)
			if b.trace != nil {
				free = append(free, b)
			}
		case responsive && !b.late:
			if b.ticks++; b.ticks > ticks && n.late < maxLate {
				n.setLate(b, true)
				free = append(free, b)
			}
		}
	}
	return free
}

func (n *node) setLate(b *batch, late bool) {
	if b.late == late {
		return
	}
	if b.late = late; late {
		n.late++
	} else {
		n.late--
	}
}
