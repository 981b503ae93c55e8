package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"
)

const (
	// maxDismissal is how long HTTP clients have, at most, to use their connections
	// once more before these are closed.
	maxDismissal  = time.Second
	dismissalTick = 10 * time.Millisecond
)

var (
	errStarted  = errors.New("server: start: already started or stopped")
	errDraining = errors.New("draining: the process is about to end")
)

// Start listens and serves in the background until Stop. It returns once calls
// are accepted. A store that does not answer yet is no error: the server is not
// ready until it does.
func (a *App) Start(ctx context.Context) error {
	a.mu.Lock()
	if a.started || a.stopping {
		a.mu.Unlock()
		return errStarted
	}
	a.started = true
	a.mu.Unlock()

	a.options.warnOfOpenFiles(ctx)
	a.options.warnOfOpenListeners(ctx)
	a.greetStore(ctx)
	listeners, err := a.listen(ctx)
	if err != nil {
		return err
	}
	if err := a.serve(listeners); err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	attrs := []any{"store", describe(a.options.Store)}
	for _, addr := range a.Addrs() {
		attrs = append(attrs, addr.Protocol, addr.Address)
	}
	a.logger.Info("serving", attrs...)
	if a.options.Serving != nil {
		a.options.Serving(a.Addrs())
	}
	return nil
}

// A door is a listener and who answers there.
type door struct {
	Addr
	listener net.Listener
	serve    func(net.Listener)
}

// listen opens every door, or none.
func (a *App) listen(ctx context.Context) ([]door, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", a.options.HTTP)
	if err != nil {
		return nil, fmt.Errorf("server: start: %w", err)
	}
	doors := []door{{Addr{"http", listener.Addr().String()}, a.boundHTTP(listener, a.options.HTTPTLS, bounded{most: a.options.HTTPMaxConnections, open: &a.open.http, rejected: a.rejections("http").add}), a.serveHTTP}}
	rpc, err := a.options.listenRPC(ctx)
	if err != nil {
		return nil, errors.Join(err, closeAll(doors))
	}
	if rpc != nil {
		address := rpc.Addr().String()
		if rpc.Addr().Network() == "unix" {
			address = "unix:" + address
		}
		doors = append(doors, door{Addr{"grpc", address}, a.rpc.admitting(countAttempts(&bounded{Listener: rpc, most: a.options.Limits.GRPCMaxConnections, open: &a.open.grpc, rejected: a.rpc.rejected})), a.serveRPC})
	}
	redis, err := a.listenRESP(ctx)
	if err != nil {
		return nil, errors.Join(err, closeAll(doors))
	}
	if redis != nil {
		doors = append(doors, door{Addr{"resp", redis.Addr().String()}, redis, a.serveRESP})
	}
	admin, err := a.listenAdmin(ctx)
	if err != nil {
		return nil, errors.Join(err, closeAll(doors))
	}
	if admin != nil {
		doors = append(doors, door{Addr{"admin", admin.Addr().String()}, a.boundHTTP(admin, a.options.Admin.TLS, bounded{most: a.options.Limits.AdminMaxConnections, open: &a.open.admin, rejected: a.rejections("admin").add}), a.serveAdmin})
	}
	return doors, nil
}

func closeAll(doors []door) error {
	var err error
	for _, d := range doors {
		err = errors.Join(err, d.listener.Close())
	}
	return err
}

// greetStore asks the store for a sign of life and logs where there is none.
func (a *App) greetStore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	if err := a.reach(ctx); err != nil {
		a.logger.Warn("the store does not answer; not ready until it does", "store", describe(a.options.Store), "error", err)
	} else if a.findings != nil {
		a.findings.check(ctx, nil)
	}
}

// serve accepts calls in the background, unless Stop came first.
func (a *App) serve(doors []door) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopping {
		return errStarted
	}
	for _, d := range doors {
		a.addrs = append(a.addrs, d.Addr)
		d.serve(d.listener)
	}
	a.share()
	a.traffic.Start()
	if a.reload != nil {
		var ctx context.Context
		ctx, a.unwatch = context.WithCancel(context.Background())
		a.serving.Go(func() { a.reload.run(ctx) })
	}
	return nil
}

func (a *App) serveHTTP(listener net.Listener) {
	a.httpListener = listener
	a.serving.Go(func() {
		serve := a.http.Serve
		if a.http.TLSConfig != nil {
			serve = func(l net.Listener) error { return a.http.ServeTLS(l, "", "") }
		}
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) && !a.dismissing.Load() {
			a.fail(fmt.Errorf("server: serve http: %w", err))
		}
	})
}

// Addrs returns the addresses in use; none before Start.
func (a *App) Addrs() []Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.addrs)
}

// Run starts the server and stops it when ctx ends. It returns nil if everything
// that was in flight then was answered.
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

// Stop makes the server not ready at once, answers what is in flight and gives
// everything back. When ctx ends first, what is left is cut off and the error
// says so. Further calls wait for the first one, or for their ctx, and return
// the same.
func (a *App) Stop(ctx context.Context) error {
	a.mu.Lock()
	first := !a.stopping
	a.stopping = true
	a.mu.Unlock()
	if first {
		a.stopErr = a.stop(ctx)
		close(a.stopped)
	}
	select {
	case <-a.stopped:
		return a.stopErr
	case <-ctx.Done():
		return fmt.Errorf("server: stop: %w", ctx.Err())
	}
}

// stop takes down in the reverse order of what New and Start put up.
func (a *App) stop(ctx context.Context) error {
	a.draining.Store(true)
	a.rpc.health.Shutdown()
	if len(a.Addrs()) > 0 {
		a.logger.Info("draining")
		a.linger(ctx)
	}
	cut := make(chan error, 1)
	go func() { cut <- a.rpc.stop(ctx) }()
	respStopped := a.stopRESP(ctx)
	a.dismissHTTP(ctx)
	err := a.http.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) {
		// The listener was closed already.
		err = nil
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("server: stop: calls were cut off: %w", err), a.http.Close())
	}
	err = errors.Join(err, <-cut)
	err = errors.Join(err, respStopped(), a.stopAdmin(ctx), a.unshare(ctx))
	if a.unwatch != nil {
		a.unwatch()
	}
	a.serving.Wait()
	err = errors.Join(err, a.traffic.Stop(ctx))
	if closeErr := a.store.close(); closeErr != nil {
		// All have been answered: a connection on which the other side hung up first
		// cannot be told goodbye, and that is all.
		a.logger.Debug("a connection to the store was not closed in order", "error", closeErr)
	}
	a.logger.Info("stopped")
	return err
}

// linger waits for balancers to notice that the server is not ready.
func (a *App) linger(ctx context.Context) {
	timer := time.NewTimer(a.options.DrainDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dismissHTTP accepts no more HTTP connections and waits until the clients have left
// those that there are, at most as long as the drain delay and maxDismissal. Every
// answer tells its client to leave. A connection that is closed while a client sends
// on it loses a request, so only those go by themselves that nobody used for so long.
func (a *App) dismissHTTP(ctx context.Context) {
	a.mu.Lock()
	listener := a.httpListener
	a.mu.Unlock()
	wait := min(a.options.DrainDelay, maxDismissal)
	if listener == nil || wait == 0 {
		return
	}
	a.dismissing.Store(true)
	_ = listener.Close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	look := time.NewTicker(dismissalTick)
	defer look.Stop()
	for a.open.http.Load() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *App) drainingError() error {
	if a.draining.Load() {
		return errDraining
	}
	return nil
}
