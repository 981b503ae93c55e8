// Package deadline ends many calls in time with few timers: a timer for each call
// costs more than most calls do otherwise, and nearly all are stopped unused.
package deadline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// parts is into how many parts a group's time is divided; calls that begin in the
// same part end together.
const parts = 16

// A Group makes contexts that end the same time after they began, or up to a
// sixteenth of it earlier. It starts nothing but timers, which end by themselves, and
// is safe for concurrent use. Create it with NewGroup.
type Group struct {
	after   time.Duration
	cause   error
	current atomic.Pointer[end]
}

// An end is when calls that began close together have to be back.
type end struct {
	context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin from here on have another one
}

// NewGroup returns a group whose contexts end after so long.
func NewGroup(after time.Duration) *Group { return &Group{after: after} }

// errPatience is why a context ended whose time was our own choice.
var errPatience = fmt.Errorf("%w: no answer within our own patience", context.DeadlineExceeded)

// NewPatience returns a group for waits whose length is our own choice: [Ours] tells
// their ends from those that callers set.
func NewPatience(after time.Duration) *Group { return &Group{after: after, cause: errPatience} }

// WithPatience returns a context that ends with ctx, or after so long by our own choice.
func WithPatience(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, after, errPatience)
}

// Ours reports whether a context has ended because our own patience did.
func Ours(ctx context.Context) bool { return context.Cause(ctx) == errPatience }

// A Clock makes contexts that end when callers said that they would leave. Those of
// callers who leave within the same millisecond share their end, up to a millisecond
// early. It starts nothing but timers and is safe for concurrent use.
type Clock struct{ ends sync.Map } // of *end by millisecond

// Before returns a context for a caller that leaves at an instant: it ends a little
// earlier, so that the answer reaches the caller. It has the values of ctx, but not its
// end, and need not be cancelled.
func (c *Clock) Before(ctx context.Context, leaves time.Time) context.Context {
	when := time.Now().Add(Within(time.Until(leaves)))
	key := when.UnixMilli()
	if e, found := c.ends.Load(key); found {
		return &bounded{e.(*end), ctx, leaves}
	}
	e := &end{}
	e.Context, e.cancel = context.WithDeadline(context.Background(), when.Truncate(time.Millisecond))
	known, found := c.ends.LoadOrStore(key, e)
	if found {
		e.cancel()
		return &bounded{known.(*end), ctx, leaves}
	}
	context.AfterFunc(e, func() { c.ends.Delete(key) })
	return &bounded{e, ctx, leaves}
}

// The most that is kept of a caller's time for the answer, as a part of it and in
// all.
const (
	reserve    = 8
	reserveMax = 2 * time.Millisecond
)

// Within is how much of a caller's time a call may take, so that the answer reaches the
// caller: all but an eighth, or all but 2 ms.
func Within(left time.Duration) time.Duration { return left - min(reserveMax, left/reserve) }

// Leaves returns when the caller leaves, if the context was made for that.
func Leaves(ctx context.Context) (when time.Time, known bool) {
	b, found := ctx.Value(key{}).(*bounded)
	if !found || b.leaves.IsZero() || b.Done() != ctx.Done() {
		return time.Time{}, false
	}
	return b.leaves, true
}

// Context returns a context that ends in time, with the values of ctx, but not its
// end. It need not be cancelled.
func (g *Group) Context(ctx context.Context) context.Context {
	now := time.Now()
	for {
		e := g.current.Load()
		if e == nil || !now.Before(e.until) {
			e = g.next(e, now)
		}
		if e != nil {
			return &bounded{end: e, values: ctx}
		}
	}
}

// next makes the end of calls that begin now; nil if somebody else made one first.
func (g *Group) next(before *end, now time.Time) *end {
	e := &end{until: now.Add(g.after / parts)}
	e.Context, e.cancel = context.WithDeadlineCause(context.Background(), now.Add(g.after), g.cause)
	if !g.current.CompareAndSwap(before, e) {
		e.cancel()
		return nil
	}
	return e
}

// bounded is the context of one call.
type bounded struct {
	*end
	values context.Context
	leaves time.Time // when the caller does, if it said so
}

type key struct{}

// Value asks the end first: contexts that are derived from this one find there what
// they end with.
func (b *bounded) Value(k any) any {
	if k == (key{}) {
		return b
	}
	if v := b.end.Value(k); v != nil {
		return v
	}
	return b.values.Value(k)
}

// Fixed reports whether nothing but the time ends a context, if anything does: then
// one that ends earlier need not be derived from it.
func Fixed(ctx context.Context) bool {
	done := ctx.Done()
	if done == nil {
		return true
	}
	b, found := ctx.Value(key{}).(*bounded)
	return found && b.Done() == done
}
