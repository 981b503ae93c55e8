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
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// DefaultTimeout is how long a call may wait for its decision unless
// [Options.Timeout] says otherwise.
const DefaultTimeout = gate.DefaultTimeout

// Options are the settings of interceptors. The zero value limits each client
// address as the connection has it, charges one unit a call and lets calls pass
// while the store is away. Its functions are called from many goroutines; the
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
	// PerMessage charges each message that a stream receives, instead of its
	// opening. The stream's RecvMsg returns the refusal.
	PerMessage bool
	// NoMetadata tells clients nothing of the limits but when to come back.
	NoMetadata bool
	// OnError, if set, hears of every call for which no key or no decision was
	// reached.
	OnError func(ctx context.Context, method string, err error)
	// FailClosed answers Unavailable where no decision was reached. Otherwise the
	// call passes. Errors of the class [weir.ErrInvalid] are not the store's:
	// they are answered with Internal either way.
	FailClosed bool
	// Timeout is how long a call may wait for its decision. Zero:
	// [DefaultTimeout].
	Timeout time.Duration
}

// UnaryServerInterceptor limits unary calls. It panics if the limiter is nil.
// Concurrency limits are not for it.
func UnaryServerInterceptor(limiter *weir.Limiter, o Options) grpc.UnaryServerInterceptor {
	d := newDoor(limiter, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := d.admit(ctx, info.FullMethod, req); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// StreamServerInterceptor limits the opening of streams, or the messages that
// they receive. It panics if the limiter is nil. Concurrency limits are not for
// it.
func StreamServerInterceptor(limiter *weir.Limiter, o Options) grpc.StreamServerInterceptor {
	d := newDoor(limiter, o)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if d.PerMessage {
			return next(srv, &metered{stream, d, info.FullMethod})
		}
		if err := d.admit(stream.Context(), info.FullMethod, nil); err != nil {
			return err
		}
		return next(srv, stream)
	}
}

// metered is a stream whose messages are charged as they come in.
type metered struct {
	grpc.ServerStream
	door   *door
	method string
}

// RecvMsg receives a message and charges it.
func (s *metered) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return s.door.admit(s.Context(), s.method, message)
}

// A Checker is a limiter with the method that go-grpc-middleware's ratelimit
// interceptors ask for, which turn whatever it returns into ResourceExhausted.
// The interceptors of this package say more.
type Checker struct{ door *door }

// NewChecker returns a Checker. It panics if the limiter is nil.
func NewChecker(limiter *weir.Limiter, o Options) *Checker { return &Checker{newDoor(limiter, o)} }

// Limit returns an error if the call is refused: a status, as the interceptors
// return it. It finds the call's method in the context.
func (c *Checker) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	return c.door.admit(ctx, method, nil)
}

// door is what all of them ask.
type door struct {
	Options
	limiter *weir.Limiter
	gate    gate.Gate
}

func newDoor(limiter *weir.Limiter, o Options) *door {
	if limiter == nil {
		panic("weirgrpc: no limiter")
	}
	if o.Key == nil {
		o.Key = KeyByIP(clientip.RemoteAddr())
	}
	if o.Cost == nil {
		o.Cost = func(context.Context, string, any) int64 { return 1 }
	}
	if o.Skip == nil {
		o.Skip = func(context.Context, string) bool { return false }
	}
	if o.OnError == nil {
		o.OnError = func(context.Context, string, error) {}
	}
	return &door{Options: o, limiter: limiter, gate: gate.Gate{Prefix: o.Prefix, Timeout: o.Timeout}}
}

// admit charges a call. The error is the status that refuses it.
func (d *door) admit(ctx context.Context, method string, message any) error {
	if d.Skip(ctx, method) {
		return nil
	}
	key, err := d.Key(ctx, method)
	if err != nil {
		d.OnError(ctx, method, err)
		key = gate.Unknown
	}
	act := d.gate.Take(ctx, d.limiter, key, d.Cost(ctx, method, message))
	if act.Err != nil {
		d.OnError(ctx, method, act.Err)
		return d.failure(act.Err)
	}
	return d.answer(ctx, act)
}
