package coalesce

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// start has a lane run by a worker: one that waits for work, if any does.
func (c *Coalescer) start(l *lane) {
	select {
	case c.hands <- l:
		return
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.working.Go(func() { c.work(l) })
}

// work runs lanes until nobody needs it. A worker waits for a while between calls,
// because its stack has grown to what a call takes.
func (c *Coalescer) work(l *lane) {
	for {
		rest := *c.rest.Load()
		c.run(l)
		select {
		case l = <-c.hands:
		case <-rest:
			return
		}
	}
}

// sendHome ends the workers that wait. After Stop none waits any more: nobody would send
// it home.
func (c *Coalescer) sendHome() {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.rest.Load()
	if before != nil {
		select {
		case <-*before:
			return
		default:
			close(*before)
		}
	}
	if !c.stopped {
		rest := make(chan struct{})
		c.rest.Store(&rest)
	}
}

// run carries the batches of a lane, until none waits or the lane was given to another
// worker.
func (c *Coalescer) run(l *lane) {
	for b := l.depart(); b != nil; b = l.depart() {
		if !c.carry(l, b) {
			return
		}
		if !l.full() {
			// Those just woken come first, so that what they ask next is in the next
			// batch instead of behind it.
			b.callers.Wait()
		}
	}
}

// giveUp takes the lane from a call that has returned, if the call still keeps it, and
// has the lane run for the batches that wait.
func (c *Coalescer) giveUp(l *lane, b *batch) {
	if _, start := l.free(b); start {
		c.start(l)
	}
}

// carry asks for a batch and answers its callers. It reports whether the lane is still
// the worker's.
func (c *Coalescer) carry(l *lane, b *batch) (kept bool) {
	ended := false
	defer func() {
		kept = !b.pending && l.arrive(b)
		if !ended && kept {
			// This goroutine is being ended.
			c.start(l)
		}
	}()
	c.call(c.ends.Context(b.values()), l, b)
	ended = true
	return
}

// call asks the wrapped Taker for a batch and hands the answers out, however it ends.
// Answers that are late are handed out when they come; the batch keeps its lane until
// then, or until it counts as late, so that later ones do not overtake it.
func (c *Coalescer) call(ctx context.Context, l *lane, b *batch) {
	returned := false
	defer func() {
		panicked := recover()
		if !returned {
			fail(b.acts, weir.ErrAmbiguous, errNoReturn)
		}
		b.ended = ctx.Err() != nil
		late := pendingOf(b.acts)
		if !returned || len(late) == 0 {
			c.land(l, b, panicked)
			return
		}
		b.ended, b.pending = false, true
		var missing atomic.Int64
		missing.Store(int64(len(late)))
		for _, p := range late {
			p.Then(func(*weir.Act) {
				if missing.Add(-1) > 0 {
					return
				}
				c.land(l, b, nil)
				c.giveUp(l, b)
			})
		}
	}()
	c.next.Take(c.send(ctx, l.node, b), b.acts)
	returned = true
}

// pendingOf returns what waits for the replies to acts. They may have left in several
// calls, whose replies come by themselves.
func pendingOf(acts []*weir.Act) []weir.Pending {
	var all []weir.Pending
	for _, a := range acts {
		var late weir.Pending
		if a.Err != nil && errors.As(a.Err, &late) {
			all = append(all, late)
		}
	}
	return all
}

// land hands the answers of a batch out.
func (c *Coalescer) land(l *lane, b *batch, panicked any) {
	c.returned(l.node, b)
	acts := b.acts
	late, waiting := b.land(panicked)
	if late || len(waiting) > 0 {
		c.late.Add(1)
	}
	for _, f := range waiting {
		f()
	}
	if !b.alone {
		l.recycle(acts)
	}
}
