package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rls"
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
		Budget: a.budget, Watches: o.Limits.GRPCMaxWatches, MessageBytes: rls.MaxRequestBytes, Rejected: rejected,
	})
	options := append(gate.ServerOptions(), rls.ServerOption(),
		grpc.ChainUnaryInterceptor(append(interceptors, gate.Unary)...),
		grpc.ChainStreamInterceptor(t.panics("grpc").Stream, gate.Stream),
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
	if secured != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured)))
	}
	s := &grpcServer{server: grpc.NewServer(options...), unwatch: a.health.unwatch}
	service.Register(s.server)
	s.server.RegisterService(admission.Early(&healthv1.Health_ServiceDesc), &healthService{a.health.rpc, a.health})
	reflection.Register(s.server)
	if o.GRPCTransport == TransportFrames {
		frameOptions := o.frameOptions(rejected)
		frameOptions.TLS, frameOptions.Relay = secured, s.server
		frameOptions.Methods = o.frameMethods(service, interceptors, by)
		if s.frames, err = frames.New(frameOptions); err != nil {
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

// frameReasons are the reasons for which frames rejects connections and calls.
var frameReasons = map[frames.Reason]admission.Reason{
	frames.ReasonConnections: admission.Connections, frames.ReasonBuffered: admission.Memory,
	frames.ReasonRelayed: admission.Watches, frames.ReasonSlow: admission.Slow, frames.ReasonWrite: admission.Slow,
}

func (o *Options) frameOptions(rejected func(admission.Reason)) frames.Options {
	return frames.Options{
		MaxStreams: o.Limits.GRPCMaxStreams, MaxConnections: o.Limits.GRPCMaxConnections,
		MaxMessage: rls.MaxRequestBytes, MaxHeaderList: maxHeaderBytes, HandshakeTimeout: readTimeout,
		MaxBuffered: o.Limits.RequestMemory << 20, MessageTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: o.Limits.GRPCIdleTimeout, MaxAge: o.GRPCConnectionAge, AgeGrace: o.GRPCConnectionGrace, Logger: o.Logger,
		Limited: func(why frames.Reason) {
			if reason, known := frameReasons[why]; known {
				rejected(reason)
			}
		},
	}
}

// frameMethods returns the methods of the rate limit service for frames. Interceptors see
// the headers and the peer that they need.
func (o *Options) frameMethods(service *rls.Service, interceptors []grpc.UnaryServerInterceptor, by *callers.Authenticator) map[string]frames.Handler {
	u := unary{methods: map[string]frames.Handler{}, intercept: chain(interceptors), codec: rls.Codec(), peers: by != nil}
	if by != nil {
		u.headers = append(u.headers, "authorization")
	}
	if o.Telemetry.Tracing != nil {
		u.headers = append(u.headers, "traceparent", "tracestate")
	}
	service.Register(&u)
	return u.methods
}

// unary makes handlers for frames of the unary methods of a service that is written for
// grpc-go. Interceptors run before a message is decoded, with a nil request.
type unary struct {
	methods   map[string]frames.Handler
	intercept grpc.UnaryServerInterceptor
	codec     encoding.CodecV2
	headers   []string // that interceptors read
	peers     bool     // interceptors read the client's address and certificate
}

// RegisterService adds the unary methods of a service.
func (u *unary) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, method := range desc.Methods {
		info := &grpc.UnaryServerInfo{Server: service, FullMethod: "/" + desc.ServiceName + "/" + method.MethodName}
		u.methods[info.FullMethod] = func(c *frames.Call) {
			read := func(into any) error { return u.decode(c, into) }
			handle := func(ctx context.Context, _ any) (any, error) { return method.Handler(service, ctx, read, nil) }
			u.answer(c, info, handle)
		}
	}
}

func (u *unary) answer(c *frames.Call, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) {
	answer, err := u.intercept(u.context(c), nil, info, handle)
	if err != nil {
		fail(c, err)
		return
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(c.Buffer(), answer.(proto.Message))
	if err != nil {
		fail(c, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err))
		return
	}
	c.Reply(b)
}

// context returns the context of a call as grpc-go makes it, with the headers that
// interceptors read.
func (u *unary) context(c *frames.Call) context.Context {
	var md metadata.MD
	for _, name := range u.headers {
		for header, value := range c.Headers() {
			if header != name {
				continue
			}
			if md == nil {
				md = metadata.MD{}
			}
			md[name] = append(md[name], value)
		}
	}
	ctx := c.Context()
	if md != nil {
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	if !u.peers {
		return ctx
	}
	p := &peer.Peer{Addr: c.RemoteAddr()}
	if state := c.TLS(); state != nil {
		p.AuthInfo = credentials.TLSInfo{State: *state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return peer.NewContext(ctx, p)
}

func (u *unary) decode(c *frames.Call, into any) error {
	if err := u.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.Message())}, into); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
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

// chain returns several interceptors as one, the first outermost.
func chain(interceptors []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		for i := len(interceptors) - 1; i >= 0; i-- {
			next, around := handle, interceptors[i]
			handle = func(ctx context.Context, req any) (any, error) { return around(ctx, req, info, next) }
		}
		return handle(ctx, req)
	}
}
