package rls

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Answer decides an encoded request and appends the encoded answer to b. Decoding is
// charged to call. The error is a status, or that of call.
func (s *Service) Answer(ctx context.Context, call Charger, raw, b []byte) ([]byte, error) {
	p, err := s.begin(ctx, call, raw)
	if err != nil {
		return nil, err
	}
	return s.decideOne(ctx, p, b)
}

// Oversized returns the encoded answer to requests that are too large to be read; nil if
// they get an error.
func (s *Service) Oversized() []byte {
	if !s.options.RefuseOversized {
		return nil
	}
	// An answer without metadata fits every message.
	answer, _ := appendAnswer(nil, &Answer{Over: !s.options.Shadow})
	return answer
}

// statusOf returns the status of an error. The words of a store's driver stay in the
// log; the class says whether the charge was applied.
func statusOf(err error) error {
	if e := new(callers.ForbiddenError); errors.As(err, &e) {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if errors.Is(err, rules.ErrNotLoaded) {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !isInvalid(err) {
		return status.Error(codes.Unavailable, "the store reached no decision"+classOf(err))
	}
	s := status.New(codes.InvalidArgument, err.Error())
	if e := new(weir.InvalidError); errors.As(err, &e) {
		s = status.New(codes.InvalidArgument, problem.Detail(e))
		detailed, detailErr := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Path(), Description: "is " + e.Value + ": want " + e.Want},
		}})
		if detailErr == nil {
			s = detailed
		}
	}
	return s.Err()
}

func classOf(err error) string {
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured, weir.ErrBackend} {
		if errors.Is(err, class) {
			return ": " + class.Error()
		}
	}
	return ""
}
