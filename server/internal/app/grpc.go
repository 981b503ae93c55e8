package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/tracing"
)

// grpcPing is how often clients may ask whether the connection lives.
const grpcPing = 10 * time.Second

// grpcServer serves gRPC on one listener.
type grpcServer struct {
	server  *grpc.Server
	frames  *frames.Server // nil: server has the listener
	unwatch context.CancelFunc
}

// newGRPC returns the listener of Envoy's rate limit service, of health checks and of
// reflection; nil if it is off.
func (a *App) newGRPC(service *rls.Service) (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.GRPC == Off {
		return nil, nil
	}
	by, err := a.authenticator("grpc")
	if err != nil {
		return nil, err
	}
	secured, err := o.serverTLS("grpc tls", o.GRPCTLS, "h2")
	if err != nil {
		return nil, err
	}
	rejected := t.rejections("grpc")
	interceptors := t.interceptors(by)
	gate := admission.NewGate(admission.GateOptions{
		Budget: a.budget, Watches: o.Limits.GRPCMaxWatches, MessageBytes: int64(o.Limits.GRPCMaxMessageBytes), Rejected: rejected,
	})
	options := append(gate.ServerOptions(), rls.ServerOption(),
		grpc.ChainUnaryInterceptor(append(interceptors, gate.Unary)...),
		grpc.ChainStreamInterceptor(t.panics("grpc").Stream, gate.Stream),
		grpc.MaxConcurrentStreams(uint32(o.Limits.GRPCMaxStreams)),
		grpc.MaxHeaderListSize(uint32(o.Limits.GRPCMaxHeaderBytes)),
		grpc.MaxRecvMsgSize(o.Limits.GRPCMaxMessageBytes),
		grpc.ConnectionTimeout(readTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: o.Limits.GRPCIdleTimeout,
			MaxConnectionAge:  o.GRPCConnectionAge, MaxConnectionAgeGrace: o.GRPCConnectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcPing, PermitWithoutStream: true}),
	)
	if secured != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured)))
	}
	s := &grpcServer{server: grpc.NewServer(options...), unwatch: a.health.unwatch}
	service.Register(s.server)
	health := &healthService{a.health.rpc, a.health}
	s.server.RegisterService(admission.Early(&healthv1.Health_ServiceDesc), health)
	reflection.Register(s.server)
	if o.GRPCTransport == TransportFrames {
		if s.frames, err = a.newFrames(service, health, s.server, gate, by); err != nil {
			return nil, err
		}
	}
	var open atomic.Int64
	t.connections["grpc"] = func() int { return int(open.Load()) }
	return &listener{
		name: "grpc", address: o.GRPC, serve: s.serve, drain: s.drain,
		wrap: func(l net.Listener) net.Listener {
			l = &bounded{Listener: l, most: o.Limits.GRPCMaxConnections, open: &open, rejected: rejected}
			if s.frames == nil { // which charges its connections by itself
				l = gate.Listener(l)
			}
			return l
		},
	}, nil
}

func (s *grpcServer) serve(l net.Listener) error {
	serve := s.server.Serve
	if s.frames != nil {
		serve = s.frames.Serve
	}
	if err := serve(l); !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, frames.ErrStopped) {
		return err
	}
	return nil
}

