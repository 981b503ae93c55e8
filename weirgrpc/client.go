package weirgrpc

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/deadline"
)

const (
	defaultMaxWait    = 30 * time.Second
	defaultMaxRetries = 3
	// spread is the part of a wait that is added at random, so that clients which
	// were given the same time do not come back at once.
	spread = 10
)

// ClientOptions are the settings of a [UnaryClientInterceptor]. The zero value is
// ready for use.
type ClientOptions struct {
	// MaxWait bounds the total wait of a call over all tries, as the deadline of its
	// context does. Zero: 30 s.
	MaxWait time.Duration
	// MaxRetries is the largest number of repeats of a call. Zero: 3. Negative: none.
	MaxRetries int
}

// UnaryClientInterceptor obeys the limits of servers: it repeats a call answered with
// ResourceExhausted after the wait in the detail RetryInfo, or else in the trailer
// grpc-retry-pushback-ms. It returns the answer if the answer names no wait, if the wait
// is too long, or if the server forbids retries. Without a wait, ResourceExhausted can
// also mean that a message was too large. The interceptor does not repeat calls with
// other answers, because they may have had an effect.
//
// A retry policy in the service config already obeys the trailer. The interceptor is for
// servers that send RetryInfo alone, and it bounds the wait.
func UnaryClientInterceptor(o ClientOptions) grpc.UnaryClientInterceptor {
	o.MaxWait, o.MaxRetries = cmp.Or(o.MaxWait, defaultMaxWait), cmp.Or(o.MaxRetries, defaultMaxRetries)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		left := o.MaxWait
		for try := 0; ; try++ {
			var trailer metadata.MD
			err := invoke(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))...)
			wait, again := advice(err, trailer)
			if deadline, ok := ctx.Deadline(); ok {
				left = min(left, time.Until(deadline))
			}
			if !again || try >= o.MaxRetries || wait > left {
				return err
			}
			wait = min(wait+rand.N(wait/spread+1), left)
			if deadline.Sleep(ctx, wait) != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			left -= wait
		}
	}
}

// advice returns the wait that a refusal asks for, and whether it permits a retry.
func advice(err error, trailer metadata.MD) (wait time.Duration, again bool) {
	refusal, ok := status.FromError(err)
	if !ok || refusal.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range refusal.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	if said := trailer.Get(pushback); len(said) == 1 {
		ms, err := strconv.ParseInt(said[0], 10, 32)
		return time.Duration(ms) * time.Millisecond, err == nil && ms >= 0
	}
	return 0, false
}
