package app

import (
	"context"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/server/internal/frames"
)

// names are the services that reflection lists.
type names map[string]grpc.ServiceInfo

// GetServiceInfo returns the services by name. Their methods come from their descriptions.
func (n names) GetServiceInfo() map[string]grpc.ServiceInfo { return n }

// serveServices serves Envoy's quota service, if it is on, and grpc-go's services of health checks
// and of reflection. It returns the methods
// that are not for everybody: probes have no token, and reflection costs more than a decision.
func (a *App) serveServices(o *frames.Options) (guarded map[string]*method) {
	guarded = map[string]*method{}
	listed := names{rlsv3.RateLimitService_ServiceDesc.ServiceName: {}}
	a.serveQuotas(o, listed, guarded)
	about := reflection.ServerOptions{Services: listed}
	for desc, service := range map[*grpc.ServiceDesc]any{
		&healthv1.Health_ServiceDesc:                    &healthService{a.health.rpc, a.health},
		&reflectionv1.ServerReflection_ServiceDesc:      reflection.NewServerV1(about),
		&reflectionv1alpha.ServerReflection_ServiceDesc: reflection.NewServer(about),
	} {
		listed[desc.ServiceName] = grpc.ServiceInfo{}
		for _, each := range desc.Methods {
			m := a.method("/" + desc.ServiceName + "/" + each.MethodName)
			if desc != &healthv1.Health_ServiceDesc {
				guarded[m.name] = m
			}
			o.Methods[m.name] = m.unary(func(ctx context.Context, c *frames.Call) error { return answer(ctx, c, service, each.Handler) })
		}
		for _, each := range desc.Streams {
			m := a.method("/" + desc.ServiceName + "/" + each.StreamName)
			if desc != &healthv1.Health_ServiceDesc {
				guarded[m.name] = m
			}
			o.Streams[m.name] = func(s *frames.Stream) {
				m.observe(s.Call, func(ctx context.Context, _ *frames.Call) error { return each.Handler(service, &serverStream{s, ctx}) })
			}
		}
	}
	return guarded
}

// answer answers a unary call by a method of a service.
func answer(ctx context.Context, c *frames.Call, service any, handle grpc.MethodHandler) error {
	c.Yield()
	reply, err := handle(service, ctx, func(m any) error { return decode(c, c.Message(), m) }, nil)
	if err != nil {
		return err
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(c.Buffer(), reply.(proto.Message))
	if err == nil {
		c.Reply(b)
	}
	return err
}

// decode decodes a message, which its call is charged for.
func decode(c *frames.Call, b []byte, into any) error {
	if err := c.Take(int64(len(b))); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, into.(proto.Message)); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// A serverStream is a stream of frames as services of grpc-go use it. Those that are served have
// no headers of their own.
type serverStream struct {
	stream *frames.Stream
	ctx    context.Context
}

// SetHeader does nothing.
func (*serverStream) SetHeader(metadata.MD) error { return nil }

// SendHeader does nothing.
func (*serverStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer does nothing.
func (*serverStream) SetTrailer(metadata.MD) {}

// Context is the context of the call.
func (s *serverStream) Context() context.Context { return s.ctx }

// SendMsg sends a message.
func (s *serverStream) SendMsg(m any) error {
	b, err := proto.Marshal(m.(proto.Message))
	if err != nil {
		return err
	}
	return s.stream.Send(b)
}

// RecvMsg receives a message.
func (s *serverStream) RecvMsg(m any) error {
	b, err := s.stream.Recv()
	if err != nil {
		return err
	}
	return decode(s.stream.Call, b, m)
}
