// Package weirgrpc puts limits in front of gRPC services: server interceptors,
// and a [Checker] for go-grpc-middleware's ratelimit.
//
// Calls refused get ResourceExhausted with the details RetryInfo and
// QuotaFailure, and the trailer grpc-retry-pushback-ms, which clients with a
// retry policy obey. The metadata ratelimit-policy and ratelimit say what the
// limits have left: in the header, and in the trailer of what is refused.
package weirgrpc

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gate"
)

// DefaultTimeout is how long a call may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = gate.DefaultTimeout

// Options are the settings of interceptors. The zero value limits each client
// address as the connection has it, charges one unit a call and lets calls pass
// while the store is unreachable. Its functions are called from many goroutines; the
// method is the full one, "/package.Service/Method".
type Options struct {
	// Key says whose budget a call is charged to. Nil: [KeyByIP] with
	// clientip.RemoteAddr. Calls for which it fails share one budget, and OnError
	// is told.
	Key KeyFunc
	// Prefix stands before every key. Limiters of one store need one each, unless
	// they are to share budgets.
	Prefix string
	// Cost is what a call costs, in units. The message is the request of a unary
	// call, the message received where PerMessage is set, or nil. Nil: 1. What is
	// below 0 counts as 0, what is above [weir.MaxCost] as that.
	Cost func(ctx context.Context, method string, message any) int64
	// Skip, if set, reports that a call is not limited, such as a health check.
	Skip func(ctx context.Context, method string) bool
	// Charge, if set, says after a call what it has cost: the difference to Cost
	// is given back or charged, even if it does not fit. It is called once the
	// handler has returned, or panicked. Where Cost was 0 the call was let in
	// because one unit was left, which any number of calls can be at the same
	// time. Streams whose messages are charged are not asked about.
	Charge func(ctx context.Context, r Response) int64
	// PerMessage charges each message that a stream receives, instead of its
	// opening. The stream's RecvMsg returns the refusal.
	PerMessage bool
	// NoMetadata tells clients nothing of the limits but when to come back.
	NoMetadata bool
	// OnError, if set, hears of every call for which no key, no decision, no
	// correction or no renewal of its place was reached; of renewals while the
	// handler runs.
	OnError func(ctx context.Context, method string, err error)
	// FailClosed answers Unavailable where no decision was reached. Otherwise the
	// call passes. Errors of the class [weir.ErrInvalid] are not the store's:
	// they are answered with Internal either way.
	FailClosed bool
	// Timeout is how long a call may wait for its decision. Zero:
	// [DefaultTimeout].
	Timeout time.Duration
	// Logger receives a line when decisions begin to fail and one when they are
	// reached again, and none for each call: that is for OnError. Nil: none.
	Logger *slog.Logger
}

// UnaryServerInterceptor limits unary calls. It panics if the limiter is nil.
//
// Under a concurrency limit a call, whatever it costs, holds one place until its
// handler returns or panics, also where the client has gone. The place is renewed
// three times in the limit's Period, so that handlers may take longer than that,
// while those of a host that died end with it. Without renewal the handler goes
// on all the same, and OnError is told.
func UnaryServerInterceptor(limiter *weir.Limiter, o Options) grpc.UnaryServerInterceptor {
	d := newDoor(limiter, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		visit, err := d.enter(ctx, info.FullMethod, req)
		if err != nil {
			return nil, err
		}
		code := codes.Unknown // of a handler that panics
		defer func() {
			r := Response{Method: info.FullMethod, Code: code}
			if d.Charge != nil && err == nil {
				r.count(reply)
			}
			d.leave(ctx, visit, r)
		}()
		reply, err = next(ctx, req)
		code = status.Code(err)
		return reply, err
	}
}

// StreamServerInterceptor limits the opening of streams, or the messages that
// they receive. It panics if the limiter is nil. Under a concurrency limit a
// stream holds one place while it is open, as unary calls do.
func StreamServerInterceptor(limiter *weir.Limiter, o Options) grpc.StreamServerInterceptor {
	d := newDoor(limiter, o)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		sent := Response{Method: info.FullMethod, Code: codes.Unknown, charged: d.PerMessage}
		visit, err := d.open(stream.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		s := &metered{ServerStream: stream, door: d, sent: sent}
		defer func() { d.leave(stream.Context(), visit, s.sent) }()
		err = next(srv, s)
		s.sent.Code = status.Code(err)
		return err
	}
}

// A Checker is a limiter with the method that go-grpc-middleware's ratelimit
// interceptors ask for, which turn whatever it returns into ResourceExhausted.
// The interceptors of this package say more, and they know when a call is done:
// concurrency limits are not for a Checker, nor is [Options.Charge].
type Checker struct{ door *door }

// NewChecker returns a Checker. It panics if the limiter is nil.
func NewChecker(limiter *weir.Limiter, o Options) *Checker { return &Checker{newDoor(limiter, o)} }

// Limit returns an error if the call is refused: a status, as the interceptors
// return it. It finds the call's method in the context.
func (c *Checker) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	d := c.door
	if d.Skip(ctx, method) {
		return nil
	}
	return d.verdict(ctx, method, d.gate.Take(ctx, d.limiter, d.key(ctx, method), d.Cost(ctx, method, nil)))
}