// drain answers the calls in flight, or cuts them off when ctx ends.
func (s *grpcServer) drain(ctx context.Context) error {
	s.unwatch()
	var cut error
	if s.frames != nil {
		// grpc-go may have some of its calls, so it stops afterwards.
		cut = s.frames.Stop(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.server.GracefulStop()
	}()
	select {
	case <-done:
		return cut
	case <-ctx.Done():
		s.server.Stop()
		<-done
		return fmt.Errorf("calls were cut off: %w", ctx.Err())
	}
}

// frameReasons are the names of those of frames' reasons that the other transport has, too.
var frameReasons = map[frames.Reason]admission.Reason{
	frames.ReasonConnections: admission.Connections, frames.ReasonBuffered: admission.Memory,
	frames.ReasonRelayed: admission.Watches, frames.ReasonSlow: admission.Slow, frames.ReasonWrite: admission.Slow,
}

// limitedFrames counts the rejections of frames, which logs them itself, and the
// connections that it ends because they are idle or old.
func (t *telemetry) limitedFrames(why frames.Reason) {
	switch reason, named := frameReasons[why]; {
	case why == frames.ReasonIdle || why == frames.ReasonAge:
		t.metrics.Retired(why.String())
	case named:
		t.metrics.Rejected("grpc", string(reason))
	default:
		t.metrics.Rejected("grpc", why.String())
	}
}

// newFrames returns the server of the rate limit service on bare frames, and of health
// checks, which must not fail because others use the relay. Everything else is served by
// relay.
func (a *App) newFrames(service *rls.Service, health *healthService, relay *grpc.Server, gate *admission.Gate, by *callers.Authenticator) (*frames.Server, error) {
	o, t := &a.options, a.telemetry
	secured, err := o.serverTLS("grpc tls", o.GRPCTLS, "h2")
	if err != nil {
		return nil, err
	}
	limit := a.unary(rateLimitInfo, func(ctx context.Context, c *frames.Call) error {
		b, err := service.Answer(ctx, (*charged)(c), c.Message(), c.Buffer())
		if err == nil {
			c.Reply(b)
		}
		return err
	})
	options := frames.Options{
		MaxStreams: o.Limits.GRPCMaxStreams, MaxConnections: o.Limits.GRPCMaxConnections,
		MaxMessage: o.Limits.GRPCMaxMessageBytes, MaxHeaderList: o.Limits.GRPCMaxHeaderBytes, HandshakeTimeout: readTimeout,
		MessageTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: o.Limits.GRPCIdleTimeout, MaxAge: o.GRPCConnectionAge, AgeGrace: o.GRPCConnectionGrace, Logger: o.Logger,
		Hold:        func(evict func()) frames.Hold { return a.budget.Hold(evict) },
		ConnContext: gate.ConnContext,
		Limited:     t.limitedFrames,
		TLS:         secured, Relay: relay, Direct: a.engine.yields(), YieldKey: deadline.YielderKey{},
		Methods: map[string]frames.Handler{
			rateLimitInfo.FullMethod: limit.serve,
			checkInfo.FullMethod:     a.unary(checkInfo, health.answer).serve,
		},
	}
	if by != nil {
		options.Admit = func(c *frames.Call) {
			if c.Method() == rateLimitInfo.FullMethod {
				limit.admit(c, by)
			}
		}
	}
	return frames.New(options)
}

// unary answers the calls of one method that frames reads.
type unary struct {
	info    *grpc.UnaryServerInfo
	handle  func(context.Context, *frames.Call) error
	method  *metrics.Method
	tracing *tracing.Tracing // nil: no spans
	panics  *panics.Reporter
}

var (
	rateLimitInfo = &grpc.UnaryServerInfo{FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}
	checkInfo     = &grpc.UnaryServerInfo{FullMethod: healthv1.Health_Check_FullMethodName}
)

func (a *App) unary(info *grpc.UnaryServerInfo, handle func(context.Context, *frames.Call) error) *unary {
	t := a.telemetry
	return &unary{info, handle, t.metrics.Method(info.FullMethod), t.tracing, t.panics("grpc")}
}

// admit authenticates the caller before the message is read.
func (u *unary) admit(c *frames.Call, by *callers.Authenticator) {
	who, err := authenticate(by, headers(c, "authorization"), c.RemoteAddr(), c.TLS())
	if err == nil {
		c.SetValue(who)
		return
	}
	u.observed(c, func(context.Context, *frames.Call) error { return err })
}

func (u *unary) serve(c *frames.Call) { u.observed(c, u.handle) }

// observed calls the handler of a call as telemetry's interceptors would, and answers with
// its error.
func (u *unary) observed(c *frames.Call, handle func(context.Context, *frames.Call) error) {
	begun := u.method.Begin()
	err := u.traced(c, handle)
	u.method.End(begun, err)
	if err != nil {
		fail(c, err)
	}
}

func (u *unary) traced(c *frames.Call, handle func(context.Context, *frames.Call) error) error {
	ctx := u.context(c)
	if u.tracing == nil {
		return u.rescued(ctx, c, handle)
	}
	_, err := u.tracing.Unary(ctx, nil, u.info, func(ctx context.Context, _ any) (any, error) {
		return nil, u.rescued(ctx, c, handle)
	})
	return err
}

func (u *unary) rescued(ctx context.Context, c *frames.Call, handle func(context.Context, *frames.Call) error) (err error) {
	defer u.panics.Rescue(ctx, u.info.FullMethod, &err)
	return handle(ctx, c)
}

// context returns the context of a call, with the caller and the headers that
// interceptors read.
func (u *unary) context(c *frames.Call) context.Context {
	ctx := c.Context()
	if who, ok := c.Value().(*callers.Identity); ok {
		ctx = callers.NewContext(ctx, who)
	}
	if u.tracing == nil {
		return ctx
	}
	md := metadata.MD{}
	for _, name := range []string{"traceparent", "tracestate"} {
		if values := headers(c, name); values != nil {
			md[name] = values
		}
	}
	return metadata.NewIncomingContext(ctx, md)
}

// headers returns the values of a header.
func headers(c *frames.Call, name string) (values []string) {
	for header, value := range c.Headers() {
		if header == name {
			values = append(values, value)
		}
	}
	return values
}

// A charged call is charged for the memory of decoding its message.
type charged frames.Call

// Take charges the call. The error is [admission.ErrFull].
func (c *charged) Take(bytes int64) error {
	if !(*frames.Call)(c).Take(bytes) {
		return admission.ErrFull
	}
	return nil
}

// fail answers a call with an error, as grpc-go does.
func fail(c *frames.Call, err error) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	var details []byte
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		// It was a message, so it can be marshaled.
		details, _ = proto.Marshal(p)
	}
	c.FailWith(uint32(s.Code()), s.Message(), details)
}
