package coalesce

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// A lane has at most one call of the store in flight, and the batches that wait
// for it to return.
type lane struct {
	maxBatch, maxWaiting int

	// busy is set by whoever gets to ask the store, and cleared under mu when
	// nobody waits.
	busy atomic.Bool

	mu      sync.Mutex
	queue   []*batch
	waiting int // acts in the queue
	spare   []*weir.Act
	stats   Stats

	_ [64]byte // the next lane's callers work on another cache line
}

// A batch is acts that leave together.
type batch struct {
	acts []*weir.Act
	left bool // guarded by the lane's mu; the acts are fixed from then on
	done chan struct{}
	// callers are those who wait for this batch and for nothing else, until they
	// have woken or given up.
	callers sync.WaitGroup
	// panicked is what the wrapped Taker panicked with, once done is closed.
	panicked any
}

// claim makes the lane the caller's if it is idle.
func (l *lane) claim() bool { return !l.busy.Load() && l.busy.CompareAndSwap(false, true) }

// join has the acts leave with the last batch that waits, and counts their caller
// among those for whom the next one waits, if it is to. Without an error or a batch
// the lane was idle, and is the caller's.
func (l *lane) join(acts []*weir.Act, counts bool) (*batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claim() {
		return nil, nil
	}
	if l.waiting > 0 && l.waiting+len(acts) > l.maxWaiting {
		l.stats.Rejected += int64(len(acts))
		return nil, ErrFull
	}
	b := l.last(len(acts))
	b.acts = append(b.acts, acts...)
	l.waiting += len(acts)
	if counts {
		b.callers.Add(1)
	}
	return b, nil
}

// last returns the last batch that waits, a fresh one if it has no room.
func (l *lane) last(acts int) *batch {
	if n := len(l.queue); n > 0 && len(l.queue[n-1].acts)+acts <= l.maxBatch {
		return l.queue[n-1]
	}
	b := &batch{acts: l.spare[:0], done: make(chan struct{})}
	l.spare = nil
	l.queue = append(l.queue, b)
	return b
}

// withdraw takes acts out of a batch that has not left, and reports whether it
// could.
func (l *lane) withdraw(b *batch, acts []*weir.Act) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.left {
		return false
	}
	i := slices.Index(b.acts, acts[0])
	b.acts = slices.Delete(b.acts, i, i+len(acts))
	l.waiting -= len(acts)
	l.stats.Withdrawn += int64(len(acts))
	return true
}

// leave ends a claim after a call of its own, and reports whether there are
// batches to run; if not, the lane is idle.
func (l *lane) leave(acts int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.count(acts)
	if len(l.queue) == 0 {
		l.busy.Store(false)
	}
	return len(l.queue) > 0
}

// full reports whether the next batch has no room for more.
func (l *lane) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting >= l.maxBatch
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
			return b
		}
	}
	l.busy.Store(false)
	return nil
}

// arrive wakes all who wait for a batch.
func (l *lane) arrive(b *batch) {
	acts := b.acts
	b.acts = nil
	close(b.done)
	clear(acts)
	l.mu.Lock()
	if cap(acts) <= l.maxBatch {
		l.spare = acts
	}
	l.mu.Unlock()
}
