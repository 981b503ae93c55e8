package weirgrpc

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// What a [UnaryClientInterceptor] does unless it is told otherwise.
const (
	// DefaultMaxWait bounds what a call waits, all its tries together.
	DefaultMaxWait = 30 * time.Second
	// DefaultMaxRetries is how often a call is repeated.
	DefaultMaxRetries = 3
)

// spread is the part of a wait that chance adds, so that those who were told the
// same moment do not come back at once.
const spread = 10

// ClientOptions are the settings of a [UnaryClientInterceptor]. The zero value is
// a good one.
type ClientOptions struct {
	// MaxWait bounds what a call waits, all its tries together; so does the
	// deadline of its context. Zero: [DefaultMaxWait].
	MaxWait time.Duration
	// MaxRetries is how often a call is repeated. Zero: [DefaultMaxRetries];
	// below zero: never.
	MaxRetries int
}

// UnaryClientInterceptor keeps to the limits of servers: a call answered with
// ResourceExhausted is made again after the wait that the answer names, in the
// detail RetryInfo or else in the trailer grpc-retry-pushback-ms. Where it names
// none, where that is too long or where the server does not want to see the call
// again, the answer is the caller's: messages that are too large are answered
// with ResourceExhausted too. Calls with other answers may have been done, and
// are not repeated.
//
// A retry policy in the service config obeys the trailer by itself; the
// interceptor is for servers that send RetryInfo alone, and has a bound for the
// wait.
func UnaryClientInterceptor(o ClientOptions) grpc.UnaryClientInterceptor {
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = DefaultMaxRetries
	}
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
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			left -= wait
		}
	}
}

// advice is the wait that a refusal asks for, if it asks for another try.
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

// sleep waits. The error is the status of a context that ended meanwhile.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
