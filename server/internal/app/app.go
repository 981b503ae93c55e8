// Package app runs the server: it loads the rules, opens the store, listens, and stops in
// order. It knows nothing of signals, so that a program can embed it and a test can run
// several.
package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/models/journal"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/rlqs"
	"github.com/weirlimit/weir/server/internal/store"
)

var errStarted = errors.New("server: start: already started or stopped")

// An App is a server. Its methods are safe for concurrent use; it can be started once.
type App struct {
	options   Options
	rules     *ruleFiles
	store     *store.Store
	telemetry *telemetry
	engine    *engine
	health    *health
	callers   *callers.File                            // nil without one
	quotas    *rlqs.Service                            // nil: it is off
	files     refresher                                // of rules, callers and their secrets
	dollars   func(context.Context) []dashboard.Budget // nil without language models
	ledger    *ledger.Ledger                           // nil without one
	journal   *journal.Journal                         // nil without one
	budget    *admission.Budget

	fronts  []*listener // of clients; they drain together
	admin   []*listener // of administrators and scrapers, who may watch the others drain
	closers closers
	failed  chan error // why serving ended, if nobody stopped it
	serving sync.WaitGroup

	mu       sync.Mutex // guards the fields below; never held while waiting
	started  bool
	stopping bool
	addrs    []Addr
	stopped  chan struct{} // closed at the end of Stop
	stopErr  error         // read after stopped
}

// New puts a server together. It starts nothing, connects to nothing and listens to
// nothing. The error names the option that is wrong, or lists every mistake in the rules.
func New(o Options) (*App, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.checkUnused(); err != nil {
		return nil, err
	}
	a := &App{options: o, failed: make(chan error, 1), stopped: make(chan struct{})}
	a.budget = admission.NewBudget(int64(o.Limits.RequestMemory) << 20)
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.closers.close(context.Background()))
	}
	return a, nil
}

// build opens the parts, each with the closer that ends it.
func (a *App) build() error {
	o := &a.options
	var err error
	if a.rules, err = loadRules(o); err != nil {
		return err
	}
	if a.store, err = store.Open(o.StoreOptions()); err != nil {
		return err
	}
	a.closers.add("store", a.closeStore)
	if a.telemetry, err = newTelemetry(o, a.rules); err != nil {
		return err
	}
	a.closers.add("traffic", a.telemetry.traffic.Stop)
	a.files.add(a.rules.refresh)
	if a.engine, err = newEngine(o, a.store, a.rules.Load, a.telemetry); err != nil {
		return err
	}
	a.closers.add("engine", a.engine.stop)
	a.health = newHealth(o, a.engine, a.rules)
	if a.callers, err = callers.OpenFile(o.Callers, o.Logger); err != nil {
		return err
	}
	if a.callers != nil {
		a.files.add(a.callers.Refresh)
	}
	a.closers.add("files", a.stopFiles)
	return a.listeners()
}

// listeners puts the listeners together.
func (a *App) listeners() error {
	by, err := a.authenticator("http", nil, nil)
	if err != nil {
		return err
	}
	api, service := a.frontEnds(by)
	a.quotas = a.newQuotas()
	if a.options.Models.on() {
		var proxy, mock *listener
		proxy, mock, err = a.newModels()
		if a.fronts = []*listener{proxy}; mock != nil {
			a.fronts = append(a.fronts, mock)
		}
	} else {
		var other *compared
		if other, err = a.newCompared(service); err != nil {
			return err
		}
		a.fronts, err = made(
			func() (*listener, error) { return a.newHTTP(api, service, other, by) },
			func() (*listener, error) { return a.newGRPC(service, other) },
			a.newRESP,
		)
	}
	if err != nil {
		return err
	}
	if a.admin, err = made(a.newScrape, func() (*listener, error) { return a.newAdmin(api) }); err != nil {
		return err
	}
	a.telemetry.watch(a)
	a.closers.add("admin", func(ctx context.Context) error { return drainAll(ctx, a.admin) })
	a.closers.add("listeners", func(ctx context.Context) error { return drainAll(ctx, a.fronts) })
	return nil
}

