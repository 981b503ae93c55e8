// Package stack puts the decorators around a store, in the one order in which
// they belong. The server and programs that embed the library use it alike.
package stack

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/coalesce"
	"github.com/weirlimit/weir/denycache"
	"github.com/weirlimit/weir/distinct"
	"github.com/weirlimit/weir/fallback"
	"github.com/weirlimit/weir/lease"
	"github.com/weirlimit/weir/observe"
	"github.com/weirlimit/weir/override"
)

// Options are the settings of a [Stack], decorator by decorator. The zero value
// is a good one.
type Options struct {
	// Override is for the limits that single keys have instead of the usual
	// ones.
	Override override.Options
	// Distinct is for the limits that keep so many keys apart and no more. Without
	// its Budget there are none.
	Distinct distinct.Options
	// Lease is for the limits whose units are spent from shares. Without its
	// Leased there are none.
	Lease lease.Options
	// DenyCache is for refusals that are known.
	DenyCache denycache.Options
	// AskAlways asks the store also where it is known to refuse. False: it is not
	// asked then, where the store has lanes, as those in Redis do.
	AskAlways bool
	// Coalesce is for calls that leave together.
	Coalesce coalesce.Options
	// Apart sends each call to the store by itself. False: calls leave together
	// where the store has lanes.
	Apart bool
	// Fallback is for answers while the store reaches no decision. Nil: its
	// errors are the callers'.
	Fallback *fallback.Options
	// Store observes the calls of the store itself.
	Store observe.Options
}

// A Stack is a store with its decorators. It is safe for concurrent use and
// starts nothing before Start; its store stays its caller's to close. Create it
// with New.
type Stack struct {
	top       weir.Taker
	override  *override.Taker
	distinct  *distinct.Taker
	lease     *lease.Leaser
	denyCache *denycache.Cache
	fallback  *fallback.Taker
	coalesce  *coalesce.Coalescer
}

// New returns the decorators around a store. From the top, so in the order in
// which an act meets them:
//
//   - override, above all that asks under which limit a key is;
//   - distinct, above all that keeps something of keys, and below the overrides, whose
//     keys somebody has named;
//   - lease, which pays from memory what it can;
//   - denycache, which refuses from memory what is known to be refused;
//   - fallback, which charges keys under the limits that hold for them, and whose
//     deadline includes the time that an act waits to leave;
//   - coalesce, where the acts are that need it;
//   - observe, right above the store, if somebody observes it.
func New(store weir.Taker, o Options) *Stack {
	s := &Stack{top: store}
	laner, distant := store.(coalesce.Laner)
	if o.Store.Observer != nil {
		observed := wrap(s, observe.Wrap, o.Store)
		if distant {
			s.top = &laned{observed, laner}
		}
	}
	if distant && !o.Apart {
		s.coalesce = wrap(s, coalesce.Wrap, o.Coalesce)
	}
	if o.Fallback != nil {
		s.fallback = wrap(s, fallback.Wrap, *o.Fallback)
	}
	if distant && !o.AskAlways {
		s.denyCache = wrap(s, denycache.Wrap, o.DenyCache)
	}
	if o.Lease.Leased != nil {
		s.lease = wrap(s, lease.Wrap, o.Lease)
	}
	if o.Distinct.Budget != nil {
		s.distinct = wrap(s, distinct.Wrap, o.Distinct)
	}
	s.override = wrap(s, override.Wrap, o.Override)
	return s
}

// laned is an observed store that still has its lanes.
type laned struct {
	*observe.Taker
	coalesce.Laner
}

// wrap puts one more decorator on top.
func wrap[D weir.Taker, O any](s *Stack, with func(weir.Taker, O) D, o O) D {
	d := with(s.top, o)
	s.top = d
	return d
}

// Start begins what the decorators do in the background: giving back shares that
// nobody spends. A stack without leases needs none of it; a fallback starts what it
// needs when it needs it.
func (s *Stack) Start() {
	if s.lease != nil {
		s.lease.Start()
	}
}

// Stop ends it: gives back all shares, and charges back what was granted while the
// store was away, as far as there is time. The error says what the store does not
// know. It may be called again.
func (s *Stack) Stop(ctx context.Context) error {
	var err error
	if s.lease != nil {
		err = s.lease.Stop(ctx)
	}
	if s.fallback != nil {
		err = errors.Join(err, s.fallback.Stop(ctx))
	}
	return err
}

// Take decides the acts.
func (s *Stack) Take(ctx context.Context, acts []*weir.Act) { s.top.Take(ctx, acts) }

// TakeOne decides a take of one key where that takes nothing but memory, and leaves
// all else to Take. A [weir.Limiter] asks it first.
func (s *Stack) TakeOne(limit *weir.Limit, key string, cost int64) (
	outcome weir.Outcome, source weir.Source, remaining int64, wait, reset time.Duration, at int64,
) {
	return s.override.TakeOne(limit, key, cost)
}

// Override is where single keys are given other limits.
func (s *Stack) Override() *override.Taker { return s.override }

// Distinct is what bounds how many keys limits have, to be asked for its counts; nil
// if nothing does.
func (s *Stack) Distinct() *distinct.Taker { return s.distinct }

// Lease is what spends shares, to be asked for its counts; nil if there is none.
func (s *Stack) Lease() *lease.Leaser { return s.lease }

// DenyCache is what remembers refusals, to be told what to forget; nil if there is
// none.
func (s *Stack) DenyCache() *denycache.Cache { return s.denyCache }

// Coalesce is what has calls leave together, to be asked for its counts; nil if
// each call goes by itself.
func (s *Stack) Coalesce() *coalesce.Coalescer { return s.coalesce }

// Fallback is what answers while the store does not, to be stopped before the
// store is closed; nil if nothing does.
func (s *Stack) Fallback() *fallback.Taker { return s.fallback }
