package app

import (
	"context"
	"errors"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/coalesce"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/peers"
	denyshare "github.com/weirlimit/weir/internal/peers/denials"
	"github.com/weirlimit/weir/internal/peers/overrides"
	"github.com/weirlimit/weir/stack"
)

// assemble puts the decorators around the store, and beside them what tells other
// instances, where they share it.
func (a *App) assemble() error {
	o := &a.options
	beside := duringOutages(a.seldom, func() bool { return a.outage() != nil })
	cache := denycache.Options{Entries: o.DenyCacheEntries}
	if a.store.client != nil {
		bus, err := peers.NewRedis(a.store.client, peers.RedisOptions{Prefix: o.StorePrefix, Secret: a.store.secret, Logger: beside})
		if err != nil {
			return err
		}
		a.bus, a.returned = bus, denyshare.New(bus, beside)
		a.newCounter()
		cache.Returned = a.returned.Returned
	}
	background := a.panics("background")
	store := a.store.Taker
	if o.wrapStore != nil {
		store = o.wrapStore(store)
	}
	a.stack = stack.New(store, stack.Options{
		Distinct: a.distinct(),
		Lease: lease.Options{
			Leased: func(l *weir.Limit) bool { return a.rules.Load().Leased(l) },
			Around: func(work func()) { background.Background("lease", work) },
		},
		DenyCache: cache,
		AskAlways: o.NoDenyCache,
		Fallback:  a.fallback(),
		Coalesce:  coalesce.Options{Silence: o.Fallback.StoreSilence},
		Logger:    a.logger,
		Store:     observe.Options{Observer: a.metrics.Store()},
	})
	if a.bus == nil {
		return nil
	}
	if c := a.stack.DenyCache(); c != nil {
		a.returned.Follow(c)
	}
	var err error
	a.sharer, err = overrides.New(overrides.Options{
		Taker: a.stack.Override(), Client: a.store.client, Bus: a.bus, Prefix: o.StorePrefix, Timeout: o.Timeout, Logger: beside,
	})
	return err
}

// share begins what the decorators and what is beside them do in the background.
func (a *App) share() {
	a.stack.Start()
	if a.bus == nil {
		return
	}
	a.bus.Start()
	a.sharer.Start()
	a.returned.Start()
	a.count()
}

// unshare ends it. Shares of budgets go back, and what was granted during an
// outage is recorded in the store, while others can still be told.
func (a *App) unshare(ctx context.Context) error {
	if err := a.stack.Stop(ctx); err != nil {
		a.logger.Warn("the store does not know all that was granted and given back here", "error", err)
	}
	if a.bus == nil {
		return nil
	}
	return errors.Join(a.uncount(ctx), a.returned.Stop(ctx), a.bus.Stop(ctx), a.sharer.Stop(ctx))
}
