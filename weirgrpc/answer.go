package weirgrpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/ratelimitheader"
)

// pushback is the trailer that tells a client with a retry policy when to try
// again, and not to if it is negative.
const pushback = "grpc-retry-pushback-ms"

// answer tells a decided act, and returns its refusal.
func (d *door) answer(ctx context.Context, act *weir.Act) error {
	said := ratelimitheader.AnswerOf(act)
	told := metadata.MD{}
	if !d.NoMetadata {
		told.Set("ratelimit-policy", said.Policies())
		told.Set("ratelimit", said.Available())
	}
	// In the middle of a stream headers are already gone: they have told it once.
	if act.Allowed() {
		_ = grpc.SetHeader(ctx, told)
		return nil
	}
	// Clients repeat only calls that were answered by trailers alone.
	told.Set(pushback, pushbackOf(said.Decision.RetryAfter))
	_ = grpc.SetTrailer(ctx, told)
	return d.refusal(act, said.Decision.RetryAfter)
}

func pushbackOf(wait time.Duration) string {
	if wait == weir.Never {
		return "-1"
	}
	return strconv.FormatInt((wait + time.Millisecond - 1).Milliseconds(), 10)
}

func (d *door) refusal(act *weir.Act, wait time.Duration) error {
	var details []protoadapt.MessageV1
	if wait != weir.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if !d.NoMetadata {
		details = append(details, violations(act))
	}
	refused := status.New(codes.ResourceExhausted, "quota exceeded")
	if detailed, err := refused.WithDetails(details...); err == nil {
		refused = detailed
	}
	return refused.Err()
}

// violations names the limits that refused.
func violations(act *weir.Act) *errdetails.QuotaFailure {
	failure := &errdetails.QuotaFailure{}
	for i := range act.Charges {
		if limit := act.Charges[i].Limit; act.Decisions[i].Outcome == weir.Refused {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject: ratelimitheader.PolicyName(limit), Description: limit.String(),
			})
		}
	}
	return failure
}

// failure is the status of a call for which no decision was reached, or nil to
// let it pass.
func (d *door) failure(err error) error {
	switch {
	case errors.Is(err, weir.ErrInvalid):
		return status.Error(codes.Internal, "the limiter is not set up for this call")
	case d.FailClosed:
		return status.Error(codes.Unavailable, "the limiter reached no decision")
	}
	return nil
}
