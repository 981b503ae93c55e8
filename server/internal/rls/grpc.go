package rls

import (
	"context"
	"errors"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Register puts the service on a gRPC server, which needs [ServerOption]. Its
// interceptors run before the message is read, with a nil request.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	desc := rlsv3.RateLimitService_ServiceDesc
	desc.HandlerType = (*any)(nil)
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}}
	registrar.RegisterService(&desc, s)
}

var shouldRateLimitInfo = &grpc.UnaryServerInfo{FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}

// shouldRateLimit is the method that Envoy calls.
func shouldRateLimit(service any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	handle := func(ctx context.Context, _ any) (any, error) { return service.(*Service).shouldRateLimit(ctx, read) }
	if intercept == nil {
		return handle(ctx, nil)
	}
	return intercept(ctx, nil, shouldRateLimitInfo, handle)
}

func (s *Service) shouldRateLimit(ctx context.Context, read func(any) error) (any, error) {
	m := messages.Get().(*message)
	call := admission.CallOf(ctx)
	m.bounds, m.call = s.options.Bounds, call
	var response *rlsv3.RateLimitResponse
	err := read(m)
	if err == nil {
		call.Received(m.size)
		err = s.answer(ctx, m, func(a *Answer) (err error) {
			response, err = encode(a)
			return err
		})
	}
	// Not deferred: a store that panics may still use the memory.
	m.free()
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Answer decides an encoded request and appends the encoded answer to b. Decoding is
// charged to call. The error is a status.
func (s *Service) Answer(ctx context.Context, call Charger, raw, b []byte) ([]byte, error) {
	m := messages.Get().(*message)
	m.bounds, m.call = s.options.Bounds, call
	if err := m.unmarshal(raw); err != nil {
		m.free()
		return nil, status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	err := s.answer(ctx, m, func(a *Answer) (err error) {
		b, err = appendAnswer(b, a)
		return err
	})
	m.free()
	return b, err
}

// answer decides a message and has the answer encoded. The error is a status.
func (s *Service) answer(ctx context.Context, m *message, encode func(*Answer) error) error {
	if m.refused != nil {
		return statusOf(m.refused)
	}
	if err := ctx.Err(); err != nil { // nobody waits for the answer
		return status.FromContextError(err).Err()
	}
	var unfit error // metadata
	if err := s.decide(ctx, &m.request, func(a *Answer) { unfit = encode(a) }); err != nil {
		return statusOf(err)
	}
	if unfit != nil {
		return status.Error(codes.Internal, "the rules' metadata fits no message: "+unfit.Error())
	}
	return nil
}

// statusOf returns the status of an error. The words of a store's driver stay in the
// log; the class says whether the charge was applied.
func statusOf(err error) error {
	if forbidden(err) {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if errors.Is(err, admission.ErrFull) {
		return admission.StatusFull
	}
	if errors.Is(err, rules.ErrNotLoaded) {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !isInvalid(err) {
		return status.Error(codes.Unavailable, "the store reached no decision"+classOf(err))
	}
	s := status.New(codes.InvalidArgument, err.Error())
	if e := new(weir.InvalidError); errors.As(err, &e) {
		s = status.New(codes.InvalidArgument, e.Detail())
		detailed, detailErr := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Path(), Description: "is " + e.Value + ": want " + e.Want},
		}})
		if detailErr == nil {
			s = detailed
		}
	}
	return s.Err()
}

// forbidden reports whether an error says that the caller lacks a permission.
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
