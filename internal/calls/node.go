package calls

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// several is the name of the node for acts that more than one node has a part in.
const several = "\x00several"

// A node is a server of the store with its lanes.
type node struct {
	*outage.Node // nil: its calls go to several nodes
	name         string
	lanes        []lane

	mu       sync.Mutex // guards what follows
	inFlight map[*batch]flight
	late     int // calls that no longer keep their lane
}

// A flight is a call in flight.
type flight struct {
	ticks int  // since it was sent
	late  bool // it no longer keeps its lane
}

// node returns the node of a name.
func (c *Lanes) node(name string) *node {
	// Most stores have one, and a map's hash costs more than a comparison.
	if n := c.first.Load(); n != nil && n.name == name {
		return n
	}
	if n, found := c.nodes.Load(name); found {
		return n.(*node)
	}
	n := &node{name: name, lanes: make([]lane, c.MaxLanes), inFlight: map[*batch]flight{}}
	if name != several {
		n.Node = c.watch.Node(name)
		if n.Name != name {
			// There are too many nodes: the rest share one.
			return c.node(n.Name)
		}
	}
	for i := range n.lanes {
		n.lanes[i].node, n.lanes[i].maxBatch, n.lanes[i].maxWaiting, n.lanes[i].direct = n, c.MaxBatch, c.MaxWaiting, c.direct
	}
	known, _ := c.nodes.LoadOrStore(name, n)
	c.first.CompareAndSwap(nil, known.(*node))
	return known.(*node)
}

// each calls f for every node.
func (c *Lanes) each(f func(*node)) {
	c.nodes.Range(func(_, n any) bool {
		f(n.(*node))
		return true
	})
}

// lane returns the lane of an act.
func (c *Lanes) lane(a *weir.Act) *lane {
	name, lane, alone := c.store.Locate(a)
	if !alone {
		name = several
	}
	n := c.node(name)
	return &n.lanes[uint(lane)%uint(len(n.lanes))]
}

// A part is a batch as one node sees it that has a part in it.
type part struct {
	node       *node
	generation outage.Generation // of the node, when the batch was sent
	answered   int64             // probes that the node had answered then
}

// send notes that a batch is sent.
func (c *Lanes) send(b *batch) {
	n := b.lane.node
	if n.Node != nil {
		b.first[0] = part{node: n}
		b.parts = b.first[:]
	} else {
		for _, a := range b.acts {
			b.add(c, a)
		}
	}
	for i := range b.parts {
		p := &b.parts[i]
		p.answered, p.generation = p.node.Answered(), p.node.Begin()
	}
	// From now on the watch sees the batch.
	n.mu.Lock()
	n.inFlight[b] = flight{}
	n.mu.Unlock()
}

// add adds the nodes of an act to those that have a part in the batch.
func (b *batch) add(c *Lanes, a *weir.Act) {
	for _, name := range c.store.Nodes(a) {
		n := c.node(name)
		if !slices.ContainsFunc(b.parts, func(p part) bool { return p.node == n }) {
			b.parts = append(b.parts, part{node: n})
		}
	}
}

// nodesOutage returns the outage of a node that has a part in a batch; nil if there is none.
func (b *batch) nodesOutage() *outage.Error {
	for _, p := range b.parts {
		if out := p.node.Outage(); out != nil {
			return out
		}
	}
	return nil
}

// interruptedBy returns an outage of a node of a batch that has begun since its callers made sure that
// the store may decide; nil if there is none.
func (b *batch) interruptedBy() *outage.Error {
	for _, p := range b.parts {
		if out := p.node.OutageAfter(b.since); out != nil {
			return out
		}
	}
	return nil
}

