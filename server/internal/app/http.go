package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/browsers"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/plainhttp"
	"github.com/weirlimit/weir/server/internal/rls"
)

// The bounds of one HTTP connection: calls are small and answered at once. A client may connect
// and be held up before it sends: where room is needed, connections without a call are closed
// first, whatever time they have left.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 5 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	// A proxy may send the headers of its client twice, once as values of its own. nginx
	// reads 32 KiB of them.
	maxProxyHeaderBytes = 64 << 10
	http2Streams        = 100       // of a connection
	http2Buffer         = 256 << 10 // bytes that a connection may send without being read
)

const (
	// maxDismissal is the most that HTTP clients have to use their connections once more
	// before these are closed.
	maxDismissal  = time.Second
	dismissalTick = 10 * time.Millisecond
)

// public are the paths that need no token: health, and the description of the interface.
var public = []string{"/healthz", "/readyz", "/healthcheck", httpapi.DescriptionJSON, httpapi.DescriptionYAML}

// frontEnds returns the HTTP interface and Envoy's rate limit service.
func (a *App) frontEnds(by *callers.Authenticator) (http.Handler, *rls.Service) {
	o, t := &a.options, a.telemetry
	rejected := t.rejections("http")
	api := httpapi.New(httpapi.Options{
		Rules:     a.rules.Load,
		Taker:     t.frontEnd("http", a.engine),
		Timeout:   o.Timeout,
		Headers:   o.Headers,
		ClientIP:  o.ClientIP,
		Ready:     a.health.checks,
		Trusted:   isKnown(by),
		Bounds:    o.Limits.Bounds,
		Budget:    a.budget,
		Rejected:  rejected,
		Unmatched: t.unmatched,
		Logger:    t.seldom,

		RefuseOversized: o.Oversized == refuse,
	})
	service := rls.New(rls.Options{
		Gather:    a.engine.gathered(),
		Mode:      o.RLS,
		Rules:     a.rules.Load,
		Taker:     t.frontEnd("rls", a.engine),
		Timeout:   o.Timeout,
		Decided:   t.decided(),
		Bounds:    o.Limits.Bounds,
		Budget:    a.budget,
		Rejected:  rejected,
		Unmatched: t.unmatched,
		Logger:    t.seldom,

		RefuseOversized: o.Oversized == refuse,
	})
	return api, service
}

// newHTTP returns the listener of HTTP clients. Most requests are decisions; the handlers
// around the interface look at the path once before they search a mux.
func (a *App) newHTTP(api http.Handler, service *rls.Service, other *compared, by *callers.Authenticator) (*listener, error) {
	o, t := &a.options, a.telemetry
	var answer func(context.Context, []byte) ([]byte, error)
	if other != nil {
		answer = other.serveJSON
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/json", service.JSON(answer))
	mux.Handle("GET /rlconfig", requireRead(paced(a.rules.withSource(service.Config()))))
	mux.Handle("GET /metrics", requireRead(paced(t.metrics.Handler())))
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, r *http.Request) {
		if a.health.healthy(r.Context()) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			// Most calls are; the search in mux would end there.
			api.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	guarded := fromPages(o, o.HTTP, o.HTTPTLS, requireToken(routed, by))
	s := newHTTPServer(o.Logger, min(o.DrainDelay, maxDismissal))
	s.Handler = t.http(t.panics("http").HTTP(guarded))
	s.MaxHeaderBytes = maxProxyHeaderBytes
	if o.PlainHTTP != Off && o.HTTPTLS == (TLS{}) {
		s.plain = plainhttp.New(s.Server)
	}
	return s.listener(o, "http", o.HTTP, o.HTTPTLS, o.HTTPMaxConnections, t)
}

// maxScrapers bounds the connections of the listener for the metrics alone.
const maxScrapers = 64

// newScrape returns the listener for the metrics alone; nil if it is off.
func (a *App) newScrape() (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.Metrics.Address == Off {
		return nil, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+o.Metrics.Path, t.metrics.Handler())
	s := newHTTPServer(o.Logger, 0)
	s.Handler = t.panics("metrics").HTTP(mux)
	return s.listener(o, "metrics", o.Metrics.Address, TLS{}, maxScrapers, t)
}

// fromPages refuses requests that web pages of other sites make a browser on this host
// send. If other machines can reach the listener, or it proves its name by TLS, any name
// may be right.
func fromPages(o *Options, address string, encrypted TLS, next http.Handler) http.Handler {
	next = browsers.Protect(next)
	if !onLoopback(address) || encrypted != (TLS{}) {
		return next
	}
	var right atomic.Pointer[string] // the last one that was: nearly all requests have the same
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known := right.Load(); known == nil || *known != r.Host {
			if !browsers.Local(r.Host, o.Hosts) && !browsers.Short(r.Host) {
				w.Header().Set("Cache-Control", "no-store")
				browsers.Misdirected(r.Host).Write(w, r)
				return
			}
			host := strings.Clone(r.Host)
			right.Store(&host)
		}
		next.ServeHTTP(w, r)
	})
}

