// Package deadline gives many calls deadlines with few timers: a timer for each call costs
// more than the rest of most calls, and nearly all timers are stopped unused.
package deadline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// parts is how many parts a group's duration is divided into; calls that begin in the same
// part end together.
const parts = 16

// A Group makes contexts that all last for the same duration, or up to a sixteenth less.
// It starts nothing but timers, which end by themselves, and is safe for concurrent use.
// Create it with NewGroup.
type Group struct {
	after   time.Duration
	cause   error
	current atomic.Pointer[end]
}

// An end is the deadline of calls that began close together.
type end struct {
	context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin from then on have another end
}

// NewGroup returns a group whose contexts last for a duration.
func NewGroup(after time.Duration) *Group { return &Group{after: after} }

// errPatience is the cause of contexts that a timeout of ours has ended.
var errPatience = fmt.Errorf("%w: no answer within our own patience", context.DeadlineExceeded)

// NewPatience returns a group for timeouts of ours: [Ours] tells them from deadlines that
// callers set.
func NewPatience(after time.Duration) *Group { return &Group{after: after, cause: errPatience} }

// WithPatience returns a context that ends with ctx, or after a timeout of ours.
func WithPatience(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, after, errPatience)
}

// Ours reports whether a timeout of ours has ended a context.
func Ours(ctx context.Context) bool { return context.Cause(ctx) == errPatience }

// A Clock makes contexts for callers that have announced their deadlines. Deadlines within
// the same millisecond share one end, up to a millisecond early. It starts nothing but
// timers and is safe for concurrent use. The zero value is ready for use.
type Clock struct{ ends sync.Map } // of *end by millisecond

// Before returns a context for a caller with a deadline. The context ends a little
// earlier, so that the answer reaches the caller in time. It has the values of ctx, but
// not its end, and need not be cancelled.
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

// The time that is reserved for the answer is an eighth of the caller's, and reserveMax at
// most.
const (
	reserve    = 8
	reserveMax = 2 * time.Millisecond
)

// Within returns how much of a caller's remaining time a call may take: all but the
// reserve for the answer.
func Within(left time.Duration) time.Duration { return left - min(reserveMax, left/reserve) }

// Leaves returns the deadline of the caller, if Before has made the context.
func Leaves(ctx context.Context) (when time.Time, known bool) {
	b, found := ctx.Value(key{}).(*bounded)
	if !found || b.leaves.IsZero() || b.Done() != ctx.Done() {
		return time.Time{}, false
	}
	return b.leaves, true
}

// Context returns a context that ends after the group's duration. It has the values of
// ctx, but not its end, and need not be cancelled.
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

// next makes the end of calls that begin now. It returns nil if another caller made one
// first.
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
	leaves time.Time // the caller's deadline; zero if unknown
}

type key struct{}

// Value asks the end first, where derived contexts find the context that they end with.
func (b *bounded) Value(k any) any {
	if k == (key{}) {
		return b
	}
	if v := b.end.Value(k); v != nil {
		return v
	}
	return b.values.Value(k)
}

// Fixed reports whether nothing but a deadline can end a context: then one that ends
// earlier need not be derived from it.
func Fixed(ctx context.Context) bool {
	done := ctx.Done()
	if done == nil {
		return true
	}
	b, found := ctx.Value(key{}).(*bounded)
	return found && b.Done() == done
}
