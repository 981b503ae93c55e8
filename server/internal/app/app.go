package app

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/peers"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
	"github.com/weirlimit/weir/stack"
)

// The bounds of one HTTP connection: calls are small and answered at once.
const (
	readHeaderTimeout = 2 * time.Second
	readTimeout       = 5 * time.Second
	writeTimeout      = 5 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	http2Streams      = 100       // of a connection
	http2Buffer       = 256 << 10 // bytes that a connection may send without being read
)

// App is a server that was put together. Its methods are safe for concurrent
// use; it can be started once.
type App struct {
	options Options
	logger  *slog.Logger
	seldom  *slog.Logger // for warnings that come again and again
	rules   atomic.Pointer[rules.Set]
	store   *store
	http    *http.Server
	rpc     *rpc
	callers *callers.File // nil where there is none
	resp    *resp.Server  // nil where it is off
	respTLS *tls.Config   // nil without TLS
	admin   *http.Server  // nil where it is off
	reload  *reloader     // nil for the demonstration rules
	loaded  loaded
	// findings is about the servers of the store; nil where there are none.
	findings *findings

	stack   *stack.Stack // the store with its decorators
	peers   *peers.Group // nil where the store is this process's own
	traffic *traffic.Recorder
	metrics *metrics.Metrics
	open    struct{ http, grpc, admin atomic.Int64 } // connections
	budget  *admission.Budget

	reached  atomic.Bool // the store has answered once
	draining atomic.Bool
	// dismissing is set once HTTP clients are told to leave their connections.
	dismissing atomic.Bool
	failed     chan error // why serving ended, if nobody stopped it
	serving    sync.WaitGroup

	mu       sync.Mutex // guards what follows; never held while waiting
	started  bool
	addrs    []Addr
	stopping bool
	stopped  chan struct{} // closed when Stop is through
	unwatch  context.CancelFunc
	// httpListener is nil before Start.
	httpListener net.Listener
	stopErr      error // read after stopped
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
		seldom:  withoutRepeats(o.Logger, time.Now),
		store:   s,
		budget:  admission.NewBudget(int64(o.Limits.RequestMemory) << 20),
		failed:  make(chan error, 1),
		stopped: make(chan struct{}),
	}
	if s.check != nil {
		a.findings = &findings{ask: s.check, logger: o.Logger}
	}
	a.rules.Store(set)
	a.loaded.path = o.Config
	a.loaded.note(seen[:])
	if o.Config != "" {
		a.reload = newReloader(o.source(), &a.rules, o.Logger)
		a.reload.seen, a.reload.loaded = seen, a.loaded.note
		a.reload.looked = o.Reloaded
	}
	if err := a.measure(set); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := a.assemble(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return a, nil
}

// checkPatience is how long /readyz waits for the store: less than the second after
// which Kubernetes gives a probe up.
const checkPatience = 500 * time.Millisecond

// checks is what /readyz reports. A store that has answered once does not make the
// server unready from then on: during an outage each rule's policy answers, and a
// balancer that took every instance out at once would help nobody.
func (a *App) checks(ctx context.Context) []httpapi.Check {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	store := a.storeCheck(ctx)
	checks := []httpapi.Check{{Name: "serving", Err: a.drainingError(), Brief: "draining"}, store}
	if err := a.keysError(); err != nil {
		checks = append(checks, httpapi.Check{Name: "keys", Err: err, Bearable: true})
	}
	if a.findings != nil && a.reached.Load() {
		if c, known := a.findings.check(ctx, store.Err); known {
			checks = append(checks, c)
		}
	}
	if a.reload != nil {
		// The last good rules serve as well as ever.
		checks = append(checks, httpapi.Check{Name: "rules", Err: a.reload.err(), Brief: "the last good rules are in force", Bearable: true})
	}
	return checks
}

// storeCheck says whether the store decides. Before it has answered once, calls should
// not be sent here; from then on its outages are for policies to answer.
func (a *App) storeCheck(ctx context.Context) httpapi.Check {
	if !a.reached.Load() {
		return httpapi.Check{Name: "store", Err: a.reach(ctx), Brief: "the store has not answered yet"}
	}
	return httpapi.Check{Name: "store", Err: a.storeTrouble(ctx), Brief: a.briefly(), Bearable: true}
}

// briefly says since when the store is unreachable, without its address.
func (a *App) briefly() string {
	brief := "unreachable"
	if c := a.stack.Coalesce(); c != nil {
		for _, out := range c.Outages() {
			brief = "unreachable since " + out.Since.UTC().Format(time.TimeOnly)
		}
	}
	return brief + "; limits are decided by their on_store_failure"
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
		return a.options.blame(err)
	}
	if !a.reached.Swap(true) {
		a.rpc.ready()
		a.logger.Info("the store answers", "store", describe(a.options.Store))
	}
	return nil
}
