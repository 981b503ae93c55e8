// Package deadline ends many calls in time with few timers: a timer for each call
// costs more than most calls do otherwise, and nearly all are stopped unused.
package deadline

import (
	"context"
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
			return &bounded{e, ctx}
		}
	}
}

// next makes the end of calls that begin now; nil if somebody else made one first.
func (g *Group) next(before *end, now time.Time) *end {
	e := &end{until: now.Add(g.after / parts)}
	e.Context, e.cancel = context.WithDeadline(context.Background(), now.Add(g.after))
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
