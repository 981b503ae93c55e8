package coalesce

import (
	"context"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// A batch is the acts of one call of the store. It waits in its lane's queue until it is
// sent, unless an outage dismisses it; its callers are answered by the reply or, before
// that, by an outage; and it has returned once the reply has come or never will.
type batch struct {
	lane *lane
	acts []*weir.Act
	ctx  context.Context // the caller's, if there is one caller

	sent      bool // guarded by the lane's mu; the acts are fixed from then on
	dismissed bool // guarded by the lane's mu until the callers are answered

	// The sender's own.
	direct  bool // the only caller waits in the call itself
	pending bool // the call ended before the reply came
	expired bool // the call's own time was over

	generation outage.Generation // of the node, when the batch was sent
	trace      *trace            // instead, if more than one node has a part in it

	ticks int  // since it was sent, guarded by the node's mu
	late  bool // it no longer keeps its lane, guarded by the node's mu

	// answered is closed when the callers are answered.
	answered chan struct{}
	// callers are those who wait for this batch and for nothing else, until they have
	// run again or left.
	callers sync.WaitGroup

	mu        sync.Mutex // guards what follows
	outage    *outage.Error
	returned  bool
	panicked  any         // what the store panicked with
	abandoned []*weir.Act // those whose callers have left
	onReturn  []func()
}

// values is the context whose values the call has.
func (b *batch) values() context.Context {
	if b.ctx != nil {
		return b.ctx
	}
	return context.Background()
}

// answer answers the callers because of an outage, unless they are answered already.
func (b *batch) answer(out *outage.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outage == nil && !b.returned {
		b.outage = out
		close(b.answered)
	}
}

// complete answers the callers with the reply. It reports whether an outage had answered
// them before, and returns what is to be called now.
func (b *batch) complete(panicked any) (late bool, onReturn []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned, b.panicked = true, panicked
	if late = b.outage != nil; !late {
		close(b.answered)
	}
	onReturn, b.onReturn = b.onReturn, nil
	return late, onReturn
}

// then calls f once the batch has returned, or now if it has.
func (b *batch) then(f func()) {
	b.mu.Lock()
	if !b.returned {
		b.onReturn = append(b.onReturn, f)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	f()
}

// abandon notes that the caller of some acts leaves, and reports whether the batch has yet
// to return.
func (b *batch) abandon(acts []*weir.Act) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.returned {
		return false
	}
	b.abandoned = append(b.abandoned, acts...)
	return true
}

// isAnswered reports whether the callers are answered.
func (b *batch) isAnswered() bool {
	select {
	case <-b.answered:
		return true
	default:
		return false
	}
}

// outageOf returns the outage that answered the callers; nil if none did.
func (b *batch) outageOf() *outage.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outage
}

// A lane has at most one call of the store in flight that is not late, and the batches
// that wait behind it.
type lane struct {
	node                 *node
	maxBatch, maxWaiting int

	mu sync.Mutex // guards what follows
	// busy is set while somebody sends the lane's batches, or is about to.
	busy    bool
	current *batch // the batch that keeps the lane
	queue   []*batch
	waiting int // acts in the queue
	stats   Stats

	_ [64]byte // the next lane's callers work on another cache line
}

// join adds a ticket's acts to the last batch that waits. Idle reports whether nobody
// sends the lane's batches yet.
func (l *lane) join(t *ticket) (idle bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acts := t.own.acts
	if l.waiting > 0 && l.waiting+len(acts) > l.maxWaiting {
		l.stats.Rejected += int64(len(acts))
		return false, ErrFull
	}
	b := l.last(len(acts))
	if b.acts = append(b.acts, acts...); len(b.acts) == len(acts) {
		b.ctx = t.ctx
	} else {
		b.ctx = nil
	}
	l.waiting += len(acts)
	if t.sole {
		b.callers.Add(1)
	}
	t.batch = b
	idle = !l.busy
	l.busy = true
	return idle, nil
}

// last returns the last batch that waits, or a new one if that has no room.
func (l *lane) last(acts int) *batch {
	if n := len(l.queue); n > 0 && len(l.queue[n-1].acts)+acts <= l.maxBatch {
		return l.queue[n-1]
	}
	// Batches are about as large as the one before.
	room := acts
	if l.current != nil {
		room = max(room, min(len(l.current.acts), l.maxBatch))
	}
	b := &batch{lane: l, acts: make([]*weir.Act, 0, room), answered: make(chan struct{})}
	l.queue = append(l.queue, b)
	return b
}

// claim sends a ticket's acts at once, in a batch of their own, if the lane is idle.
func (l *lane) claim(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy {
		return false
	}
	t.batch = &batch{lane: l, acts: t.own.acts, sent: true, direct: true, answered: make(chan struct{})}
	l.busy, l.current = true, t.batch
	l.stats.count(len(t.own.acts))
	return true
}

// withdraw takes the acts of a ticket out of a batch that was not sent, and reports
// whether nothing was sent.
func (l *lane) withdraw(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := t.batch
	if b.sent || b.dismissed {
		return b.dismissed
	}
	i := slices.Index(b.acts, t.own.acts[0])
	b.acts = slices.Delete(b.acts, i, i+len(t.own.acts))
	l.waiting -= len(t.own.acts)
	l.stats.Withdrawn += int64(len(t.own.acts))
	return true
}

// next returns the batch to send now; nil if none waits, and then the lane is idle.
func (l *lane) next() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	for len(l.queue) > 0 {
		b := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		b.sent = true
		if len(b.acts) > 0 {
			l.waiting -= len(b.acts)
			l.stats.count(len(b.acts))
			l.current = b
			return b
		}
	}
	l.busy = false
	return nil
}

// keeps reports whether the lane is still that of a batch.
func (l *lane) keeps(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current == b
}

// free takes the lane from a batch, if that keeps it, and reports whether somebody has to
// send the batches that wait.
func (l *lane) free(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != b {
		return false
	}
	l.current = nil
	l.busy = len(l.queue) > 0
	return l.busy
}

// full reports whether the next batch has no room for more.
func (l *lane) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting >= l.maxBatch
}

// dismiss answers the callers of all batches that wait. The batch in flight keeps the
// lane, so that later acts do not overtake it once the outage is over.
func (l *lane) dismiss(out *outage.Error) {
	l.mu.Lock()
	dismissed := l.queue
	for _, b := range dismissed {
		b.dismissed = true
		l.stats.Withdrawn += int64(len(b.acts))
		l.waiting -= len(b.acts)
	}
	l.queue = nil
	l.mu.Unlock()
	for _, b := range dismissed {
		b.answer(out)
	}
}