// An httpServer serves HTTP on one listener.
type httpServer struct {
	*http.Server
	plain      *plainhttp.Server // reads the usual requests; nil: none
	room       *admission.Room   // of connections; set by listener
	dismissal  time.Duration
	closed     atomic.Bool // the socket, by dismiss
	dismissing atomic.Bool
	socket     atomic.Pointer[net.Listener] // nil until served
}

// newHTTPServer returns a server without a handler. When it drains, clients have the time
// dismissal to leave their connections.
func newHTTPServer(logger *slog.Logger, dismissal time.Duration) *httpServer {
	return &httpServer{dismissal: dismissal, Server: &http.Server{
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       connContext,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: http2Streams, MaxReceiveBufferPerConnection: http2Buffer, MaxReceiveBufferPerStream: http2Buffer},
		ErrorLog:          slog.NewLogLogger(logs.Handler(logger.Handler()), slog.LevelWarn),
	}}
}

// listener returns the listener of the server, which has its handler.
func (s *httpServer) listener(o *Options, name, address string, t TLS, most int, telemetry *telemetry) (*listener, error) {
	var err error
	if s.TLSConfig, err = o.serverTLS(name+" tls", t, "h2", "http/1.1"); err != nil {
		return nil, err
	}
	refusal := tooMany
	if s.TLSConfig != nil {
		refusal = ""
	}
	s.Handler = s.dismissed(s.Handler)
	s.room = admission.NewRoom(most)
	telemetry.connections[name] = s.room.Open
	rejected := telemetry.rejections(name)
	return &listener{
		name: name, address: address, serve: s.serve, drain: s.drain,
		wrap: func(l net.Listener) net.Listener {
			return &bounded{Listener: l, room: s.room, refusal: refusal, rejected: rejected}
		},
	}, nil
}

func (s *httpServer) serve(l net.Listener) error {
	s.socket.Store(&l)
	serve := s.Serve
	if s.plain != nil {
		serve = s.plain.Serve
	}
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) && !s.closed.Load() {
		return err
	}
	return nil
}

// drain dismisses the clients and answers the calls in flight, or cuts them off when ctx
// ends.
func (s *httpServer) drain(ctx context.Context) error {
	s.dismiss(ctx)
	if s.plain != nil {
		s.closed.Store(true)
		_ = s.plain.Shutdown(ctx) // Shutdown below has the same error
	}
	err := s.Shutdown(ctx)
	if err == nil || errors.Is(err, net.ErrClosed) { // closed by dismiss
		return nil
	}
	return errors.Join(fmt.Errorf("calls were cut off: %w", err), s.Close())
}

// dismiss accepts no more connections and waits until the clients have left those that
// are open. Every answer asks its client to leave. Closing a connection on which a client
// sends at that moment loses a request, so only connections that stay idle this long are
// closed by the server.
func (s *httpServer) dismiss(ctx context.Context) {
	l := s.socket.Load()
	if l == nil || s.dismissal == 0 {
		return
	}
	// A client that is asked to leave connects anew. The system would reset a connection that
	// waits in the socket when that closes, so it closes first.
	s.closed.Store(true)
	_ = (*l).Close()
	s.dismissing.Store(true)
	ctx, cancel := context.WithTimeout(ctx, s.dismissal)
	defer cancel()
	for s.room.Open() > 0 && ctx.Err() == nil {
		_ = deadline.Sleep(ctx, dismissalTick)
	}
}

// dismissed notes which connections make calls, and closes them with their next answer
// once the server dismisses its clients.
func (s *httpServer) dismissed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calling(r)
		if s.dismissing.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