// closeStore closes the store. Every call has been answered: a connection that the store
// closed first is no failure.
func (a *App) closeStore(context.Context) error {
	if err := a.store.Close(); err != nil {
		a.options.Logger.Debug("a connection to the store was not closed in order", "error", err)
	}
	return nil
}

// Start listens and serves in the background until Stop. It returns once calls are
// accepted. A store that does not answer yet is no error: the server is not ready until
// it does.
func (a *App) Start(ctx context.Context) error {
	a.mu.Lock()
	if a.started || a.stopping {
		a.mu.Unlock()
		return errStarted
	}
	a.started = true
	a.mu.Unlock()

	o := &a.options
	o.warnOfOpenFiles(ctx)
	o.warnOfOpenListeners(ctx)
	a.health.greet(ctx)
	sockets, err := openAll(ctx, slices.Concat(a.fronts, a.admin))
	if err != nil {
		return err
	}
	if err := a.serve(sockets); err != nil {
		return errors.Join(err, closeAll(sockets))
	}
	attrs := []any{"store", a.store.Describe()}
	for _, addr := range a.Addrs() {
		attrs = append(attrs, addr.Protocol, addr.Address)
	}
	o.Logger.Info("serving", attrs...)
	if o.Serving != nil {
		o.Serving(a.Addrs())
	}
	return nil
}

// serve accepts calls in the background, unless Stop came first.
func (a *App) serve(sockets []*socket) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopping {
		return errStarted
	}
	for _, s := range sockets {
		a.addrs = append(a.addrs, s.addr())
		a.serving.Go(func() {
			if err := s.serve(s.Listener); err != nil {
				a.fail(fmt.Errorf("server: serve %s: %w", s.name, err))
			}
		})
	}
	a.engine.start()
	a.telemetry.traffic.Start()
	a.files.start()
	if a.journal != nil {
		a.journal.Start()
	}
	if a.ledger != nil {
		a.ledger.Start()
	}
	return nil
}

// fail ends serving for a reason; the first one counts.
func (a *App) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// Addrs returns the addresses in use; none before Start.
func (a *App) Addrs() []Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.addrs)
}

// Reload makes the server read its rules files now. It returns at once; the log,
// /readyz and [Options].Reloaded tell the result. The files are watched anyway.
func (a *App) Reload() { a.rules.ask() }

// Run starts the server and stops it when ctx ends. It returns nil if every call in
// flight was answered.
func (a *App) Run(ctx context.Context) error {
	err := a.Start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-a.failed:
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.DrainTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopCtx))
}

// Stop makes the server not ready at once, answers the calls in flight and closes
// everything. When ctx ends first, it cuts the rest off and the error says so; it returns
// within a second of that, whatever hangs. Further calls wait for the first one, or for
// their ctx, and return the same.
func (a *App) Stop(ctx context.Context) error {
	a.mu.Lock()
	first := !a.stopping
	a.stopping = true
	a.mu.Unlock()
	if first {
		go func() {
			defer close(a.stopped)
			a.stopErr = a.stop(ctx)
		}()
	}
	select {
	case <-a.stopped:
		return a.stopErr
	case <-ctx.Done():
	}
	// What was cut off needs a moment to end in order.
	select {
	case <-a.stopped:
		return a.stopErr
	case <-time.After(lastMoment):
		return fmt.Errorf("server: stop: %w", ctx.Err())
	}
}

// lastMoment is how long Stop waits after its context has ended.
const lastMoment = time.Second

func (a *App) stop(ctx context.Context) error {
	a.health.drain()
	if len(a.Addrs()) > 0 {
		a.options.Logger.Info("draining")
		// Balancers take this long to notice that the server is not ready.
		_ = deadline.Sleep(ctx, a.options.DrainDelay)
	}
	err := a.closers.close(ctx)
	a.serving.Wait()
	a.options.Logger.Info("stopped")
	return err
}
