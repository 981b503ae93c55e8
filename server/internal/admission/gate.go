package admission

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	// streamBytes is about what a call costs besides its message: a goroutine's
	// stack, a stream, its headers.
	streamBytes = 8 << 10
	// maxOwnWatches bounds the streams of one connection that stay open.
	maxOwnWatches = 16
	// streamWindow is how much of a message may arrive before its call is admitted;
	// a smaller window than HTTP/2's own cannot be had.
	streamWindow = 64 << 10
	connWindow   = 1 << 20
	// readBuffer is smaller than usual: each idle connection has one.
	readBuffer = 16 << 10
)

// A Reason is why a connection or a call was rejected before it was decoded.
type Reason string

// The reasons.
const (
	// Connections: too many are open.
	Connections Reason = "connections"
	// Memory: the requests that are being received hold too much.
	Memory Reason = "memory"
	// Watches: too many streams stay open.
	Watches Reason = "watches"
	// Slow: a message took too long to arrive.
	Slow Reason = "slow"
	// Flood: too many calls ended before their messages were read, or too many frames
	// belonged to no call.
	Flood Reason = "flood"
)

// DefaultTimeout is the default of [GateOptions].Timeout.
const DefaultTimeout = 5 * time.Second

// GateOptions are the settings of a [Gate]. Budget, Watches and MessageBytes are
// required.
type GateOptions struct {
	Budget *Budget
	// Watches is how many streams may stay open, of all connections.
	Watches int
	// MessageBytes is the size of the largest message.
	MessageBytes int64
	// Timeout is how long a call's message may take to arrive, and an answer to be
	// taken. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Rejected is called for each connection and call that was rejected; it must not
	// block. Nil: nothing is called.
	Rejected func(Reason)
}

// A Gate charges the calls of a gRPC server to a budget, from the moment that their
// bytes are read from the network. Its interceptors have to come after those that
// authenticate the caller. It is safe for concurrent use and starts nothing.
type Gate struct {
	options GateOptions
	watches atomic.Int64
}

// NewGate returns a gate.
func NewGate(o GateOptions) *Gate {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Rejected == nil {
		o.Rejected = func(Reason) {}
	}
	return &Gate{options: o}
}

func (g *Gate) rejected(r Reason) { g.options.Rejected(r) }

// Listener returns a listener whose connections are charged for the bytes they hold.
func (g *Gate) Listener(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	gate *Gate
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, gate: l.gate}
	c.hold = l.gate.options.Budget.Hold(c.evict)
	return c, nil
}

// ServerOptions returns the options that a server behind the gate needs. Windows are
// fixed: those that grow with the bandwidth would let a call send megabytes before
// it is admitted.
func (g *Gate) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(g.tap),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer),
	}
}

type connKey struct{}

// ConnContext returns a context for the calls of one connection that another server
// reads and charges. Here they are charged for the memory of decoding alone, and streams
// that stay open are bounded as usual.
func (g *Gate) ConnContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{gate: g, hold: g.options.Budget.Hold(func() {})})
}

// callOn returns a new call on the connection of a context; nil if there is none.
func callOn(ctx context.Context) *Call {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	return &Call{Context: ctx, conn: c}
}

// tap sees a call's headers, on the goroutine that reads the connection. It refuses
// nothing: grpc-go keeps the timer of a call that is refused here until its deadline,
// which the client chooses.
func (g *Gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return ctx, nil
	}
	from, ok := p.Addr.(*address)
	if !ok {
		return ctx, nil
	}
	call := &Call{Context: ctx, conn: from.conn, since: time.Now(), header: sizeOf(info.Header)}
	from.conn.expect(call)
	return call, nil
}

// sizeOf is about what grpc-go keeps for headers.
func sizeOf(header metadata.MD) (bytes int64) {
	const each, value = 64, 64 // an entry of the map; a string of its values, and what was needed to read it
	for name, values := range header {
		bytes += int64(each + len(name))
		for _, v := range values {
			bytes += int64(value + len(v))
		}
	}
	return bytes
}

// StatusFull is [ErrFull] as gRPC clients see it.
var StatusFull = status.Error(codes.ResourceExhausted, "requests that are being received use too much memory: retry later")

// Unary admits a unary call, whose message must not have been read yet: see [Early].
func (g *Gate) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	call := CallOf(ctx)
	if call == nil {
		if call = callOn(ctx); call != nil {
			ctx = call
		}
	}
	call.begin()
	defer call.end()
	if call.Take(streamBytes) != nil {
		return nil, StatusFull
	}
	return handle(ctx, req)
}

// Stream admits a call that stays open. It is charged for what its client can send
// without being read, and for a message if further ones may come.
func (g *Gate) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	call := CallOf(stream.Context())
	if call == nil {
		call = callOn(stream.Context())
	}
	if call == nil {
		return g.bounded(service, stream, handle)
	}
	call.begin()
	defer call.end()
	cost := int64(streamWindow)
	if info.IsClientStream {
		cost += g.options.MessageBytes
	}
	if call.Take(cost) != nil {
		return StatusFull
	}
	if !call.conn.watch() {
		g.rejected(Watches)
		return status.Errorf(codes.ResourceExhausted, "too many streams stay open: a connection may have %d, all of them %d", maxOwnWatches, g.options.Watches)
	}
	defer call.conn.unwatch()
	return handle(service, &received{stream, call})
}

// bounded bounds only how many streams stay open.
func (g *Gate) bounded(service any, stream grpc.ServerStream, handle grpc.StreamHandler) error {
	defer g.watches.Add(-1)
	if g.watches.Add(1) > int64(g.options.Watches) {
		g.rejected(Watches)
		return status.Errorf(codes.ResourceExhausted, "too many streams stay open: %d may", g.options.Watches)
	}
	return handle(service, stream)
}

// received is a stream that notes when its first message has been read.
type received struct {
	grpc.ServerStream
	call *Call
}

// RecvMsg reads a message.
func (r *received) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	r.call.Received(0)
	return err
}

// Early returns the service with unary methods whose interceptors run before the
// message is read; their request is nil. Generated handlers read it first.
func Early(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	early := *desc
	early.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		info := &grpc.UnaryServerInfo{FullMethod: "/" + desc.ServiceName + "/" + method.MethodName}
		early.Methods[i] = grpc.MethodDesc{
			MethodName: method.MethodName,
			Handler: func(service any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				handle := func(ctx context.Context, _ any) (any, error) {
					return method.Handler(service, ctx, func(m any) error {
						err := read(m)
						if err == nil {
							CallOf(ctx).Received(0)
						}
						return err
					}, nil)
				}
				if intercept == nil {
					return handle(ctx, nil)
				}
				return intercept(ctx, nil, info, handle)
			},
		}
	}
	return &early
}
