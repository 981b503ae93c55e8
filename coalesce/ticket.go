package coalesce

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// A ticket is a call's place in a batch.
type ticket struct {
	lane  *lane
	batch *batch // nil if there is no place
	acts  []*weir.Act
	// own is what the batch works on, if the caller may leave before it is back.
	own     *copies
	claimed bool // the lane was idle and is the caller's
	counts  bool // among the batch's callers
}

// board takes a place for the acts in a lane's next batch. Acts for which there
// is none are answered, unless the lane was found idle. Only a caller that waits for
// nothing else may count among those for whom the batch after it waits.
func (c *Coalescer) board(ctx context.Context, l *lane, acts []*weir.Act, counts bool) ticket {
	t := ticket{lane: l, acts: acts, counts: counts}
	asked := acts
	if ctx.Done() != nil {
		t.own = copyOf(acts)
		asked = t.own.acts
	}
	b, err := l.join(asked, counts)
	t.batch, t.claimed = b, b == nil && err == nil
	if b == nil {
		t.own.free()
	}
	if err != nil {
		for _, a := range acts {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
		}
	}
	return t
}

// await returns when the batch is back, or ctx ends.
func (t *ticket) await(ctx context.Context) {
	if t.counts {
		defer t.batch.callers.Done()
	}
	if t.own == nil {
		<-t.batch.done
		t.check()
		return
	}
	select {
	case <-t.batch.done:
		t.collect()
	case <-ctx.Done():
		t.giveUp(ctx.Err())
	}
}

// collect takes the answers home.
func (t *ticket) collect() {
	t.check()
	t.own.answer(t.acts)
	t.own.free()
}

// check panics if the wrapped Taker did.
func (t *ticket) check() {
	if t.batch.panicked != nil {
		panic(t.batch.panicked)
	}
}

// giveUp takes the acts out of the batch, or lets it go on without their caller.
func (t *ticket) giveUp(err error) {
	if t.lane.withdraw(t.batch, t.own.acts) {
		t.own.free()
		fail(t.acts, weir.ErrNotApplied, err)
		return
	}
	select {
	case <-t.batch.done:
		t.collect()
	default:
		// The batch still works on the copies: they are the collector's.
		t.lane.abandon(len(t.acts))
		fail(t.acts, weir.ErrAmbiguous, err)
	}
}

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
	if c == nil || cap(c.charges) > maxPooled {
		return
	}
	clear(c.acts)
	clear(c.own)
	clear(c.charges)
	c.acts, c.own, c.charges, c.decisions = c.acts[:0], c.own[:0], c.charges[:0], c.decisions[:0]
	pool.Put(c)
}
