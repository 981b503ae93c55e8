// Package frames serves gRPC on bare HTTP/2 frames.
//
// It is made for one small unary method that is called very often over connections that
// stay open. It serves streams of messages, too. Messages may be compressed with gzip.
//
// One goroutine reads a connection. Each call that waits for something runs on its own
// goroutine, and answers that are ready at the same time are sent in one write. HTTP/2 is
// spoken with prior knowledge, or over TLS where a client selects it by ALPN.
//
// The memory and work of a connection are bounded, for any input of its client; see
// [Options] for the bounds.
package frames

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// ErrStopped is returned by [Server.Serve] after [Server.Stop].
var ErrStopped = errors.New("frames: the server was stopped")

// A Handler answers one unary call, with [Call.Reply] or [Call.Fail]. It runs on a
// goroutine of its own, unless Options.Direct is set. It must not use the call after it has
// returned.
type Handler func(*Call)

// Options configure [New]. Zero values stand for the defaults.
type Options struct {
	// Methods are the handlers by full method, such as
	// "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit".
	Methods map[string]Handler
	// Streams are the handlers of calls with any number of messages, by full method.
	Streams map[string]StreamHandler
	// Direct has the handlers of Methods called by the goroutine that reads the connection, which saves
	// waking another one for answers that memory alone decides. Handlers must call
	// [Call.Yield] before they wait for anything.
	Direct bool
	// Gather, if not nil, answers the calls that their handlers leave to it, see
	// [Call.Later]: as many as have come together and have deadlines in the same
	// millisecond. It answers each with Reply or Fail, and calls Yield of the first one
	// before it waits. It needs Direct.
	Gather func([]*Call)
	// YieldKey, if not nil, is the key of a value of each call's context that has the
	// method Yield, which is [Call.Yield] until the handler returns.
	YieldKey any
	// Admit, if not nil, is called when the header of a call for one of Methods or Streams
	// has come and before its message is read. A call
	// that it fails with [Call.Fail] is answered without a look at its message. Admit
	// runs on the goroutine that reads the connection, which waits for it; others do not.
	Admit func(*Call)
	// TLS, if not nil, encrypts the connections. It must offer "h2".
	TLS *tls.Config

	// MaxStreams is how many calls one connection may have in flight. Default: 1000.
	MaxStreams int
	// MaxOpen is how many calls of all connections the handlers of Streams may serve at a
	// time. One connection may have 16 of them, and further ones while as many are left
	// for all others. Default: 1000.
	MaxOpen int
	// MaxMessage is the size of the largest message, in bytes, before it was compressed.
	// Default: 256 KiB.
	MaxMessage int
	// StreamMessages are sizes of the largest messages of single Streams, by full method, in place
	// of MaxMessage.
	StreamMessages map[string]int
	// Oversized has replies, by method, to unary calls whose message is larger than
	// MaxMessage. The message is not read. The calls of other methods fail with
	// RESOURCE_EXHAUSTED.
	Oversized map[string][]byte
	// MaxHeaderList is the size of the largest header list of a call, counted as
	// RFC 9113 does, in bytes. Default: 16 KiB.
	MaxHeaderList int
	// Hold, if not nil, returns a new connection's part of a memory budget, which its
	// calls and their messages are charged to: a message as a whole when its length is
	// known. It gets a function that closes the connection without waiting. Nil: only
	// MaxStreams and MaxMessage bound the memory of a connection.
	Hold func(evict func()) Hold

	// HandshakeTimeout is how long a new connection may take for TLS and for
	// HTTP/2's first frames. Default: 5 s.
	HandshakeTimeout time.Duration
	// MessageTimeout is how long a call's message may take to arrive after its
	// header, and a further message of a stream after its first byte. Default: 10 s.
	MessageTimeout time.Duration
	// WriteTimeout is how long a client may leave answers unread while the server
	// wants to send more. Default: 10 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection without calls stays open. Negative: it
	// has no bound. Default: 10 minutes.
	IdleTimeout time.Duration
	// MaxAge, if not 0, is how long a connection lives, give or take a tenth, until
	// its client is asked to open another one.
	MaxAge time.Duration
	// AgeGrace is how long calls in flight may then take. Default: no bound.
	AgeGrace time.Duration

	// Limited, if not nil, is called with the reason for every connection that is
	// closed and every call that is refused. It must not block.
	Limited func(Reason)
	// Logger, if not nil, gets a line for connections that are closed because of their
	// client, at most once a second for each reason, and for handlers that panic.
	Logger *slog.Logger
}

