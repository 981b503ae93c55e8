package coalesce

import (
	"context"

	"github.com/weirlimit/weir"
)

// alone asks for the acts of one call on its caller's goroutine, if its lane is idle,
// and reports whether it did. Waking another goroutine for the call, and being woken by
// it, costs half as much again as a round trip to a near server.
func (c *Coalescer) alone(ctx context.Context, l *lane, acts []*weir.Act) bool {
	own := copyOf(acts)
	b := &batch{acts: own.acts, left: true, alone: true}
	if !l.claim(b) {
		own.free()
		return false
	}
	within := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		within = c.ends.Context(ctx)
	}
	t := ticket{coalescer: c, lane: l, batch: b, acts: acts, own: own}
	defer func() {
		if !b.pending {
			c.giveUp(l, b)
		}
		t.conclude(ctx)
	}()
	c.call(within, l, b)
	return true
}

// conclude takes the answers home, or waits for a late reply as long as the caller does.
func (t *ticket) conclude(ctx context.Context) {
	if t.batch.waitFor() {
		t.await(ctx)
		return
	}
	t.collect()
}

// claim makes the lane that of a lone call, if it is idle.
func (l *lane) claim(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy {
		return false
	}
	l.busy, l.current, l.ticks = true, b, 0
	l.stats.count(len(b.acts))
	return true
}
