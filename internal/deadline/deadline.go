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
	start   time.Time
	cause   error
	current atomic.Pointer[end]
}

// An end is the deadline of calls that began close together.
type end struct {
	context.Context
	cancel context.CancelFunc
	until  time.Duration // calls that begin from then on, since the group's start, have another end
	at     int64         // the millisecond of a Clock's end
}

// NewGroup returns a group whose contexts last for a duration.
func NewGroup(after time.Duration) *Group { return &Group{after: after, start: time.Now()} }

// errPatience is the cause of contexts that a timeout of ours has ended.
var errPatience = fmt.Errorf("%w: no answer within our own patience", context.DeadlineExceeded)

// NewPatience returns a group for timeouts of ours: [Ours] tells them from deadlines that
// callers set.
func NewPatience(after time.Duration) *Group {
	g := NewGroup(after)
	g.cause = errPatience
	return g
}

// Ours reports whether a timeout of ours has ended a context.
func Ours(ctx context.Context) bool {
	if e, is := ctx.(*either); is && e.values.Err() == nil {
		ctx = e.end
	}
	return context.Cause(ctx) == errPatience
}

// A Clock makes contexts for callers that have announced their deadlines. Deadlines within
// the same millisecond share one end, up to a millisecond early. It starts nothing but
// timers and is safe for concurrent use. The zero value is ready for use.
type Clock struct {
	ends sync.Map            // of *end by millisecond
	last atomic.Pointer[end] // that Before has returned: most calls that come together share it
}

// Before returns a context for a caller with a deadline. The context ends a little
// earlier, so that the answer reaches the caller in time. It has the values of ctx, but
// not its end, and need not be cancelled.
func (c *Clock) Before(ctx context.Context, leaves time.Time) context.Context {
	left := time.Until(leaves)
	when := leaves.Add(Within(left) - left)
	key := when.UnixMilli()
	e := c.last.Load()
	if e == nil || e.at != key {
		e = c.end(key, when)
		c.last.Store(e)
	}
	return &bounded{e, ctx, leaves}
}

// end returns the end of the calls of a millisecond.
func (c *Clock) end(key int64, when time.Time) *end {
	if e, found := c.ends.Load(key); found {
		return e.(*end)
	}
	e := &end{at: key}
	e.Context, e.cancel = context.WithDeadline(context.Background(), when.Truncate(time.Millisecond))
	known, found := c.ends.LoadOrStore(key, e)
	if found {
		e.cancel()
		return known.(*end)
	}
	context.AfterFunc(e, func() { c.ends.Delete(key) })
	return e
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

// After returns the group's duration.
func (g *Group) After() time.Duration { return g.after }

// Context returns a context that ends after the group's duration. It has the values of
// ctx, but not its end, and need not be cancelled.
func (g *Group) Context(ctx context.Context) context.Context {
	return &bounded{end: g.end(), values: ctx}
}

// Bound returns a context that ends with ctx or after the group's duration. It need not be
// cancelled.
func (g *Group) Bound(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return g.Context(ctx)
	}
	return &either{bounded: bounded{end: g.end(), values: ctx}}
}

// end returns the end of calls that begin now.
func (g *Group) end() *end {
	now := time.Since(g.start)
	for {
		e := g.current.Load()
		if e == nil || now >= e.until {
			e = g.next(e, now)
		}
		if e != nil {
			return e
		}
	}
}

// next makes the end of calls that begin now. It returns nil if another caller made one
// first.
func (g *Group) next(before *end, now time.Duration) *end {
	e := &end{until: now + g.after/parts}
	e.Context, e.cancel = context.WithDeadlineCause(context.Background(), g.start.Add(now+g.after), g.cause)
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

// either is the context of a call that its caller or the end of its group ends. One that
// ends with both is made only if somebody waits for it, which takes 4 allocations and half
// a microsecond; see Apart.
type either struct {
	bounded
	both atomic.Pointer[context.Context]
}

// Done implements [context.Context].
func (e *either) Done() <-chan struct{} {
	if e.both.Load() == nil {
		both, cancel := context.WithCancel(e.values)
		context.AfterFunc(e.end, cancel)
		e.both.CompareAndSwap(nil, &both)
	}
	return (*e.both.Load()).Done()
}

// Err implements [context.Context].
func (e *either) Err() error {
	if err := e.values.Err(); err != nil {
		return err
	}
	return e.end.Err()
}

// Deadline implements [context.Context].
func (e *either) Deadline() (time.Time, bool) {
	when, _ := e.end.Deadline()
	if theirs, bounded := e.values.Deadline(); bounded && theirs.Before(when) {
		when = theirs
	}
	return when, true
}

// Value returns the caller's values only: contexts are derived from both ends.
func (e *either) Value(k any) any { return e.values.Value(k) }

// Apart returns the two contexts that end ctx: one whose end many calls share, with the
// values of ctx, nil if there is none; and the caller's, nil if it never ends.
func Apart(ctx context.Context) (shared, caller context.Context) {
	switch c := ctx.(type) {
	case *either:
		return &c.bounded, c.values
	case *bounded:
		return c, nil
	}
	if ctx.Done() == nil {
		return nil, nil
	}
	return nil, ctx
}

// Sleep waits for a duration. If ctx ends first, Sleep returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
