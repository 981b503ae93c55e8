// Package weirgrpc puts limits in front of gRPC services: server interceptors,
// and a [Checker] for go-grpc-middleware's ratelimit.
//
// Refused calls get ResourceExhausted with the details RetryInfo and QuotaFailure, and
// the trailer grpc-retry-pushback-ms, which clients with a retry policy obey. The
// metadata ratelimit-policy and ratelimit describe the limits and the units that remain.
// They are in the header, and for refusals in the trailer.
package weirgrpc

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// Options are the settings of interceptors. The zero value limits each client by the
// address of its connection, charges one unit for each call, and lets calls pass while
// the store is unreachable. The functions are called from many goroutines. Their method
// argument is the full name, "/package.Service/Method".
type Options struct {
	// Key returns the key whose budget a call is charged to. Nil: [KeyByIP] with
	// clientip.RemoteAddr. Calls for which it fails share one budget, and OnError
	// is called.
	Key KeyFunc
	// Cost returns the cost of a call, in units, clamped to 0 … [weir.MaxCost]. The
	// message is the request of a unary call, the received message if PerMessage is
	// set, or nil. Nil: 1.
	Cost func(ctx context.Context, method string, message any) int64
	// Skip, if set, returns true for calls that are not limited, such as health checks.
	Skip func(ctx context.Context, method string) bool
	// Charge, if set, returns the actual cost of a call after its end. The difference to
	// Cost is refunded, or charged even if it does not fit. Charge is called when the
	// handler has returned or panicked, but not for streams whose messages are charged.
	// With a Cost of 0, a call is admitted if one unit remains, so several calls can be
	// admitted at the same time.
	Charge func(ctx context.Context, r Response) int64
	// PerMessage charges each message that a stream receives, instead of its
	// opening. The stream's RecvMsg returns the refusal.
	PerMessage bool
	// NoMetadata hides the limits from clients: they only get the time to retry.
	NoMetadata bool
	// OnError, if set, is called for every call for which the key, the decision, the
	// correction or the renewal of its slot failed; for renewals while the handler
	// runs.
	OnError func(ctx context.Context, method string, err error)
	// FailClosed answers Unavailable if no decision was reached. Without it, the call
	// passes. Errors of the class [weir.ErrInvalid] are mistakes of the program and are
	// answered with Internal in both cases.
	FailClosed bool
	// Timeout is the longest time for which a call waits for its decision. Zero: 250 ms.
	Timeout time.Duration
	// Logger gets a line when decisions begin to fail and one when they no longer
	// do; OnError is for every single failure. Nil: nothing is logged.
	Logger *slog.Logger
}

// A Response describes the result of a call, for [Options.Charge].
type Response struct {
	Method string // the full one
	// Code is the code of the status: Unknown if the handler panicked.
	Code codes.Code
	// Messages is the number of messages that the handler has sent.
	Messages int64
	// Bytes is the size of the messages that are Protocol Buffers, before compression.
	Bytes int64

	charged bool // message by message
}

// count adds a message that was sent.
func (r *Response) count(message any) {
	r.Messages++
	if m, ok := message.(proto.Message); ok {
		r.Bytes += int64(proto.Size(m))
	}
}

// UnaryServerInterceptor limits unary calls. It panics if the limiter is nil.
//
// Under a concurrency limit, a call holds one slot until its handler returns or panics,
// whatever its cost, and even if the client disconnects. The slot is renewed three times
// in the limit's Period, so a handler may run longer than that. The slots of a host that
// crashed expire at the end of the Period. If a renewal fails the handler continues, and
// OnError is called.
func UnaryServerInterceptor(limiter *weir.Limiter, o Options) grpc.UnaryServerInterceptor {
	i := newInterceptor(limiter, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		visit, err := i.enter(ctx, info.FullMethod, req)
		if err != nil {
			return nil, err
		}
		code := codes.Unknown // of a handler that panics
		defer func() {
			r := Response{Method: info.FullMethod, Code: code}
			if i.Charge != nil && err == nil {
				r.count(reply)
			}
			i.leave(ctx, visit, r)
		}()
		reply, err = next(ctx, req)
		code = status.Code(err)
		return reply, err
	}
}

// StreamServerInterceptor limits the opening of streams, or the messages that
// they receive. It panics if the limiter is nil. Under a concurrency limit a
// stream holds one slot while it is open, as unary calls do.
func StreamServerInterceptor(limiter *weir.Limiter, o Options) grpc.StreamServerInterceptor {
	i := newInterceptor(limiter, o)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		sent := Response{Method: info.FullMethod, Code: codes.Unknown, charged: i.PerMessage}
		visit, err := i.open(stream.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		s := &metered{ServerStream: stream, interceptor: i, sent: sent}
		defer func() { i.leave(stream.Context(), visit, s.sent) }()
		err = next(srv, s)
		s.sent.Code = status.Code(err)
		return err
	}
}

