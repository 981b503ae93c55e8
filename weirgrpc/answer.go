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

// pushback is the trailer that tells a client with a retry policy when to retry; a
// negative value forbids it.
const pushback = "grpc-retry-pushback-ms"

// verdict sends the metadata of a decided act. The error is the status that refuses the
// call.
func (i *interceptor) verdict(ctx context.Context, method string, act *weir.Act) error {
	if act.Err != nil {
		i.OnError(ctx, method, act.Err)
		switch {
		case errors.Is(act.Err, weir.ErrInvalid):
			return status.Error(codes.Internal, "the limiter is not set up for this call")
		case i.FailClosed:
			return status.Error(codes.Unavailable, "the limiter reached no decision")
		}
		return nil
	}
	answer := ratelimitheader.AnswerOf(act)
	md := metadata.MD{}
	if !i.NoMetadata {
		md.Set("ratelimit-policy", answer.Policies())
		md.Set("ratelimit", answer.Available())
		if n := answer.Decision.Alternative; n > 0 {
			md.Set(ratelimitheader.KeyAlternative, strconv.Itoa(int(n)))
		}
	}
	if act.Allowed() {
		// It fails in the middle of a stream, whose header was sent before.
		_ = grpc.SetHeader(ctx, md)
		return nil
	}
	// Clients retry only calls that were answered with trailers alone.
	md.Set(pushback, pushbackOf(answer.Decision.RetryAfter))
	_ = grpc.SetTrailer(ctx, md)
	return i.refusal(act, answer.Decision.RetryAfter)
}

func pushbackOf(wait time.Duration) string {
	if wait == weir.Never {
		return "-1"
	}
	return strconv.FormatInt((wait + time.Millisecond - 1).Milliseconds(), 10)
}

func (i *interceptor) refusal(act *weir.Act, wait time.Duration) error {
	var details []protoadapt.MessageV1
	if wait != weir.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if !i.NoMetadata {
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
		if limit := act.LimitOf(i); act.Decisions[i].Outcome == weir.Refused {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject: ratelimitheader.PolicyName(limit), Description: limit.String(),
			})
		}
	}
	return failure
}