// A Hold is the part of a memory budget that one connection uses.
type Hold interface {
	// Take takes bytes, or none, and reports whether it took them.
	Take(bytes int64) bool
	// Return gives bytes back.
	Return(bytes int64)
	// Unfinished says how many of the bytes belong to messages that are not whole,
	// with the parts that have not come.
	Unfinished(bytes int64)
	// Close returns all bytes. Nothing is taken afterwards.
	Close()
}

// unbounded is a Hold without a budget.
type unbounded struct{}

func (unbounded) Take(int64) bool  { return true }
func (unbounded) Return(int64)     {}
func (unbounded) Unfinished(int64) {}
func (unbounded) Close()           {}

const (
	// minWindow is the smallest window that HTTP/2 lets a client assume before it
	// has read the server's settings.
	minWindow = 65535
	// firstWindow is how much a client may send on a stream before the prefix of its
	// message has come.
	firstWindow = 16 << 10
	// updateStreamAfter is how much more a client may send on a stream before it learns so.
	updateStreamAfter = firstWindow / 4
	// connWindow is how much a client may send on one connection that was not read. It
	// bounds no memory: the budget does.
	connWindow = 1 << 20
	// updateAfter is how much more a client may send on a connection before it learns so.
	updateAfter = connWindow / 4
	// streamBytes estimates the memory of a call without its message.
	streamBytes = 2 << 10
	// maxFrame is the largest payload of a frame, either way.
	maxFrame = 16384
)

// withDefaults returns the options with defaults in place of zero values, or an error
// that names an invalid option.
func (o Options) withDefaults() (Options, error) {
	for name, value := range map[string]int{
		"MaxStreams": o.MaxStreams, "MaxOpen": o.MaxOpen,
		"MaxMessage": o.MaxMessage, "MaxHeaderList": o.MaxHeaderList,
	} {
		if value < 0 {
			return o, errors.New("frames: new: " + name + " is negative")
		}
	}
	if o.TLS != nil && !slices.Contains(o.TLS.NextProtos, "h2") && o.TLS.GetConfigForClient == nil {
		return o, errors.New(`frames: new: TLS does not offer "h2"`)
	}
	o.MaxStreams = cmp.Or(o.MaxStreams, 1000)
	o.MaxOpen = cmp.Or(o.MaxOpen, 1000)
	o.MaxMessage = cmp.Or(o.MaxMessage, 256<<10)
	o.MaxHeaderList = cmp.Or(o.MaxHeaderList, 16<<10)
	if o.Hold == nil {
		o.Hold = func(func()) Hold { return unbounded{} }
	}
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 5*time.Second)
	o.MessageTimeout = cmp.Or(o.MessageTimeout, 10*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

// most returns the size of the largest message of a call.
func (o *Options) most(c *Call) int64 {
	if n, own := o.StreamMessages[c.method]; own {
		return int64(n)
	}
	return int64(o.MaxMessage)
}

// tick is how often connections are looked after: often enough for the shortest
// timeout, and once a second at least.
func (o *Options) tick() time.Duration {
	shortest := 4 * time.Second
	for _, d := range []time.Duration{o.HandshakeTimeout, o.MessageTimeout, o.WriteTimeout, o.IdleTimeout, o.MaxAge, o.AgeGrace} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return max(shortest/4, 5*time.Millisecond)
}
