package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// clock is the service, of messages that come with Protocol Buffers. For a service
// with messages of its own, protoc writes what follows.
type clock interface {
	Now(context.Context, *emptypb.Empty) (*timestamppb.Timestamp, error)
	Watch(*emptypb.Empty, grpc.ServerStreamingServer[timestamppb.Timestamp]) error
}

const (
	methodNow   = "/weir.examples.Clock/Now"
	methodWatch = "/weir.examples.Clock/Watch"
)

var clockService = grpc.ServiceDesc{
	ServiceName: "weir.examples.Clock",
	HandlerType: (*clock)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Now", Handler: now}},
	Streams:     []grpc.StreamDesc{{StreamName: "Watch", Handler: watch, ServerStreams: true}},
}

func now(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	request := new(emptypb.Empty)
	if err := decode(request); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, request any) (any, error) {
		return srv.(clock).Now(ctx, request.(*emptypb.Empty))
	}
	if intercept == nil {
		return handle(ctx, request)
	}
	return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: methodNow}, handle)
}

func watch(srv any, stream grpc.ServerStream) error {
	request := new(emptypb.Empty)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	return srv.(clock).Watch(request, &grpc.GenericServerStream[emptypb.Empty, timestamppb.Timestamp]{ServerStream: stream})
}
