package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/httpapi"
	"github.com/weirlimit/weir/server/resp"
	"github.com/weirlimit/weir/server/rls"
	"github.com/weirlimit/weir/server/rules"
)

// The bounds of one HTTP connection: calls are small and answered at once.
const (
	readHeaderTimeout = 2 * time.Second
	readTimeout       = 5 * time.Second
	writeTimeout      = 5 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
)

// App is a server that was put together. Its methods are safe for concurrent
// use; it can be started once.
type App struct {
	options Options
	logger  *slog.Logger
	rules   atomic.Pointer[rules.Set]
	store   *store
	http    *http.Server
	rpc     *rpc
	resp    *resp.Server // nil where it is off
	reload  *reloader    // nil for the demonstration rules

	reached  atomic.Bool // the store has answered once
	draining atomic.Bool
	failed   chan error // why serving ended, if nobody stopped it
	serving  sync.WaitGroup

	mu       sync.Mutex // guards what follows; never held while waiting
	started  bool
	addrs    []Addr
	stopping bool
	stopped  chan struct{} // closed when Stop is through
	unwatch  context.CancelFunc
	stopErr  error // read after stopped
}

// New puts a server together. It starts nothing, connects to nothing and listens
// to nothing. The error names the option that cannot be, or lists every mistake
// in the rules.
func New(o Options) (*App, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	set, seen, err := o.loadRules()
	if err != nil {
		return nil, err
	}
	s, err := o.openStore()
	if err != nil {
		return nil, err
	}
	a := &App{
		options: o,
		logger:  o.Logger,
		store:   s,
		failed:  make(chan error, 1),
		stopped: make(chan struct{}),
	}
	a.rules.Store(set)
	if o.Config != "" {
		a.reload = newReloader(o.source(), &a.rules, o.Logger)
		a.reload.seen = seen
		a.reload.looked = o.Reloaded
	}
	handler, err := httpapi.New(httpapi.Options{
		Rules:   a.rules.Load,
		Taker:   s,
		Timeout: o.Timeout,
		Headers: o.Headers,
		Ready:   a.checks,
		Logger:  o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	service, err := rls.New(rls.Options{
		Mode:    o.RLS,
		Rules:   a.rules.Load,
		Taker:   s,
		Timeout: o.Timeout,
		Logger:  o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	a.http = newHTTPServer(withJSON(handler, service, a.healthy), o.Logger)
	if a.http.TLSConfig, err = o.serverTLS("http tls", o.HTTPTLS, "h2", "http/1.1"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if a.rpc, err = newRPC(service, &o, a.healthy); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if a.resp, err = o.newRESP(s); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return a, nil
}

func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// checks is what /readyz reports. A store that has answered once counts as
// reachable from then on: what to do while it is away is for the calls to say,
// and a balancer that took every instance out at once would help nobody.
func (a *App) checks(ctx context.Context) []httpapi.Check {
	checks := []httpapi.Check{
		{Name: "serving", Err: a.drainingError()},
		{Name: "store", Err: a.reach(ctx)},
	}
	if a.reload != nil {
		// The last good rules serve as well as ever.
		checks = append(checks, httpapi.Check{Name: "rules", Err: a.reload.err(), Bearable: true})
	}
	return checks
}

// Reload makes the server look at its rules files now. It returns at once; what
// came of it is logged, told by /readyz and to [Options.Reloaded]. The files are
// watched anyway.
func (a *App) Reload() {
	if a.reload == nil {
		a.options.Reloaded(nil)
		return
	}
	a.reload.ask()
}

// reach asks the store for a sign of life until it has given one.
func (a *App) reach(ctx context.Context) error {
	if a.reached.Load() {
		return nil
	}
	if err := a.store.ping(ctx); err != nil {
		return err
	}
	if !a.reached.Swap(true) {
		a.rpc.ready()
		a.logger.Info("the store answers", "store", describe(a.options.Store))
	}
	return nil
}
