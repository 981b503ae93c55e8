package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rls"
)

const (
	// grpcPing is how often clients may ask whether the connection lives.
	grpcPing = 10 * time.Second
	// off is the address that disables a protocol.
	off = "off"
	// healthName is the service that Envoy's health checks ask for, as
	// envoyproxy/ratelimit calls it.
	healthName = "ratelimit"
)

// rpc is the gRPC side of an App.
type rpc struct {
	server   *grpc.Server
	frames   *frames.Server // nil: server has the listener
	gate     *admission.Gate
	rejected func(admission.Reason)
	health   *health.Server
	unwatch  context.CancelFunc // ends the calls that watch the health
}

// newRPC returns the gRPC side, whose calls pass the interceptors before their messages
// are read.
func (a *App) newRPC(service *rls.Service, interceptors []grpc.UnaryServerInterceptor) (*rpc, error) {
	o := &a.options
	rejected := a.rejections("grpc").add
	gate := admission.NewGate(admission.GateOptions{
		Budget: a.budget, Watches: o.Limits.GRPCMaxWatches, MessageBytes: rls.MaxRequestBytes, Rejected: rejected,
	})
	options := append(gate.ServerOptions(), rls.ServerOption(),
		grpc.ChainUnaryInterceptor(append(interceptors, gate.Unary)...),
		grpc.ChainStreamInterceptor(a.panics("grpc").Stream, gate.Stream),
		grpc.MaxConcurrentStreams(uint32(o.Limits.GRPCMaxStreams)),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxRecvMsgSize(rls.MaxRequestBytes),
		grpc.ConnectionTimeout(readTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: o.Limits.GRPCIdleTimeout,
			MaxConnectionAge:  o.GRPCConnectionAge, MaxConnectionAgeGrace: o.GRPCConnectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcPing, PermitWithoutStream: true}),
	)
	config, err := o.serverTLS("grpc tls", o.GRPCTLS, "h2")
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	watching, unwatch := context.WithCancel(context.Background())
	r := &rpc{gate: gate, rejected: rejected, unwatch: unwatch, server: grpc.NewServer(options...), health: health.NewServer()}
	r.health.SetServingStatus(healthName, healthv1.HealthCheckResponse_NOT_SERVING)
	service.Register(r.server)
	r.server.RegisterService(admission.Early(&healthv1.Health_ServiceDesc), &asking{r.health, a.healthy, watching})
	reflection.Register(r.server)
	return r, nil
}

// asking is a health service that looks whether the store has come up.
type asking struct {
	*health.Server
	reach    func(context.Context) error
	watching context.Context // ends when watchers are to leave
}

// Watch tells a client how a service does, until either side leaves.
func (a *asking) Watch(req *healthv1.HealthCheckRequest, stream grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(a.watching, cancel)()
	return a.Server.Watch(req, &watcher{stream, ctx})
}

// watcher is a stream that the server can end too.
type watcher struct {
	grpc.ServerStreamingServer[healthv1.HealthCheckResponse]
	ctx context.Context
}

// Context ends with the stream or with the server.
func (w *watcher) Context() context.Context { return w.ctx }

// Check answers for a service by name.
func (a *asking) Check(ctx context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if req.GetService() == healthName {
		// What is wrong is told by the status that this leaves.
		_ = a.reach(ctx)
	}
	return a.Server.Check(ctx, req)
}

// ready says that the store has answered.
func (r *rpc) ready() { r.health.SetServingStatus(healthName, healthv1.HealthCheckResponse_SERVING) }

// stop answers what is in flight, or cuts it off when ctx ends.
func (r *rpc) stop(ctx context.Context) error {
	r.unwatch()
	cut := r.stopFrames(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.server.GracefulStop()
	}()
	select {
	case <-done:
		return cut
	case <-ctx.Done():
		r.server.Stop()
		<-done
		return fmt.Errorf("server: stop: calls were cut off: %w", ctx.Err())
	}
}

// serveRPC accepts gRPC calls in the background.
func (a *App) serveRPC(listener net.Listener) {
	a.serving.Go(func() {
		if err := a.rpc.serve(listener); err != nil {
			a.fail(fmt.Errorf("server: serve grpc: %w", err))
		}
	})
}

// fail ends serving for a reason; the first one counts.
func (a *App) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// listenRPC listens where the options say; nil if they say nowhere.
func (o *Options) listenRPC(ctx context.Context) (net.Listener, error) {
	if o.GRPC == off {
		return nil, nil
	}
	network, address := "tcp", o.GRPC
	if path, ok := strings.CutPrefix(o.GRPC, "unix:"); ok {
		network, address = "unix", path
		removeStale(ctx, path)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("server: start: %w", err)
	}
	return listener, nil
}

// removeStale removes a socket that a process left behind when it was killed. If
// it cannot, listening will fail and say so.
func removeStale(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		_ = os.Remove(path)
		return
	}
	_ = conn.Close()
}

// checkAddress checks where a protocol is to be served.
func checkAddress(field, address, standard string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &weir.InvalidError{Field: field, Value: strconv.Quote(address), Want: "host:port, such as " + standard}
	}
	return nil
}

func checkGRPC(address string) error {
	path, isPath := strings.CutPrefix(address, "unix:")
	switch {
	case address == off, isPath && path != "":
		return nil
	case checkAddress("grpc", address, DefaultGRPC) != nil:
		return &weir.InvalidError{Field: "grpc", Value: strconv.Quote(address), Want: "host:port, such as " + DefaultGRPC + ", unix:/path, or off"}
	}
	return nil
}

// withJSON adds what envoyproxy/ratelimit serves over HTTP.
func withJSON(api http.Handler, service *rls.Service, healthy func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/json", service.JSON())
	mux.Handle("GET /rlconfig", requireRead(service.Config()))
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, r *http.Request) {
		if healthy(r.Context()) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			// Most calls are; the search would end there.
			api.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// healthy says what keeps the server from answering for its rules.
func (a *App) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	if err := a.drainingError(); err != nil {
		return err
	}
	return a.reach(ctx)
}
