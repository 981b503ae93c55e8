// Package coalesce lets calls that wait for a store leave together, in one call
// of the store. It wraps any [weir.Taker]; it pays where a call costs a round
// trip, so over Redis, and not over memory.
//
// A call that finds its lane idle goes at once, on its caller's goroutine, as if
// nothing stood in between. Calls that come while one is in flight wait for it
// to return and leave together, each act decided by itself, in the order in
// which they came. There is no timer that gathers: a call waits for what is in
// flight, or for nothing. So batches grow with the load, and only then.
//
// A batch leaves once the callers of the one before have been woken and have run:
// what they ask next is in it. So with as many callers as one likes, who ask again
// as soon as they are answered, it carries all that ask in its lane.
//
// Acts that have waited are carried by a goroutine that exists only while calls
// wait. It could be one of the callers; but then that caller would have to stay
// until the batch is back, whatever its own context says, or end the batch with
// it for all others. The price is one more goroutine to wake for each batch, not
// for each call.
//
// A caller that may leave, because its context can end, has its acts copied
// before they wait, and its answers copied back: a batch never touches the
// memory of a caller that has gone.
package coalesce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// What the fields of [Options] are if they are zero.
const (
	DefaultMaxBatch   = 256
	DefaultMaxLanes   = 16
	DefaultMaxWaiting = 10_000
	DefaultTimeout    = time.Second
)

// Options are the settings of a [Coalescer]. The zero value is a good one;
// negative fields count as zero.
type Options struct {
	// MaxBatch is how many acts of different calls leave together; the acts of
	// one call always do. Zero: [DefaultMaxBatch].
	MaxBatch int
	// MaxLanes is how many calls of the store are in flight at most; a store
	// that names more lanes has several in one. Zero: [DefaultMaxLanes].
	MaxLanes int
	// MaxWaiting is how many acts may wait in a lane; a call that finds more is
	// answered with [ErrFull]. Zero: [DefaultMaxWaiting].
	MaxWaiting int
	// Timeout bounds a call of the store for acts that waited; their callers
	// each have their own context besides. A call that goes alone is bounded by
	// its caller's context and by the store. Zero: [DefaultTimeout].
	Timeout time.Duration
}

// A Laner is a [weir.Taker] that can do more than one thing at a time: what it
// has to do in one lane does not hold up the others.
type Laner interface {
	// Lane returns the number of the lane for an act. Acts that begin with the
	// same key have the same lane. It never fails, however invalid the act.
	Lane(act *weir.Act) int
}

// ErrFull says that too many calls were waiting for the store already. Its class
// is [weir.ErrNotApplied].
var ErrFull = fmt.Errorf("%w: too many calls wait for the store", weir.ErrNotApplied)

// A Coalescer asks another Taker, for several callers at a time. It is safe for
// concurrent use, and needs no closing: it works only while calls wait, and for
// at most Options.Timeout after the last one has given up. Create it with Wrap.
type Coalescer struct {
	next    weir.Taker
	laner   Laner // nil: all acts have one lane
	lanes   []lane
	timeout time.Duration
}

// Wrap returns a Coalescer that asks next. If next is a [Laner], one call is in
// flight in each lane, else one at all.
func Wrap(next weir.Taker, o Options) *Coalescer {
	c := &Coalescer{next: next, timeout: cmp.Or(max(o.Timeout, 0), DefaultTimeout)}
	lanes := 1
	if laner, ok := next.(Laner); ok {
		c.laner, lanes = laner, cmp.Or(max(o.MaxLanes, 0), DefaultMaxLanes)
	}
	c.lanes = make([]lane, lanes)
	for i := range c.lanes {
		c.lanes[i].maxBatch = cmp.Or(max(o.MaxBatch, 0), DefaultMaxBatch)
		c.lanes[i].maxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	}
	return c
}

// Take decides the acts. Each caller's context is its own: once it ends, Take
// returns. What had not left by then is not charged, and its error is of the
// class [weir.ErrNotApplied]; what had left is charged or not, once, and its
// error is of the class [weir.ErrAmbiguous]. Both wrap the context's error.
//
// A call that goes alone hands its context to the wrapped Taker. A batch has a
// context of its own, without its callers' values. If the wrapped Taker panics,
// so does each call that waits for it.
//
// Acts of different lanes leave in different calls, at different instants,
// unless they have a key in common.
func (c *Coalescer) Take(ctx context.Context, acts []*weir.Act) {
	if err := ctx.Err(); err != nil {
		fail(acts, weir.ErrNotApplied, err)
		return
	}
	if len(acts) == 0 {
		return
	}
	if l := c.lane(acts[0]); len(acts) == 1 || c.together(l, acts) {
		c.take(ctx, l, acts)
		return
	}
	c.split(ctx, acts)
}

// fail says by its class what a context's end means for the acts.
func fail(acts []*weir.Act, class, err error) {
	for _, a := range acts {
		a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, class, err)
	}
}

func (c *Coalescer) lane(a *weir.Act) *lane {
	if c.laner == nil {
		return &c.lanes[0]
	}
	return &c.lanes[uint(c.laner.Lane(a))%uint(len(c.lanes))]
}

// take decides acts of one lane.
func (c *Coalescer) take(ctx context.Context, l *lane, acts []*weir.Act) {
	if l.claim() {
		c.alone(ctx, l, acts)
		return
	}
	if t := c.board(ctx, l, acts, true); t.batch != nil {
		t.await(ctx)
	} else if t.claimed {
		c.alone(ctx, l, acts)
	}
}

// alone asks for the acts of one call, in a lane that was claimed for it.
func (c *Coalescer) alone(ctx context.Context, l *lane, acts []*weir.Act) {
	defer func() {
		if l.leave(len(acts)) {
			go c.run(l)
		}
	}()
	c.next.Take(ctx, acts)
}

// run carries the batches that wait in a lane, until none does.
func (c *Coalescer) run(l *lane) {
	for b := l.depart(); b != nil; b = l.depart() {
		c.carry(l, b)
		if !l.full() {
			// Those just woken come first, so that what they ask next is in the next
			// batch instead of behind it.
			b.callers.Wait()
		}
	}
}

// carry asks for a batch and wakes those who wait for it, however the wrapped
// Taker ends.
func (c *Coalescer) carry(l *lane, b *batch) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	returned := false
	defer func() {
		cancel()
		b.panicked = recover()
		if !returned {
			fail(b.acts, weir.ErrAmbiguous, errNoReturn)
		}
		l.arrive(b)
		if !returned && b.panicked == nil {
			// This goroutine is being ended.
			go c.run(l)
		}
	}()
	c.next.Take(ctx, b.acts)
	returned = true
}

var errNoReturn = errors.New("the store did not return")