// metered is a stream that counts the messages it sends and charges those it receives.
type metered struct {
	grpc.ServerStream
	interceptor *interceptor
	sent        Response
}

// SendMsg sends a message and counts it.
func (s *metered) SendMsg(message any) error {
	err := s.ServerStream.SendMsg(message)
	if err == nil && s.interceptor.Charge != nil {
		s.sent.count(message)
	}
	return err
}

// RecvMsg receives a message and charges it.
func (s *metered) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if err != nil || !s.interceptor.PerMessage {
		return err
	}
	return s.interceptor.receive(s.Context(), s.sent.Method, message)
}

// A Checker is a limiter with the method that go-grpc-middleware's ratelimit
// interceptors call; they turn any error into ResourceExhausted. It cannot know when a
// call ends, so it supports neither concurrency limits nor [Options.Charge].
type Checker struct{ interceptor *interceptor }

// NewChecker returns a Checker. It panics if the limiter is nil.
func NewChecker(limiter *weir.Limiter, o Options) *Checker {
	return &Checker{newInterceptor(limiter, o)}
}

// Limit returns an error if the call is refused: the same status as the interceptors. It
// finds the call's method in the context.
func (c *Checker) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	i := c.interceptor
	if i.Skip(ctx, method) {
		return nil
	}
	return i.verdict(ctx, method, i.gate.Take(ctx, i.limiter, i.key(ctx, method), i.Cost(ctx, method, nil)))
}

// interceptor is what the interceptors and the Checker share.
type interceptor struct {
	Options
	limiter  *weir.Limiter
	hasSlots bool // of the limiter
	gate     gate.Gate
}

func newInterceptor(limiter *weir.Limiter, o Options) *interceptor {
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
	return &interceptor{
		Options: o, limiter: limiter, hasSlots: gate.HasSlots(limiter),
		gate: gate.Gate{Timeout: o.Timeout, Logger: o.Logger},
	}
}

func (i *interceptor) key(ctx context.Context, method string) string {
	key, err := i.Key(ctx, method)
	if err != nil {
		i.OnError(ctx, method, err)
		return gate.Unknown
	}
	return key
}

// enter charges a call. The error is the status that refuses it. A call that gets a visit
// must leave; one that passes without a decision gets none.
func (i *interceptor) enter(ctx context.Context, method string, message any) (*gate.Visit, error) {
	return i.visit(ctx, method, gate.Request{Cost: i.Cost(ctx, method, message), ChargedLater: i.Charge != nil})
}

// open is enter for a stream. A stream whose messages are charged costs nothing to open,
// but it takes its slot.
func (i *interceptor) open(ctx context.Context, method string) (*gate.Visit, error) {
	switch {
	case !i.PerMessage:
		return i.enter(ctx, method, nil)
	case i.hasSlots:
		return i.visit(ctx, method, gate.Request{})
	}
	return nil, nil
}

func (i *interceptor) visit(ctx context.Context, method string, r gate.Request) (*gate.Visit, error) {
	if i.Skip(ctx, method) {
		return nil, nil
	}
	r.Limiter, r.Key = i.limiter, i.key(ctx, method)
	r.Failed = func(err error) { i.OnError(ctx, method, err) }
	v := i.gate.Enter(ctx, r)
	if err := i.verdict(ctx, method, v.Act); err != nil || v.Act.Err != nil {
		return nil, err
	}
	return v, nil
}

// receive charges a message of an open stream.
func (i *interceptor) receive(ctx context.Context, method string, message any) error {
	if i.Skip(ctx, method) {
		return nil
	}
	act := i.gate.Charge(ctx, i.limiter, i.key(ctx, method), i.Cost(ctx, method, message))
	if len(act.Charges) == 0 {
		return nil
	}
	return i.verdict(ctx, method, act)
}

// leave ends the visit of a call, and corrects its charge. Nil: the call has none.
func (i *interceptor) leave(ctx context.Context, v *gate.Visit, r Response) {
	if v == nil {
		return
	}
	leave := v.Leave
	if i.Charge != nil && !r.charged {
		leave = func(ctx context.Context) error { return v.LeaveAt(ctx, i.Charge(ctx, r)) }
	}
	if err := leave(ctx); err != nil {
		i.OnError(ctx, r.Method, err)
	}
}
