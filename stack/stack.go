// Package stack puts the decorators around a store, in the one order in which
// they belong. The server and programs that embed the library use it alike.
package stack

import (
	"context"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/coalesce"
	"github.com/weirlimit/weir/fallback"
	"github.com/weirlimit/weir/override"
)

// Options are the settings of a [Stack], decorator by decorator. The zero value
// is a good one.
type Options struct {
	// Override is for the limits that single keys have instead of the usual
	// ones.
	Override override.Options
	// Coalesce is for calls that leave together.
	Coalesce coalesce.Options
	// Apart sends each call to the store by itself. False: calls leave together
	// where the store has lanes, as one in Redis does.
	Apart bool
	// Fallback is for answers while the store reaches no decision. Nil: its
	// errors are the callers'.
	Fallback *fallback.Options
}

// A Stack is a store with its decorators. It is safe for concurrent use and
// starts nothing; its store stays its caller's to close, once its fallback was
// stopped. Create it with New.
type Stack struct {
	top      weir.Taker
	override *override.Taker
	coalesce *coalesce.Coalescer
	fallback *fallback.Taker
}

// New returns the decorators around a store. From the top, so in the order in
// which an act meets them:
//
//   - override, above all that asks under which limit a key is;
//   - fallback, which charges keys under the limits that hold for them, and whose
//     deadline includes the time that an act waits to leave;
//   - coalesce, right above the store, where the acts are that need it.
func New(store weir.Taker, o Options) *Stack {
	s := &Stack{top: store}
	if _, ok := store.(coalesce.Laner); ok && !o.Apart {
		s.coalesce = wrap(s, coalesce.Wrap, o.Coalesce)
	}
	if o.Fallback != nil {
		s.fallback = wrap(s, fallback.Wrap, *o.Fallback)
	}
	s.override = wrap(s, override.Wrap, o.Override)
	return s
}

// wrap puts one more decorator on top.
func wrap[D weir.Taker, O any](s *Stack, with func(weir.Taker, O) D, o O) D {
	d := with(s.top, o)
	s.top = d
	return d
}

// Take decides the acts.
func (s *Stack) Take(ctx context.Context, acts []*weir.Act) { s.top.Take(ctx, acts) }

// Override is where single keys are given other limits.
func (s *Stack) Override() *override.Taker { return s.override }

// Coalesce is what has calls leave together, to be asked for its counts; nil if
// each call goes by itself.
func (s *Stack) Coalesce() *coalesce.Coalescer { return s.coalesce }

// Fallback is what answers while the store does not, to be stopped before the
// store is closed; nil if nothing does.
func (s *Stack) Fallback() *fallback.Taker { return s.fallback }
