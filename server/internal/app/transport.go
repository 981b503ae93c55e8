package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rls"
)

// What [Options.GRPCTransport] can be.
const (
	// TransportGRPCGo serves every call with grpc-go.
	TransportGRPCGo = "grpc-go"
	// TransportFrames serves Envoy's rate limit service with package frames, at a
	// fraction of the cost, and everything else with grpc-go.
	TransportFrames = "frames"
)

func checkTransport(name string) error {
	if name == "" || name == TransportGRPCGo || name == TransportFrames {
		return nil
	}
	return &weir.InvalidError{Field: "grpc transport", Value: strconv.Quote(name), Want: TransportGRPCGo + " or " + TransportFrames}
}

// useFrames has the rate limit service answered on bare frames, if the options say
// so. The gRPC server answers the rest. Who calls is of interest where callers are
// authenticated.
func (r *rpc) useFrames(service *rls.Service, o *Options, interceptors []grpc.UnaryServerInterceptor, authenticates bool) error {
	if o.GRPCTransport != TransportFrames {
		return nil
	}
	config, err := o.serverTLS("grpc tls", o.GRPCTLS, "h2")
	if err != nil {
		return err
	}
	u := unary{
		methods: map[string]frames.Handler{}, intercept: chain(interceptors), codec: rls.Codec(),
	}
	if authenticates {
		u.headers, u.peers = append(u.headers, "authorization"), true
	}
	if o.Telemetry.Tracing.On() {
		u.headers = append(u.headers, "traceparent", "tracestate")
	}
	service.Register(&u)
	reasons := map[frames.Reason]admission.Reason{
		frames.ReasonConnections: admission.Connections, frames.ReasonBuffered: admission.Memory,
		frames.ReasonRelayed: admission.Watches, frames.ReasonSlow: admission.Slow, frames.ReasonWrite: admission.Slow,
	}
	limited := func(why frames.Reason) {
		if reason, known := reasons[why]; known {
			r.rejected(reason)
		}
	}
	r.frames, err = frames.New(frames.Options{
		Methods: u.methods, Relay: r.server, TLS: config, MaxStreams: o.Limits.GRPCMaxStreams, MaxConnections: o.Limits.GRPCMaxConnections,
		MaxMessage: rls.MaxRequestBytes, MaxHeaderList: maxHeaderBytes, HandshakeTimeout: readTimeout,
		MaxBuffered: o.Limits.RequestMemory << 20, MessageTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: o.Limits.GRPCIdleTimeout, Limited: limited,
		MaxAge: o.GRPCConnectionAge, AgeGrace: o.GRPCConnectionGrace, Logger: o.Logger,
	})
	return err
}

// admitting returns a listener whose connections are charged for what they hold; bare
// frames do that by themselves.
func (r *rpc) admitting(l net.Listener) net.Listener {
	if r.frames != nil {
		return l
	}
	return r.gate.Listener(l)
}

// serve accepts calls until the listener fails; nil if [rpc.stop] made it.
func (r *rpc) serve(listener net.Listener) error {
	serve := r.server.Serve
	if r.frames != nil {
		serve = r.frames.Serve
	}
	if err := serve(listener); !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, frames.ErrStopped) {
		return err
	}
	return nil
}

// stopFrames answers what is in flight on bare frames. grpc-go's server, which may
// have some of it, must be stopped afterwards.
func (r *rpc) stopFrames(ctx context.Context) error {
	if r.frames == nil {
		return nil
	}
	if err := r.frames.Stop(ctx); err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	return nil
}

// unary makes handlers for bare frames of the unary methods of services that are
// written for grpc-go. Interceptors run before a message is decoded, with a nil
// request.
type unary struct {
	methods   map[string]frames.Handler
	intercept grpc.UnaryServerInterceptor
	codec     encoding.CodecV2
	headers   []string // that interceptors want to see
	peers     bool     // they want to see the client's address and certificate
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

// context is the context of a call as grpc-go makes it, with the headers that are
// wanted.
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
		// What was a message is one.
		details, _ = proto.Marshal(p)
	}
	c.FailWith(uint32(s.Code()), s.Message(), details)
}

// chain makes one interceptor of several, the first outermost.
func chain(interceptors []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		for i := len(interceptors) - 1; i >= 0; i-- {
			next, around := handle, interceptors[i]
			handle = func(ctx context.Context, req any) (any, error) { return around(ctx, req, info, next) }
		}
		return handle(ctx, req)
	}
}
