package app

import (
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/weirlimit/weir/server/internal/browsers"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/rls"
)

// public are the paths that ask for no token: those of whoever watches the
// process, and the description of the interface.
var public = []string{"/healthz", "/readyz", "/healthcheck", httpapi.DescriptionJSON, httpapi.DescriptionYAML}

// build makes what answers at each door.
func (a *App) build() error {
	o := &a.options
	var err error
	if a.callers, err = callers.OpenFile(o.Callers, o.Logger); err != nil {
		return err
	}
	ofHTTP, err := a.authenticator("http")
	if err != nil {
		return err
	}
	rejected, reporter := a.rejections("http"), a.panics("http")
	handler, err := httpapi.New(httpapi.Options{
		Rules:    a.rules.Load,
		Taker:    a.frontEnd("http"),
		Timeout:  o.Timeout,
		Headers:  o.Headers,
		ClientIP: o.ClientIP,
		Ready:    a.checks,
		Trusted:  knownTo(ofHTTP),
		Bounds:   o.Limits.Bounds,
		Budget:   a.budget,
		Rejected: rejected.add,
		Logger:   a.seldom,
	})
	if err != nil {
		return err
	}
	service, err := rls.New(rls.Options{
		Mode:     o.RLS,
		Rules:    a.rules.Load,
		Taker:    a.frontEnd("rls"),
		Timeout:  o.Timeout,
		Decided:  a.decided(),
		Bounds:   o.Limits.Bounds,
		Budget:   a.budget,
		Rejected: rejected.add,
		Logger:   a.seldom,
	})
	if err != nil {
		return err
	}
	ofGRPC, err := a.authenticator("grpc")
	if err != nil {
		return err
	}
	a.http = newHTTPServer(a.dismissed(a.measured(reporter.HTTP(a.fromPages(guarded(a.withMetrics(withJSON(handler, service, a.healthy)), ofHTTP))))), o.Logger)
	if a.http.TLSConfig, err = o.serverTLS("http tls", o.HTTPTLS, "h2", "http/1.1"); err != nil {
		return err
	}
	if a.rpc, err = a.newRPC(service, a.interceptors(service, ofGRPC)); err != nil {
		return err
	}
	if err = a.rpc.useFrames(service, o, a.interceptors(service, ofGRPC), ofGRPC != nil); err != nil {
		return err
	}
	if a.resp, err = a.newRESP(); err != nil {
		return err
	}
	a.watch()
	a.admin, err = a.newAdmin(handler)
	return err
}

// guarded asks for a token wherever the path is not public.
func guarded(next http.Handler, by *callers.Authenticator) http.Handler {
	asking := requireToken(next, by)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(public, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		asking.ServeHTTP(w, r)
	})
}

func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       callers.ConnContext,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: http2Streams, MaxReceiveBufferPerConnection: http2Buffer, MaxReceiveBufferPerStream: http2Buffer},
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// dismissed closes connections with their next answer once the server dismisses its
// clients.
func (a *App) dismissed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.dismissing.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// fromPages refuses what web pages of others make a browser on this host send. Where
// others reach the listener, or it proves its name by TLS, any name may be right.
func (a *App) fromPages(next http.Handler) http.Handler {
	next = browsers.Protect(next)
	host, _, _ := net.SplitHostPort(a.options.HTTP)
	if !loopback(host) || a.options.HTTPTLS != (TLS{}) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !browsers.Local(r.Host, a.options.Hosts) && !browsers.Short(r.Host) {
			w.Header().Set("Cache-Control", "no-store")
			browsers.Misdirected(r.Host).Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
