package coalesce

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/outage"
)

// A batch is acts that leave together.
type batch struct {
	acts []*weir.Act
	// lone is the context of the only caller; nil if there are several.
	lone context.Context

	left   bool // guarded by the lane's mu; the acts are fixed from then on
	unsent bool // as left; it will never leave

	era   outage.Era // of the node, at which it left
	trace *trace     // instead, if more than one node has a part in it
	late  bool       // guarded by the node's mu; it counts as late

	alone bool // its only caller waits in the call
	// pending: the call has returned, and its reply will come later.
	pending bool
	ended   bool // its context ended before the call returned, and nothing is pending

	// wake is closed when the callers are answered: by the reply, or because of an
	// outage. A call that is alone has none until it waits for a late reply.
	wake chan struct{}
	// callers are those who wait for this batch and for nothing else, until they
	// have woken or given up.
	callers sync.WaitGroup

	mu        sync.Mutex // guards what follows
	answered  bool
	out       *outage.Error // why the callers were answered without the reply
	returned  bool
	panicked  any         // what the wrapped Taker panicked with
	gone      []*weir.Act // acts whose callers have left
	waitingOn []func()    // called once the batch has returned
}

// values are those of the call's context.
func (b *batch) values() context.Context {
	if b.lone != nil {
		return b.lone
	}
	return context.Background()
}

// release answers the callers because of an outage, unless they are answered.
func (b *batch) release(out *outage.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.answered {
		b.answered, b.out = true, out
		if b.wake != nil {
			close(b.wake)
		}
	}
}

// land answers the callers with the reply, and reports whether they had been answered
// before, and what waits for the reply all the same.
func (b *batch) land(panicked any) (late bool, waiting []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned, b.panicked = true, panicked
	if late = b.answered; !late {
		b.answered = true
		if b.wake != nil {
			close(b.wake)
		}
	}
	waiting, b.waitingOn = b.waitingOn, nil
	return late, waiting
}

// then calls f once the batch has returned, or now if it has.
func (b *batch) then(f func()) {
	b.mu.Lock()
	if !b.returned {
		b.waitingOn = append(b.waitingOn, f)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	f()
}

// abandon notes that a caller has left, and reports whether the reply is still missing.
func (b *batch) abandon(acts []*weir.Act) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.returned {
		return false
	}
	b.gone = append(b.gone, acts...)
	return true
}

// waitFor reports whether the reply is missing to a call that is alone, and makes the
// channel that tells when it has come.
func (b *batch) waitFor() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.returned {
		return false
	}
	b.wake = make(chan struct{})
	if b.answered {
		close(b.wake)
	}
	return true
}

// outage returns the outage because of which the callers were answered; nil if there was
// none.
func (b *batch) outage() *outage.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out
}

// isBack reports whether the reply has come, or never will.
func (b *batch) isBack() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.returned
}
