// Package stack puts the layers around a store, in the one order in which they work. The
// server and the stores of the library are built on it.
package stack

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/remote"
)

// Options are the settings of a [Stack], as the stores of the library document them.
type Options struct {
	Logger           *slog.Logger
	Now              func() time.Time
	Background       func(work func())
	MaxOverrides     int
	KeyLimit         func(*weir.Charge) weir.KeyLimit
	Leased           func(*weir.Limit) bool
	LeaseTime        time.Duration
	LeasePart        float64
	DenyCacheEntries int
	DenyCacheMaxAge  time.Duration
	Remote           remote.Options
}

// OfLimits returns key limits of limits as those of charges; nil for none.
func OfLimits(limit func(*weir.Limit) weir.KeyLimit) func(*weir.Charge) weir.KeyLimit {
	if limit == nil {
		return nil
	}
	return func(c *weir.Charge) weir.KeyLimit { return limit(c.Limit) }
}

// A Stack is a store with its layers. It is safe for concurrent use. Create it with New.
type Stack struct {
	Override  *override.Layer
	KeyLimit  *keylimit.Layer  // nil: there is no bound on keys
	Lease     *lease.Layer     // nil: nothing is leased
	DenyCache *denycache.Layer // nil: refusals are not remembered
	Remote    *remote.Remote   // nil: the store is in this process
	leased    func(*weir.Limit) bool
	top       weir.Taker
}

// New returns a store with its layers. It starts nothing. From the top, in the order in
// which an act meets them:
//
//   - override, above all layers that depend on the limit of a key;
//   - keylimit, above all layers that keep state of keys, and below the overrides, whose
//     keys were named by an operator;
//   - lease, which pays from memory what it can;
//   - denycache, which refuses from memory what it can;
//   - remote, which owns the calls of a store on other machines.
func New(store weir.Taker, o Options) *Stack {
	s := &Stack{leased: o.Leased, top: store}
	if elsewhere, is := store.(calls.Store); is {
		// The deny cache above must not refuse what was refunded.
		o.Remote.Reconciled = func(c *weir.Charge) { s.forget(c.Key) }
		o.Remote.Logger, o.Remote.Now = o.Logger, o.Now
		s.Remote = remote.New(elsewhere, o.Remote)
		s.top = s.Remote
		if o.DenyCacheEntries >= 0 {
			s.DenyCache = wrap(s, denycache.Wrap, denycache.Options{
				Entries: o.DenyCacheEntries, MaxAge: o.DenyCacheMaxAge, Now: o.Now,
			})
		}
	}
	if o.Leased != nil {
		s.Lease = wrap(s, lease.Wrap, lease.Options{
			Leased: o.Leased, Ahead: o.LeaseTime, Part: o.LeasePart, Around: o.Background, Now: o.Now,
		})
	}
	if o.KeyLimit != nil {
		s.KeyLimit = wrap(s, keylimit.Wrap, keylimit.Options{Budget: o.KeyLimit, Logger: o.Logger, Now: o.Now})
	}
	s.Override = wrap(s, override.Wrap, override.Options{Max: o.MaxOverrides, Now: o.Now})
	return s
}

// wrap puts one more layer on top.
func wrap[L weir.Taker, O any](s *Stack, wrap func(weir.Taker, O) L, o O) L {
	l := wrap(s.top, o)
	s.top = l
	return l
}

func (s *Stack) forget(key string) {
	if s.DenyCache != nil {
		s.DenyCache.Forget(key)
	}
}

// Patience returns the longest time for which Take waits, whatever its context.
func (s *Stack) Patience() time.Duration {
	if s.Remote == nil {
		return 0
	}
	return s.Remote.Patience
}

// Take decides the acts.
func (s *Stack) Take(ctx context.Context, acts []*weir.Act) { weir.TakeValid(ctx, acts, s.top.Take) }

// AnswersFromMemory reports whether a layer may decide an act without the store: what has an
// override or shares a budget of keys is decided under another key or limit than the act's, leases
// are spent in memory, and so are refusals found. A store in this process has nothing else.
func (s *Stack) AnswersFromMemory(a *weir.Act) bool {
	if s.Remote == nil {
		return true
	}
	for i := range a.Charges {
		c := &a.Charges[i]
		if s.Override.Concerns(c) || s.KeyLimit != nil && s.KeyLimit.Overflows(c) || s.leased != nil && s.leased(c.Limit) {
			return true
		}
	}
	return s.DenyCache != nil && s.DenyCache.MayRefuse(a)
}

// Start begins the background work of leases.
func (s *Stack) Start() {
	if s.Lease != nil {
		s.Lease.Start()
	}
}

// Stop returns all leased units, waits for calls in flight, and records in the store the
// units that were granted without it, until ctx ends. The error says which charges the
// store has not recorded. Stop may be called again.
func (s *Stack) Stop(ctx context.Context) error {
	var err error
	if s.Lease != nil {
		err = s.Lease.Stop(ctx)
	}
	if s.Remote != nil {
		err = errors.Join(err, s.Remote.Stop(ctx))
	}
	return err
}

// Overflowed returns the number of charges of keys beyond their limits' bounds.
func (s *Stack) Overflowed() (n uint64) {
	if s.KeyLimit != nil {
		for _, k := range s.KeyLimit.Stats() {
			n += k.Overflowed
		}
	}
	return n
}

// Outages returns the outages of the store's nodes that last.
func (s *Stack) Outages() (all []error) {
	if s.Remote != nil {
		for _, out := range s.Remote.Outages() {
			all = append(all, out)
		}
	}
	return all
}
