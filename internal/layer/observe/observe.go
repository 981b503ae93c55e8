// Package observe tells an observer what was asked of a Taker, what it answered
// and how long that took: for metrics, dashboards and logs. It wraps any
// [weir.Taker], at the top of a stack to see what callers got, or right above a
// store to see how the store does.
package observe

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// An Observer is told of every call of a [Taker], by the goroutine that called,
// before the call returns: what it does the caller waits for. It is called from
// many goroutines, and keeps nothing of the Call.
type Observer interface {
	Observe(c *Call)
}

// A Call is one Take that was answered.
type Call struct {
	// Acts have their answers.
	Acts []*weir.Act
	// Limits are those that were asked for, one for each charge of each act, in
	// their order: a charge itself names the limit that has decided, which may
	// be another one where the key has an override.
	Limits []*weir.Limit
	// Took is how long the answer took, by the monotonic clock.
	Took time.Duration
}

// Options are the settings of a [Taker]. The zero value observes nothing.
type Options struct {
	// Observer is told of every call. Nil: nobody is.
	Observer Observer
}

// A Taker asks another one and tells an observer. It changes nothing, allocates
// nothing and is safe for concurrent use. Create it with Wrap.
type Taker struct {
	next     weir.Taker
	observer Observer
}

// Wrap returns a Taker that asks next. The zero Options are allowed.
func Wrap(next weir.Taker, o Options) *Taker { return &Taker{next: next, observer: o.Observer} }

// Unwrap returns the Taker that t asks.
func (t *Taker) Unwrap() weir.Taker { return t.next }

var calls = sync.Pool{New: func() any { return new(Call) }}

// Take asks the wrapped Taker.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	if t.observer == nil {
		t.next.Take(ctx, acts)
		return
	}
	c := calls.Get().(*Call)
	for _, a := range acts {
		for i := range a.Charges {
			c.Limits = append(c.Limits, a.Charges[i].Limit)
		}
	}
	start := time.Now()
	t.next.Take(ctx, acts)
	c.Acts, c.Took = acts, time.Since(start)
	t.observer.Observe(c)
	clear(c.Limits)
	*c = Call{Limits: c.Limits[:0]}
	calls.Put(c)
}
