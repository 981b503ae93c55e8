package rls

import (
	"context"
	"errors"
	"fmt"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/callers"
)

// Register puts the service on a gRPC server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	rlsv3.RegisterRateLimitServiceServer(registrar, &grpcService{service: s})
}

// grpcService speaks gRPC for a service.
type grpcService struct {
	rlsv3.UnimplementedRateLimitServiceServer
	service *Service
}

// ShouldRateLimit is what Envoy calls.
func (g *grpcService) ShouldRateLimit(ctx context.Context, m *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	answer, err := g.service.Decide(ctx, decode(m))
	if err != nil {
		return nil, statusOf(err)
	}
	response, err := encode(answer)
	if err != nil {
		return nil, status.Error(codes.Internal, "the rules' metadata fits no message: "+err.Error())
	}
	return response, nil
}

// statusOf is an error as gRPC tells it. What a store's driver says stays in the
// log; the class says what became of the charge.
func statusOf(err error) error {
	if forbidden(err) {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if !isInvalid(err) {
		return status.Error(codes.Unavailable, "the store reached no decision"+classOf(err))
	}
	s := status.New(codes.InvalidArgument, err.Error())
	if e := new(weir.InvalidError); errors.As(err, &e) {
		s = status.New(codes.InvalidArgument, fmt.Sprintf("%s is %s: want %s", e.Field, e.Value, e.Want))
		detailed, detailErr := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Field, Description: "is " + e.Value + ": want " + e.Want},
		}})
		if detailErr == nil {
			s = detailed
		}
	}
	return s.Err()
}

// forbidden reports whether an error says that a caller may not ask for something.
func forbidden(err error) bool {
	var e *callers.ForbiddenError
	return errors.As(err, &e)
}

func classOf(err error) string {
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured, weir.ErrBackend} {
		if errors.Is(err, class) {
			return ": " + class.Error()
		}
	}
	return ""
}

// Recover answers a call whose handler panics with INTERNAL and logs why: one
// call must not end the process.
func (s *Service) Recover(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.reportPanic(ctx, info.FullMethod, cause)
			answer, err = nil, status.Error(codes.Internal, "the call failed; the log says why")
		}
	}()
	return handle(ctx, req)
}
