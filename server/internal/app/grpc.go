package app

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/yield"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rls"
)

// newGRPC returns the listener of Envoy's rate limit services, of health checks and of
// reflection; nil if it is off. Health checks need no token. Another service answers instead of service if there is one.
func (a *App) newGRPC(service *rls.Service, other *compared) (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.GRPC == Off {
		return nil, nil
	}
	by, err := a.authenticator("grpc", nil, nil)
	if err != nil {
		return nil, err
	}
	secured, err := o.serverTLS("grpc tls", o.GRPCTLS, "h2")
	if err != nil {
		return nil, err
	}
	limit := gatherer{a.method(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName), service}
	serve, direct := limit.serve, a.engine.yields()
	if other != nil {
		serve, direct = limit.unary(other.serve), false // it waits for the other service
	}
	// The listener bounds the connections.
	options := frames.Options{
		MaxStreams: o.Limits.GRPCMaxStreams, MaxOpen: o.Limits.GRPCMaxWatches,
		MaxMessage: o.Limits.GRPCMaxMessageBytes, MaxHeaderList: o.Limits.GRPCMaxHeaderBytes, HandshakeTimeout: readTimeout,
		MessageTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: o.Limits.GRPCIdleTimeout, MaxAge: o.GRPCConnectionAge, AgeGrace: o.GRPCConnectionGrace, Logger: o.Logger,
		Hold:    func(evict func()) frames.Hold { return a.budget.Hold(evict) },
		Limited: t.limitedFrames,
		TLS:     secured, Direct: direct, YieldKey: yield.Key{},
		Methods: map[string]frames.Handler{limit.name: serve},
		Streams: map[string]frames.StreamHandler{},
	}
	if reply := service.Oversized(); reply != nil {
		options.Oversized = map[string][]byte{limit.name: reply}
	}
	if o.Telemetry.Tracing == nil { // spans are of single calls
		options.Gather = limit.gather
	}
	guarded := a.serveServices(&options)
	guarded[limit.name] = limit.method
	if by != nil {
		options.Admit = func(c *frames.Call) {
			if m := guarded[c.Method()]; m != nil {
				m.admit(c, by)
			}
		}
	}
	server, err := frames.New(options)
	if err != nil {
		return nil, err
	}
	room := admission.NewRoom(o.Limits.GRPCMaxConnections)
	t.connections["grpc"] = room.Open
	return &listener{
		name: "grpc", address: o.GRPC,
		serve: func(l net.Listener) error {
			if err := server.Serve(l); !errors.Is(err, frames.ErrStopped) {
				return err
			}
			return nil
		},
		drain: func(ctx context.Context) error {
			a.health.unwatch()
			if a.quotas != nil {
				a.quotas.Stop()
			}
			return server.Stop(ctx)
		},
		wrap: func(l net.Listener) net.Listener {
			return &bounded{Listener: l, room: room, rejected: t.rejections("grpc")}
		},
	}, nil
}

// limitedFrames counts the rejections of frames, which logs them itself, and the
// connections that it ends because they are idle or old.
func (t *telemetry) limitedFrames(why frames.Reason) {
	if why == frames.ReasonIdle || why == frames.ReasonAge {
		t.metrics.Retired(why.String())
		return
	}
	t.metrics.Rejected("grpc", why.String())
}

// A method guards and observes the calls of a gRPC method: it counts them, makes their spans
// and answers for those that panic.
type method struct {
	name     string
	counters *metrics.Method
	tracing  *Tracing // nil: no spans
	panics   *panics.Reporter
}

func (a *App) method(name string) *method {
	t := a.telemetry
	return &method{name, t.metrics.Method(name), a.options.Telemetry.Tracing, t.panics("grpc")}
}

// unary returns the handler of a method whose calls handle answers. Its error is a status or
// a [*frames.Failure].
func (m *method) unary(handle func(context.Context, *frames.Call) error) frames.Handler {
	return func(c *frames.Call) { m.observe(c, handle) }
}

// admit authenticates the caller before the message is read.
func (m *method) admit(c *frames.Call, by *callers.Authenticator) {
	var shown []string
	for name, value := range c.Headers() {
		if name == "authorization" {
			shown = append(shown, value)
		}
	}
	who, err := authenticate(by, shown, c.RemoteAddr(), c.TLS())
	if err == nil {
		c.SetValue(who)
		return
	}
	m.observe(c, func(context.Context, *frames.Call) error { return err })
}

// observe has a call handled, and fails it if the handler does.
func (m *method) observe(c *frames.Call, handle func(context.Context, *frames.Call) error) {
	ctx, begun := identified(c), m.counters.Begin()
	var err error
	if m.tracing == nil { // the closure costs
		err = m.rescued(ctx, c, handle)
	} else {
		err = m.tracing.Call(ctx, m.name, c.Header, func(ctx context.Context) error { return m.rescued(ctx, c, handle) })
	}
	m.end(c, begun, err)
}

// identified returns the context of a call, with the caller that admit has found.
func identified(c *frames.Call) context.Context {
	if who, ok := c.Value().(*callers.Identity); ok {
		return callers.NewContext(c.Context(), who)
	}
	return c.Context()
}

// end counts a call that was answered, and fails it if err is not nil.
func (m *method) end(c *frames.Call, begun time.Time, err error) {
	m.counters.End(begun, err)
	if err != nil {
		fail(c, err)
	}
}

// rescued calls a handler, also one that panics. The error is a status.
func (m *method) rescued(ctx context.Context, c *frames.Call, handle func(context.Context, *frames.Call) error) (err error) {
	defer m.panics.Rescue(ctx, m.name, &err)
	err = handle(ctx, c)
	if err == nil {
		return nil
	}
	if failed := new(frames.Failure); errors.As(err, &failed) {
		return status.Error(codes.Code(failed.Code), failed.Text)
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Internal, "the call has no message")
	}
	if _, ok := status.FromError(err); !ok {
		return status.FromContextError(err).Err()
	}
	return err
}

// fail answers a call with a status.
func fail(c *frames.Call, err error) {
	s := status.Convert(err)
	var details []byte
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		// It was a message, so it can be marshaled.
		details, _ = proto.Marshal(p)
	}
	c.FailWith(uint32(s.Code()), s.Message(), details)
}
