package coalesce

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// A lane has at most one call of the store in flight that is not late, and the batches
// that wait for it to return.
type lane struct {
	node                 *node
	maxBatch, maxWaiting int

	mu sync.Mutex // guards what follows
	// busy is set while somebody runs the lane's batches, or is about to.
	busy    bool
	current *batch // in flight, and keeping the lane
	ticks   int    // for which it was
	queue   []*batch
	waiting int // acts in the queue
	spare   []*weir.Act
	stats   Stats

	_ [64]byte // the next lane's callers work on another cache line
}

// join has the acts leave with the last batch that waits. Start reports whether the
// lane was idle: then somebody has to run it.
func (l *lane) join(t *ticket) (b *batch, start bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acts := t.own.acts
	if l.waiting > 0 && l.waiting+len(acts) > l.maxWaiting {
		l.stats.Rejected += int64(len(acts))
		return nil, false, ErrFull
	}
	b = l.last(len(acts))
	if b.acts = append(b.acts, acts...); len(b.acts) == len(acts) {
		b.lone = t.ctx
	} else {
		b.lone = nil
	}
	l.waiting += len(acts)
	if t.counts {
		b.callers.Add(1)
	}
	start = !l.busy
	l.busy = true
	return b, start, nil
}

// last returns the last batch that waits, a fresh one if it has no room.
func (l *lane) last(acts int) *batch {
	if n := len(l.queue); n > 0 && len(l.queue[n-1].acts)+acts <= l.maxBatch {
		return l.queue[n-1]
	}
	b := &batch{acts: l.spare[:0], wake: make(chan struct{})}
	l.spare = nil
	l.queue = append(l.queue, b)
	return b
}

// withdraw takes the acts of a ticket out of a batch that has not left, and reports
// whether it could.
func (l *lane) withdraw(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := t.batch
	if b.left {
		return b.unsent
	}
	i := slices.Index(b.acts, t.own.acts[0])
	b.acts = slices.Delete(b.acts, i, i+len(t.own.acts))
	l.waiting -= len(t.own.acts)
	l.stats.Withdrawn += int64(len(t.own.acts))
	return true
}

// depart returns the batch whose turn it is, or nil, and then the lane is idle.
func (l *lane) depart() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		b := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		b.left = true
		if len(b.acts) > 0 {
			l.waiting -= len(b.acts)
			l.stats.count(len(b.acts))
			l.current, l.ticks = b, 0
			return b
		}
	}
	l.busy = false
	return nil
}

// arrive ends the call that a batch is, and reports whether it still kept the lane.
func (l *lane) arrive(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != b {
		return false
	}
	l.current = nil
	return true
}

// recycle keeps the memory of a batch's list for the next one.
func (l *lane) recycle(acts []*weir.Act) {
	clear(acts)
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(acts) <= l.maxBatch {
		l.spare = acts
	}
}

// full reports whether the next batch has no room for more.
func (l *lane) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting >= l.maxBatch
}

// overdue counts one more tick, and returns the call in flight if it has lasted for
// more than so many.
func (l *lane) overdue(ticks int) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil
	}
	if l.ticks++; l.ticks > ticks {
		return l.current
	}
	return nil
}

// free takes the lane from a call, and reports whether the call still kept it, and
// whether somebody has to run the lane now.
func (l *lane) free(b *batch) (freed, start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != b {
		return false, false
	}
	l.current = nil
	l.busy = len(l.queue) > 0
	return true, l.busy
}

// clear empties the lane and returns the batches that had not left; they never will. The
// call in flight keeps the lane, and is not late before the outage is over, so that what
// comes then does not overtake it.
func (l *lane) clear() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	dismissed := l.queue
	for _, b := range dismissed {
		b.left, b.unsent = true, true
		l.stats.Withdrawn += int64(len(b.acts))
		l.waiting -= len(b.acts)
	}
	l.queue, l.ticks = nil, 0
	return dismissed
}
