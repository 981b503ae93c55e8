package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
)

// A ticket is a caller's place in a batch.
type ticket struct {
	coalescer *Coalescer
	ctx       context.Context
	lane      *lane
	batch     *batch
	acts      []*weir.Act
	own       *copies // the batch's, because the caller may leave first
	sole      bool    // the caller waits for this batch and for nothing else
}

func (c *Coalescer) ticket(ctx context.Context, l *lane, acts []*weir.Act) *ticket {
	return &ticket{coalescer: c, ctx: ctx, lane: l, acts: acts, own: copyOf(acts)}
}

// board puts the acts into the lane's next batch, and reports whether it has room. Acts
// for which it has none are answered.
func (t *ticket) board() bool {
	idle, err := t.lane.join(t)
	if err != nil {
		t.own.free()
		for _, a := range t.acts {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
		}
		return false
	}
	if idle {
		t.coalescer.start(t.lane)
	}
	return true
}

// await waits until the batch is answered or the caller's context ends, and answers the
// caller's acts.
func (t *ticket) await() {
	b := t.batch
	if t.sole {
		defer b.callers.Done()
	}
	select {
	case <-b.answered:
	case <-t.ctx.Done():
		if !b.isAnswered() && !t.lastCheck() {
			if t.lane.withdraw(t) {
				t.own.free()
				fail(t.acts, weir.ErrNotApplied, t.ctx.Err())
			} else {
				t.leave(t.ctx.Err())
			}
			return
		}
	}
	switch {
	case b.outage == nil:
		t.collect()
	case b.dismissed:
		t.own.free()
		fail(t.acts, weir.ErrNotApplied, b.outage)
	default:
		t.leave(b.outage)
	}
}

// lastCheck reports whether the batch is answered after all: a timeout of our own is
// measured in time in which this process was responsive, so that replies which came
// while it was frozen are read first.
func (t *ticket) lastCheck() bool {
	if !deadline.Ours(t.ctx) {
		return false
	}
	select {
	case <-t.batch.answered:
	case <-t.coalescer.watch.WholeTick():
	}
	return t.batch.isAnswered()
}

// collect copies the answers to the caller's acts.
func (t *ticket) collect() {
	t.own.answer(t.acts)
	if out := t.batch.outageOf(); out != nil {
		for _, a := range t.acts {
			if errors.Is(a.Err, weir.ErrNotApplied) {
				a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
			}
		}
	}
	if t.batch.panicked != nil {
		panic(t.batch.panicked)
	}
	t.own.free()
}

// leave answers the caller without the reply, unless that has just come. The batch goes
// on with the copies.
func (t *ticket) leave(cause error) {
	t.lane.abandoned(len(t.acts))
	if !t.batch.abandon(t.own.acts) {
		t.collect()
		return
	}
	for i, a := range t.acts {
		a.Err = &pending{kind: a.Kind, cause: cause, batch: t.batch, act: t.own.acts[i]}
	}
}

// pending is the error of an act whose reply is missing. It implements [weir.Pending].
type pending struct {
	kind  weir.Kind
	cause error
	batch *batch
	act   *weir.Act
}

// Error says what ended the wait.
func (p *pending) Error() string {
	return fmt.Sprintf("weir: %v: %v: %v", p.kind, weir.ErrAmbiguous, p.cause)
}

// Unwrap returns the class and what ended the wait.
func (p *pending) Unwrap() []error { return []error{weir.ErrAmbiguous, p.cause} }

// Then implements [weir.Pending].
func (p *pending) Then(f func(*weir.Act)) { p.batch.then(func() { f(p.act) }) }

// copies are copies of a caller's acts.
type copies struct {
	acts      []*weir.Act
	own       []weir.Act
	charges   []weir.Charge
	decisions []weir.Decision
}

var pool = sync.Pool{New: func() any { return new(copies) }}

// maxPooled is how many charges the copies that are kept for later may hold.
const maxPooled = 1024

func copyOf(acts []*weir.Act) *copies {
	c := pool.Get().(*copies)
	charges, decisions := 0, 0
	for _, a := range acts {
		charges += len(a.Charges)
		decisions += len(a.Decisions)
	}
	// Grown at once, so that nothing moves while it is filled.
	c.own = slices.Grow(c.own, len(acts))
	c.charges = slices.Grow(c.charges, charges)
	c.decisions = slices.Grow(c.decisions, decisions)
	for _, a := range acts {
		c.add(a)
	}
	return c
}

func (c *copies) add(a *weir.Act) {
	i, j := len(c.charges), len(c.decisions)
	c.charges = append(c.charges, a.Charges...)
	c.decisions = append(c.decisions, a.Decisions...)
	c.own = append(c.own, *a)
	own := &c.own[len(c.own)-1]
	own.Charges, own.Decisions = c.charges[i:], c.decisions[j:]
	c.acts = append(c.acts, own)
}

// answer copies the answers to acts.
func (c *copies) answer(acts []*weir.Act) {
	for i, a := range acts {
		a.Err = c.own[i].Err
		copy(a.Decisions, c.own[i].Decisions)
	}
}

// free keeps the memory for later copies.
func (c *copies) free() {
	if cap(c.charges) > maxPooled {
		return
	}
	clear(c.acts)
	clear(c.own)
	clear(c.charges)
	c.acts, c.own, c.charges, c.decisions = c.acts[:0], c.own[:0], c.charges[:0], c.decisions[:0]
	pool.Put(c)
}
