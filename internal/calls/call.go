package calls

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// free takes the lane from a batch and has the batches that wait sent.
func (c *Lanes) free(b *batch) {
	if b.lane.free(b) {
		c.start(b.lane)
	}
}

func (c *Lanes) start(l *lane) {
	c.work.Add(1)
	go c.run(l)
}

// run sends the batches of a lane, until none waits or a batch has lost the lane.
func (c *Lanes) run(l *lane) {
	defer c.work.Add(-1)
	for b := l.next(); b != nil; b = l.next() {
		c.call(c.ends.Context(b.values()), b)
		if b.pending || !l.keeps(b) {
			return
		}
		if !l.full() {
			// The callers that were just answered run first, so that their next acts are
			// in the next batch and not in the one after it.
			b.callers.Wait()
		}
	}
}

// call calls the store with a batch and answers its callers, however the call ends. If
// the call ends before the reply comes, the batch keeps its lane until the reply comes or
// the batch is late, so that later ones do not overtake it.
func (c *Lanes) call(ctx context.Context, b *batch) {
	c.work.Add(1)
	returned := false
	defer func() {
		panicked := recover()
		if !returned {
			fail(b.acts, weir.ErrAmbiguous, errNoReturn)
		}
		expired := ctx.Err() != nil
		replies := pendingOf(b.acts)
		if b.pending = returned && len(replies) > 0; !b.pending {
			b.expired = expired
			c.finish(b, panicked)
			if b.direct || !returned {
				c.free(b)
			}
			return
		}
		var missing atomic.Int64
		missing.Store(int64(len(replies)))
		for _, p := range replies {
			p.Then(func(*weir.Act) {
				if missing.Add(-1) == 0 {
					c.finish(b, nil)
					c.free(b)
				}
			})
		}
	}()
	c.send(b)
	c.take(ctx, b.acts)
	returned = true
}

// take calls the store.
func (c *Lanes) take(ctx context.Context, acts []*weir.Act) {
	if c.Called == nil {
		c.store.Take(ctx, acts)
		return
	}
	start := time.Now()
	c.store.Take(ctx, acts)
	c.Called(acts, time.Since(start))
}

// pendingOf returns the late replies to acts. They may have left in several calls, whose
// replies come by themselves.
func pendingOf(of []*weir.Act) []acts.Pending {
	var all []acts.Pending
	for _, a := range of {
		if a.Err == nil {
			continue
		}
		var late acts.Pending
		if errors.As(a.Err, &late) {
			all = append(all, late)
		}
	}
	return all
}

// report calls OnReply, and returns the value of its panic for the
// callers.
func (c *Lanes) report(acts []*weir.Act) (panicked any) {
	if c.OnReply != nil {
		defer func() { panicked = recover() }()
		c.OnReply(acts)
	}
	return panicked
}

// finish ends a call whose reply has come or never will.
func (c *Lanes) finish(b *batch, panicked any) {
	defer c.work.Add(-1)
	if cause := c.report(b.acts); panicked == nil {
		panicked = cause
	}
	interrupted := b.interruptedBy()
	c.received(b)
	late, onReturn := b.complete(interrupted, panicked)
	if late || len(onReturn) > 0 {
		c.late.Add(1)
	}
	for _, f := range onReturn {
		f()
	}
}
