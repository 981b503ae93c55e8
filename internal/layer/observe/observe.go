// Package observe reports the calls of a Taker, their acts, decisions and duration, to an
// observer: for metrics, dashboards and logs. At the top of a stack it observes the
// answers of callers; right above a store, the calls of the store.
package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// An Observer receives every call of a [Layer] before the call returns, from the goroutine
// that made it: the caller waits for Observe. It is called from many goroutines and must
// not keep the Call.
type Observer interface {
	Observe(c *Call)
}

// A Call is one Take that has returned.
type Call struct {
	// Acts have their decisions.
	Acts []*weir.Act
	// Limits are the limits that were asked for, one for each charge of each act in their
	// order. A charge itself names the limit that decided, which is another one where the
	// key has an override.
	Limits []*weir.Limit
	// Took is the duration of the call.
	Took time.Duration
}

// Options configure a [Layer]. The zero value observes nothing.
type Options struct {
	// Observer receives every call. Nil: none.
	Observer Observer
}

// A Layer asks the next Taker and reports to an observer. It changes nothing, allocates
// nothing and is safe for concurrent use. Create it with Wrap.
type Layer struct {
	next     weir.Taker
	observer Observer
}

// Wrap returns a Layer that asks next.
func Wrap(next weir.Taker, o Options) *Layer { return &Layer{next: next, observer: o.Observer} }

// reference is what calls are timed from: time.Now would read the time of day as well.
var reference = time.Now()

var calls = sync.Pool{New: func() any { return new(Call) }}

// Take asks the next Taker.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	if l.observer == nil {
		l.next.Take(ctx, acts)
		return
	}
	l.take(ctx, acts, func(c *Call) { l.observer.Observe(c) })
}

// TakeEach has a Taker decide the acts of several callers in one call. A [Layer] reports them
// as a call for each caller.
func TakeEach(ctx context.Context, t weir.Taker, callers [][]*weir.Act) {
	acts := slices.Concat(callers...)
	l, observes := t.(*Layer)
	if !observes || l.observer == nil {
		t.Take(ctx, acts)
		return
	}
	l.take(ctx, acts, func(c *Call) {
		limits := c.Limits
		for _, acts := range callers {
			n := 0
			for _, a := range acts {
				n += len(a.Charges)
			}
			c.Acts, c.Limits, limits = acts, limits[:n], limits[n:]
			l.observer.Observe(c)
		}
	})
}

// take asks the next Taker and passes the call to report.
func (l *Layer) take(ctx context.Context, acts []*weir.Act, report func(*Call)) {
	c := calls.Get().(*Call)
	for _, a := range acts {
		for i := range a.Charges {
			c.Limits = append(c.Limits, a.Charges[i].Limit)
		}
	}
	all := c.Limits
	start := time.Since(reference)
	l.next.Take(ctx, acts)
	c.Acts, c.Took = acts, time.Since(reference)-start
	report(c)
	clear(all)
	*c = Call{Limits: all[:0]}
	calls.Put(c)
}
