package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/deadline"
)

// A ticket is a caller's part of a batch. It has copies of the caller's acts, because the
// caller may leave first.
type ticket struct {
	calls  *Lanes
	ctx    context.Context
	shared context.Context // what ends ctx, see [deadline.Apart]
	caller context.Context
	ends   ends  // the same
	since  int64 // how many outages had begun when the caller made sure that the store may decide
	lane   *lane
	batch  *batch
	acts   []*weir.Act
	own    []*weir.Act     // the copies; the batch's
	sole   bool            // the caller waits for this batch and for nothing else
	posted bool            // no caller waits
	woken  <-chan struct{} // the batch wakes the caller at the ends of ctx; nil: it does not

	copies    []weir.Act
	charges   []weir.Charge
	decisions []weir.Decision
}

// ends are the channels that end the wait of a caller. Many calls may have the same ones.
// Both may be nil.
type ends struct{ shared, caller <-chan struct{} }

func (c *Lanes) ticket(ctx context.Context, outages int64, l *lane, acts []*weir.Act) *ticket {
	t := tickets.Get().(*ticket)
	t.calls, t.ctx, t.since, t.lane, t.acts = c, ctx, outages, l, acts
	if t.shared, t.caller = deadline.Apart(ctx); t.shared != nil {
		t.ends.shared = t.shared.Done()
	}
	if t.caller != nil {
		t.ends.caller = t.caller.Done()
	}
	t.copy(acts)
	return t
}

// board puts the acts into the lane's next batch, and reports whether it has room. Acts
// for which it has none are answered.
func (t *ticket) board() bool {
	start, err := t.lane.join(t)
	if err != nil {
		for _, a := range t.acts {
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
		}
		t.free()
		return false
	}
	if start {
		t.calls.start(t.lane)
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
	if t.wait(); !b.isAnswered.Load() && !t.lastCheck() {
		if t.lane.withdraw(t) {
			fail(t.acts, weir.ErrNotApplied, t.ctx.Err())
			t.free()
		} else {
			t.leave(t.ctx.Err())
		}
		return
	}
	switch {
	case b.outage == nil:
		t.collect()
	case b.unsent:
		fail(t.acts, weir.ErrNotApplied, b.outage)
		t.free()
	default:
		t.leave(b.outage)
	}
}

// wait waits until the batch is answered or the caller's context ends.
func (t *ticket) wait() {
	b := t.batch
	if b.isAnswered.Load() {
		return
	}
	if t.woken != nil {
		<-t.woken
		return
	}
	select {
	case <-b.done():
	case <-t.ends.shared:
	case <-t.ends.caller:
	}
}

// within returns the context of a direct call: without the caller's end, which a call that
// reads does not see, nor an outage. So it ends once an outage is declared if there is one. The
// caller then waits for a late reply as if another goroutine had made the call.
func (t *ticket) within() context.Context {
	ctx := t.ctx
	if t.shared != nil {
		ctx = t.shared
	}
	if until, bounded := ctx.Deadline(); bounded && time.Until(until) < t.calls.lone.After() {
		return ctx
	}
	return t.calls.lone.Context(ctx)
}

// lastCheck reports whether the batch is answered after all: a timeout of our own is
// measured in time in which this process was responsive, so that replies which came
// while it was frozen are read first.
func (t *ticket) lastCheck() bool {
	if !deadline.Ours(t.ctx) {
		return false
	}
	select {
	case <-t.batch.done():
	case <-t.calls.watch.WholeTick():
	}
	return t.batch.isAnswered.Load()
}

// collect copies the answers to the caller's acts.
func (t *ticket) collect() {
	for i, a := range t.acts {
		a.Err = t.own[i].Err
		copy(a.Decisions, t.own[i].Decisions)
	}
	if out := t.batch.outage; out != nil {
		for _, a := range t.acts {
			if errors.Is(a.Err, weir.ErrNotApplied) {
				a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
			}
		}
	}
	if t.batch.panicked != nil {
		panic(t.batch.panicked)
	}
	if !t.cutOff() {
		t.free()
	}
}

// cutOff answers the takes that were granted during an outage without their reply, see
// [Lanes.TakeSince], and reports whether there are any.
func (t *ticket) cutOff() (any bool) {
	out := t.batch.interrupted
	if out == nil {
		return false
	}
	for i, a := range t.acts {
		if a.Err == nil && a.Kind == acts.KindTake && slices.ContainsFunc(a.Decisions, func(d weir.Decision) bool { return d.Granted > 0 }) {
			a.Err, any = &pending{kind: a.Kind, cause: out, batch: t.batch, act: t.own[i]}, true
		}
	}
	return any
}

// leave answers the caller without the reply, unless the reply has just arrived. The
// batch continues with the copies. If an outage answered the caller, it has to ask for
// the reply: since then [Lanes.Left] did not know of it, and other callers may have
// been granted the same units.
func (t *ticket) leave(cause error) {
	t.lane.abandoned(len(t.acts))
	if !t.batch.abandon(t.own) && (t.batch.outage == nil || t.batch.panicked != nil || verdict(t.own) != nil) {
		t.collect()
		return
	}
	for i, a := range t.acts {
		a.Err = &pending{kind: a.Kind, cause: cause, batch: t.batch, act: t.own[i]}
	}
}

// pending is the error of an act whose reply is missing. It implements [acts.Pending].
type pending struct {
	kind  weir.Kind
	cause error
	batch *batch
	act   *weir.Act
}

// Error returns the reason for the end of the wait.
func (p *pending) Error() string {
	return fmt.Sprintf("weir: %v: %v: %v", p.kind, weir.ErrAmbiguous, p.cause)
}

// Unwrap returns the class, and the reason for the end of the wait.
func (p *pending) Unwrap() []error { return []error{weir.ErrAmbiguous, p.cause} }

// Then implements [acts.Pending].
func (p *pending) Then(f func(*weir.Act)) { p.batch.then(func() { f(p.act) }) }

// tickets are those that can be used again: no caller left and no call panicked.
var tickets = sync.Pool{New: func() any { return new(ticket) }}

// maxPooled is how many charges a ticket that is kept for later may hold.
const maxPooled = 1024

// copy makes the copies.
func (t *ticket) copy(acts []*weir.Act) {
	charges, decisions := 0, 0
	for _, a := range acts {
		charges += len(a.Charges)
		decisions += len(a.Decisions)
	}
	// Grown at once, so that nothing moves while it is filled.
	t.copies = slices.Grow(t.copies, len(acts))
	t.charges = slices.Grow(t.charges, charges)
	t.decisions = slices.Grow(t.decisions, decisions)
	for _, a := range acts {
		i, j := len(t.charges), len(t.decisions)
		t.charges = append(t.charges, a.Charges...)
		t.decisions = append(t.decisions, a.Decisions...)
		t.copies = append(t.copies, *a)
		own := &t.copies[len(t.copies)-1]
		own.Charges, own.Decisions = t.charges[i:], t.decisions[j:]
		t.own = append(t.own, own)
	}
}

// free keeps the ticket for later.
func (t *ticket) free() {
	if cap(t.charges) > maxPooled {
		return
	}
	clear(t.own)
	clear(t.copies)
	clear(t.charges)
	*t = ticket{own: t.own[:0], copies: t.copies[:0], charges: t.charges[:0], decisions: t.decisions[:0]}
	tickets.Put(t)
}
