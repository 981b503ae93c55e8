package app

import (
	"context"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/coalesce"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/peers"
	"github.com/weirlimit/weir/stack"
)

// assemble puts the decorators around the store, and beside them what tells other
// instances, where they share it.
func (a *App) assemble() error {
	o := &a.options
	cache := denycache.Options{Entries: o.DenyCacheEntries}
	if a.store.client != nil {
		var err error
		a.peers, err = peers.New(peers.Options{
			Client: a.store.client, Prefix: o.StorePrefix, Secret: a.store.secret, Timeout: o.Timeout,
			Logger: duringOutages(a.seldom, func() bool { return a.outage() != nil }),
		})
		if err != nil {
			return err
		}
		cache.Returned = a.peers.Forget
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
	if a.peers != nil {
		a.peers.Follow(a.stack.Override(), a.stack.DenyCache())
	}
	return nil
}

// share begins what the decorators and what is beside them do in the background.
func (a *App) share() {
	a.stack.Start()
	if a.peers != nil {
		a.peers.Start()
	}
}

// unshare ends it. Shares of budgets go back, and what was granted during an
// outage is recorded in the store, while others can still be told.
func (a *App) unshare(ctx context.Context) error {
	if err := a.stack.Stop(ctx); err != nil {
		a.logger.Warn("the store does not know all that was granted and given back here", "error", err)
	}
	if a.peers == nil {
		return nil
	}
	return a.peers.Stop(ctx)
}