// received notes that a batch is no longer in flight, and updates the state of its nodes.
func (c *Lanes) received(b *batch) {
	n := b.lane.node
	n.mu.Lock()
	f := n.inFlight[b]
	n.setLate(&f, false)
	delete(n.inFlight, b)
	n.mu.Unlock()
	if n.Node == nil {
		c.receivedFromSeveral(b)
		return
	}
	p, err := b.parts[0], verdict(b.acts)
	switch {
	case err == nil:
		n.Decided(p.generation)
	case b.expired || b.outageOf() != nil && errors.Is(err, weir.ErrNotApplied):
		// Its own time was over before it was sent, or the outage interrupted it: that is
		// no refusal.
		n.TimedOut(p.generation)
	case errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured):
		n.Refused(p.generation, err)
	default:
		n.Lost(p.generation, err)
	}
}

// receivedFromSeveral is received for several nodes. Which of the nodes of an act has failed
// is unknown: a probe of each shows it.
func (c *Lanes) receivedFromSeveral(b *batch) {
	var failed []string
	for _, a := range b.acts {
		if verdict([]*weir.Act{a}) != nil {
			failed = append(failed, c.store.Nodes(a)...)
		}
	}
	for _, p := range b.parts {
		if !slices.Contains(failed, p.node.name) {
			p.node.Decided(p.generation)
			continue
		}
		p.node.TimedOut(p.generation)
		p.node.Suspect()
	}
}

// verdict is nil if the store decided any of the acts, or is well, and else the first error.
func verdict(acts []*weir.Act) error {
	var first error
	for _, a := range acts {
		if a.Err == nil || errors.Is(a.Err, weir.ErrInvalid) || errors.Is(a.Err, weir.ErrBackend) || errors.Is(a.Err, outage.ErrNodeWell) {
			return nil
		}
		if first == nil {
			first = a.Err
		}
	}
	return first
}

// tick answers the callers of unreachable nodes, and frees the lanes of late calls. The
// watch calls it at every tick. It needs the next one while a call is in flight, also one that
// an outage has written off: that keeps its lane until it is late.
func (c *Lanes) tick(responsive bool) (needed bool) {
	c.each(func(n *node) {
		var out *outage.Error
		if n.Node != nil {
			out = n.Outage()
		}
		if out != nil {
			for i := range n.lanes {
				for _, f := range n.lanes[i].dismiss(out) {
					f()
				}
			}
		}
		late, inFlight := n.judge(responsive, int((c.Late+outage.Tick-1)/outage.Tick))
		needed = needed || inFlight
		for _, b := range late {
			c.free(b)
		}
	})
	return needed
}

// hopelessTicks is after how many ticks a call without a reply counts as lost, if a node has
// answered a probe meanwhile: its connection is dead.
const hopelessTicks = int(2 * time.Second / outage.Tick)

// judge answers the callers of calls in flight that an outage concerns, counts as late
// the calls that last for longer than so many ticks, as far as there may be more, and
// returns the batches that no longer keep their lanes, and whether any is in flight. During an outage no call is late:
// its lane is kept until the outage is over, unless the next batch goes to other nodes.
func (n *node) judge(responsive bool, ticks int) (free []*batch, inFlight bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b, f := range n.inFlight {
		if out := b.nodesOutage(); out != nil {
			b.cutOff(out, false)
			f.ticks = 0
			n.setLate(&f, false)
			n.inFlight[b] = f
			if n.Node == nil {
				free = append(free, b)
			}
			continue
		}
		if !responsive {
			continue
		}
		switch f.ticks++; {
		case f.ticks > hopelessTicks:
			if b.probed() {
				n.setLate(&f, false)
				free = append(free, b)
			}
		case !f.late && f.ticks > ticks && n.late < maxLate:
			n.setLate(&f, true)
			free = append(free, b)
		}
		n.inFlight[b] = f
	}
	return free, len(n.inFlight) > 0
}

// probed reports whether every node of a batch has answered a probe since it was sent.
func (b *batch) probed() bool {
	return !slices.ContainsFunc(b.parts, func(p part) bool { return p.node.Answered() == p.answered })
}

// setLate notes whether a call is late.
func (n *node) setLate(f *flight, late bool) {
	if f.late == late {
		return
	}
	if f.late = late; late {
		n.late++
	} else {
		n.late--
	}
}
