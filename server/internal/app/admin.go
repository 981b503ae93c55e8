package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/resp"
)

const (
	// DefaultAdmin is where administrators expect to find a server.
	DefaultAdmin = "127.0.0.1:6070"
	// AdminOff is the address of a server that has no such listener.
	AdminOff = "off"
)

// AdminOptions are about the listener for administrators. The zero value is valid:
// there is none.
type AdminOptions struct {
	// Address is host:port, or [AdminOff]; one that others can reach needs a
	// token or client certificates. Empty: [AdminOff].
	Address string
	// TokenFile holds what callers have to say, one a line; each is right. It is
	// read again when it changes. Empty: nothing.
	TokenFile string
	// TLS is how the listener proves who it is, and whom it lets in.
	TLS TLS
}

// validate names what keeps administrators from being served; callers says that there is
// a file of them.
func (o *AdminOptions) validate(callers bool) error {
	if o.Address == AdminOff {
		return nil
	}
	if err := checkAddress("admin", o.Address, DefaultAdmin+", or off"); err != nil {
		return err
	}
	if !o.loopback() && o.TokenFile == "" && o.TLS.ClientCA == "" && !callers {
		return &weir.InvalidError{
			Field: "admin", Value: strconv.Quote(o.Address),
			Want: "a loopback address, or a token file or client certificates: others can reach this one",
		}
	}
	return nil
}

func (o *AdminOptions) loopback() bool {
	host, _, _ := net.SplitHostPort(o.Address)
	return loopback(host)
}

// newAdmin returns the server of administrators, or nil where there is none. The
// handler of everybody's listener answers for its health.
func (a *App) newAdmin(health http.Handler) (*http.Server, error) {
	o := &a.options.Admin
	if o.Address == AdminOff {
		return nil, nil
	}
	by, err := a.authenticator("admin")
	if err != nil {
		return nil, err
	}
	secured, err := a.options.serverTLS("admin tls", o.TLS, "h2", "http/1.1")
	if err != nil {
		return nil, err
	}
	options := admin.Options{
		Rules:       a.rules.Load,
		Loaded:      func() admin.Loaded { return a.loaded.tell(a.reload) },
		Taker:       a.stack,
		Overrides:   a.stack.Override(),
		ThrottleKey: resp.Key,
		Mounts:      map[string]http.Handler{"GET /healthz": health, "GET /readyz": httpapi.Readiness(httpapi.Options{Ready: a.checks, Timeout: a.options.Timeout}), "GET /metrics": a.metrics.Handler()},
		Callers:     by,
		Loopback:    o.loopback(),
		Hosts:       a.options.Hosts,
		Timeout:     a.options.Timeout,
		Logger:      a.logger,
	}
	if a.peers != nil {
		options.Announcer = a.peers
	}
	options.Free = map[string]http.Handler{}
	if err := a.mountDashboard(&options, secured != nil); err != nil {
		return nil, err
	}
	handler, err := admin.New(options)
	if err != nil {
		return nil, err
	}
	server := newHTTPServer(a.panics("admin").HTTP(handler), a.logger)
	server.TLSConfig = secured
	// A profile that is being made ends when the server stops.
	base, cut := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return base }
	server.RegisterOnShutdown(cut)
	return server, nil
}

// listenAdmin begins to listen for administrators; the listener is nil where there
// are none.
func (a *App) listenAdmin(ctx context.Context) (net.Listener, error) {
	if a.admin == nil {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", a.options.Admin.Address)
	if err != nil {
		return nil, fmt.Errorf("server: start: admin: %w", err)
	}
	return listener, nil
}

// serveAdmin answers administrators in the background.
func (a *App) serveAdmin(listener net.Listener) {
	a.serving.Go(func() {
		err := error(nil)
		if a.admin.TLSConfig != nil {
			err = a.admin.ServeTLS(listener, "", "")
		} else {
			err = a.admin.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.fail(fmt.Errorf("server: serve admin: %w", err))
		}
	})
}

// stopAdmin is for when everything else has stopped, which administrators may want
// to watch.
func (a *App) stopAdmin(ctx context.Context) error {
	if a.admin == nil {
		return nil
	}
	if err := a.admin.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("server: stop: admin: %w", err), a.admin.Close())
	}
	return nil
}

// loaded is since when which set of rules is in force.
type loaded struct {
	path  string
	last  atomic.Pointer[revision]
	times atomic.Int64
}

type revision struct {
	digest string
	at     time.Time
}

// note says that rules came into force whose files had that fingerprint.
func (l *loaded) note(fingerprint []byte) {
	r := &revision{at: time.Now()}
	if l.path != "" {
		r.digest = hex.EncodeToString(fingerprint[:8])
	}
	l.last.Store(r)
	l.times.Add(1)
}

// tell says it to administrators.
func (l *loaded) tell(r *reloader) admin.Loaded {
	last := l.last.Load()
	told := admin.Loaded{Path: l.path, Revision: last.digest, At: last.at}
	if r != nil {
		told.Err = r.err()
	}
	return told
}
