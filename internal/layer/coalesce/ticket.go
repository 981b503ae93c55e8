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

// A ticket is a call's place in a batch.
type ticket struct {
	coalescer *Coalescer
	ctx       context.Context
	lane      *lane
	batch     *batch // nil if there is no place
	acts      []*weir.Act
	// own is what the batch works on: the caller may leave before it is back.
	own    *copies
	counts bool // among the batch's callers
}

// board takes a place for the acts in a lane's next batch. Acts for which there
// is none are answered. Only a caller that waits for nothing else may count among
// those for whom the batch after it waits.
func (c *Coalescer) board(ctx context.Context, l *lane, acts []*weir.Act, counts bool) ticket {
	t := ticket{coalescer: c, ctx: ctx, lane: l, acts: acts, own: copyOf(acts), counts: counts}
	b, start, err := l.join(&t)
	if err != nil {
		t.own.free()
		for _, a := range acts {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
		}
		return t
	}
	t.batch = b
	if start {
		c.start(l)
	}
	return t
}

// await returns when the batch is answered, or ctx ends.
func (t *ticket) await(ctx context.Context) {
	if t.counts {
		defer t.batch.callers.Done()
	}
	select {
	case <-t.batch.wake:
	case <-ctx.Done():
		if !t.lastLook(ctx) {
			t.giveUp(ctx.Err())
			return
		}
	}
	t.wake()
}

// lastLook reports whether the batch is answered after all: a patience of our own is
// measured in time in which this process was able to hear, so that replies which came
// while it was frozen are read first.
func (t *ticket) lastLook(ctx context.Context) bool {
	if !deadline.Ours(ctx) {
		return false
	}
	select {
	case <-t.batch.wake:
	case <-t.coalescer.watch.Heard():
	}
	return t.batch.isBack()
}

// wake takes home what the batch was answered with.
func (t *ticket) wake() {
	b := t.batch
	switch {
	case b.out == nil:
		t.collect()
	case b.unsent:
		t.own.free()
		fail(t.acts, weir.ErrNotApplied, b.out)
	default:
		t.leave(b.out)
	}
}

// collect takes the answers home.
func (t *ticket) collect() {
	t.own.answer(t.acts)
	if out := t.batch.outage(); out != nil {
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

// giveUp takes the acts out of the batch, or lets it go on without their caller.
func (t *ticket) giveUp(err error) {
	if t.lane.withdraw(t) {
		t.own.free()
		fail(t.acts, weir.ErrNotApplied, err)
		return
	}
	select {
	case <-t.batch.wake:
		t.wake()
	default:
		t.leave(err)
	}
}

// leave lets the batch go on without its caller: the copies are the batch's.
func (t *ticket) leave(cause error) {
	t.lane.abandon(len(t.acts))
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

// copies are acts in memory of our own.
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

// answer hands the answers over.
func (c *copies) answer(acts []*weir.Act) {
	for i, a := range acts {
		a.Err = c.own[i].Err
		copy(a.Decisions, c.own[i].Decisions)
	}
}

// free keeps the memory for later, without what it refers to.
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
