// Package stack puts the decorators around a store, in the one order in which
// they belong. The server and programs that embed the library use it alike.
package stack

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/coalesce"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/fallback"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/layer/override"
)

// Options are the settings of a [Stack], decorator by decorator. The zero value
// is a good one.
type Options struct {
	// Override is for the limits that single keys have instead of the usual
	// ones.
	Override override.Options
	// Distinct is for the limits that keep so many keys apart and no more. Without
	// its Budget there are none.
	Distinct keylimit.Options
	// Lease is for the limits whose units are spent from shares. Without its
	// Leased there are none.
	Lease lease.Options
	// DenyCache is for refusals that are known.
	DenyCache denycache.Options
	// AskAlways asks the store also where it is known to refuse. False: it is not
	// asked then, where the store has lanes, as those in Redis do.
	AskAlways bool
	// Coalesce is for the calls of a store that has lanes, as those in Redis do: which
	// leave together, and when a node of the store is out.
	Coalesce coalesce.Options
	// Fallback is for answers where such a store reaches no decision. Nil: its callers
	// wait for [fallback.DefaultPatience] and get its errors. A store without lanes has
	// none unless it is set.
	Fallback *fallback.Options
	// Store observes the calls of the store itself.
	Store observe.Options
	// Logger receives the lines of all layers that have no logger of their own: that the
	// store is unreachable, and that it is reachable again. Nil: none.
	Logger *slog.Logger
}

// A Stack is a store with its decorators. It is safe for concurrent use and
// starts nothing before Start; its store stays its caller's to close. Create it
// with New.
type Stack struct {
	top       weir.Taker
	override  *override.Layer
	distinct  *keylimit.Layer
	lease     *lease.Layer
	denyCache *denycache.Layer
	fallback  *fallback.Layer
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
//     patience includes the time that an act waits to leave;
//   - coalesce, which owns the calls of the store;
//   - observe, right above the store, if somebody observes it.
func New(store weir.Taker, o Options) *Stack {
	s := &Stack{top: store}
	_, remote := weir.As[coalesce.Laner](store)
	if o.Store.Observer != nil {
		wrap(s, observe.Wrap, o.Store)
	}
	if remote {
		o.Coalesce.Logger = cmp.Or(o.Coalesce.Logger, o.Logger)
		s.coalesce = wrap(s, coalesce.Wrap, o.Coalesce)
	}
	if remote || o.Fallback != nil {
		s.fallback = wrap(s, fallback.Wrap, s.policies(&o))
	}
	if remote && !o.AskAlways {
		s.denyCache = wrap(s, denycache.Wrap, o.DenyCache)
	}
	if o.Lease.Leased != nil {
		s.lease = wrap(s, lease.Wrap, o.Lease)
	}
	if o.Distinct.Budget != nil {
		s.distinct = wrap(s, keylimit.Wrap, o.Distinct)
	}
	s.override = wrap(s, override.Wrap, o.Override)
	return s
}

// policies are the options of the fallback, which has the deny cache above it forget what
// a settlement changes below it.
func (s *Stack) policies(o *Options) fallback.Options {
	f := fallback.Options{Policy: func(*weir.Charge) fallback.Policy { return fallback.Error }}
	if o.Fallback != nil {
		f = *o.Fallback
	}
	f.Logger = cmp.Or(f.Logger, o.Logger)
	reconciled := f.Reconciled
	f.Reconciled = func(c *weir.Charge) {
		if s.denyCache != nil {
			s.denyCache.Forget(c.Key)
		}
		if reconciled != nil {
			reconciled(c)
		}
	}
	return f
}

// wrap puts one more decorator on top.
func wrap[D weir.Taker, O any](s *Stack, with func(weir.Taker, O) D, o O) D {
	d := with(s.top, o)
	s.top = d
	return d
}

// Start begins the background work of the layers: giving back leased units that
// nobody spends. A stack without leases needs none of it; the other layers start what
// they need when they need it.
func (s *Stack) Start() {
	if s.lease != nil {
		s.lease.Start()
	}
}

// Stop ends it: it gives back all leased units, waits for calls in flight, and settles
// what was granted without the store, as far as there is time. The error says what the
// store does not know. It may be called again.
func (s *Stack) Stop(ctx context.Context) error {
	var err error
	if s.lease != nil {
		err = s.lease.Stop(ctx)
	}
	if s.fallback != nil {
		err = errors.Join(err, s.fallback.Stop(ctx))
	}
	if s.coalesce != nil {
		err = errors.Join(err, s.coalesce.Stop(ctx))
	}
	return err
}

// Outages are the errors of the store's nodes that are out now; none if all answer.
func (s *Stack) Outages() []error {
	if s.coalesce == nil {
		return nil
	}
	var all []error
	for _, out := range s.coalesce.Outages() {
		all = append(all, out)
	}
	return all
}

// Take decides the acts.
func (s *Stack) Take(ctx context.Context, acts []*weir.Act) { s.top.Take(ctx, acts) }

// Override is where single keys are given other limits.
func (s *Stack) Override() *override.Layer { return s.override }

// Distinct is what bounds how many keys limits have, to be asked for its counts; nil
// if nothing does.
func (s *Stack) Distinct() *keylimit.Layer { return s.distinct }

// Lease is what spends shares, to be asked for its counts; nil if there is none.
func (s *Stack) Lease() *lease.Layer { return s.lease }

// DenyCache is what remembers refusals, to be told what to forget; nil if there is
// none.
func (s *Stack) DenyCache() *denycache.Layer { return s.denyCache }

// Coalesce is what has calls leave together, to be asked for its counts; nil if
// each call goes by itself.
func (s *Stack) Coalesce() *coalesce.Coalescer { return s.coalesce }

// Fallback is what answers while the store does not, to be stopped before the
// store is closed; nil if nothing does.
func (s *Stack) Fallback() *fallback.Layer { return s.fallback }
