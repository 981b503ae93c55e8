package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/held"
)

const (
	// refuseTimeout is how long one client too many may delay the next accept.
	refuseTimeout = 100 * time.Millisecond
	tooMany       = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// A bounded listener holds no more connections open than it may. It refuses further
// ones instead of letting them wait behind clients that send nothing, and closes
// connections without a call first.
type bounded struct {
	net.Listener
	room     *admission.Room
	refusal  string // sent to one client too many; empty: nothing
	rejected func(admission.Reason)
}

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if seat := b.room.Enter(func() { b.evict(conn) }); seat != nil {
			c := newLazyConn(&counted{Conn: conn, Seat: seat})
			c.rejected = b.rejected
			return c, nil
		}
		b.refuse(conn)
	}
}

// evict closes a connection that never made a call.
func (b *bounded) evict(conn net.Conn) {
	b.rejected(admission.Connections)
	_ = conn.Close()
}

func (b *bounded) refuse(conn net.Conn) {
	defer conn.Close()
	b.rejected(admission.Connections)
	if b.refusal != "" && conn.SetWriteDeadline(time.Now().Add(refuseTimeout)) == nil {
		// A client that does not read it sees the connection end.
		_, _ = io.WriteString(conn, b.refusal)
	}
}

// counted is a connection that makes room when it is closed.
type counted struct {
	net.Conn
	*admission.Seat
	attempts callers.Connection // failures in a row of gRPC calls
}

// A countedAddr leads from a remote address to its connection: gRPC shows a call no more
// of it.
type countedAddr struct {
	net.Addr
	conn *counted
}

// RemoteAddr returns the address of the client.
func (c *counted) RemoteAddr() net.Addr { return &countedAddr{c.Conn.RemoteAddr(), c} }

// CloseWrite ends the answer and leaves the connection readable, so that an answer to a
// request that is still being sent is not lost.
func (c *counted) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close closes the connection, once or more often.
func (c *counted) Close() error {
	c.Leave()
	return c.Conn.Close()
}

type seatKey struct{}

// connContext is for [http.Server.ConnContext]: a request leads to the seat of its
// connection, and counts its failures there. A connection that goes to net/http takes its
// failures along.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, ok := conn.(*lazyConn)
	if !ok {
		return callers.ConnContext(ctx, conn)
	}
	if c.requests == nil {
		c.requests = callers.ConnContext(context.WithValue(ctx, seatKey{}, c.Seat), conn)
	}
	return c.requests
}

// calling notes that the request's connection has made a call.
func calling(r *http.Request) {
	if seat, ok := r.Context().Value(seatKey{}).(*admission.Seat); ok {
		seat.Called()
	}
}

// A lazyConn rarely moves its deadlines. net/http moves them seven times for each
// request, nearly always later, and each move costs a timer. A deadline that is too early
// stays in place and is moved when it passes.
//
// A deadline that passes is extended once: bytes that have arrived by then came in time, and
// this process was late to read them.
type lazyConn struct {
	*counted
	held        *held.Conn      // nil: reads cannot be held
	unread      []byte          // what Read returns first
	requests    context.Context // of its requests; nil: there was none
	read, write lazyDeadline
	rejected    func(admission.Reason)
}

func newLazyConn(c *counted) *lazyConn {
	return &lazyConn{counted: c, held: held.Of(c.Conn), read: lazyDeadline{arm: c.SetReadDeadline}, write: lazyDeadline{arm: c.SetWriteDeadline}}
}

// Read reads until the deadline that was set last.
func (c *lazyConn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		if c.unread = c.unread[n:]; len(c.unread) == 0 {
			c.unread = nil
		}
		return n, nil
	}
	for {
		n, err := c.counted.Read(p)
		if err == nil || n > 0 || !c.read.early(err) {
			return n, err
		}
	}
}

// Hold is [held.Conn.Read] until the deadline that was set last. Bytes that were unread come
// from Read alone.
func (c *lazyConn) Hold(room func() []byte, received func(n int) bool) error {
	if c.held == nil {
		return errors.ErrUnsupported
	}
	for {
		if err := c.held.Read(room, received); err == nil || !c.read.early(err) {
			return err
		}
	}
}

// WriteSome is that of [held.Conn].
func (c *lazyConn) WriteSome(p []byte) (int, error) { return c.held.WriteSome(p) }

// Unread makes Read return bytes once more, and moves the deadlines of reading that are set
// before the next answer earlier by the time that the request has been arriving.
func (c *lazyConn) Unread(p []byte, spent time.Duration) {
	c.unread = p
	c.read.startedEarlier(spent)
}

// headerTooLarge begins net/http's own answer to a header that is too large. No handler sees
// such a request.
const headerTooLarge = "HTTP/1.1 431 "

// Write writes until the deadline that was set last.
func (c *lazyConn) Write(p []byte) (int, error) {
	if c.rejected != nil && len(p) > len(headerTooLarge) && string(p[:len(headerTooLarge)]) == headerTooLarge {
		c.rejected(admission.Header)
	}
	c.read.startedEarlier(0)
	written := 0
	for {
		n, err := c.counted.Write(p[written:])
		written += n
		if err == nil || !c.write.early(err) {
			return written, err
		}
	}
}

// SetReadDeadline moves the deadline of Read.
func (c *lazyConn) SetReadDeadline(t time.Time) error { return c.read.set(t) }

// SetWriteDeadline moves the deadline of Write.
func (c *lazyConn) SetWriteDeadline(t time.Time) error { return c.write.set(t) }

// SetDeadline moves both.
func (c *lazyConn) SetDeadline(t time.Time) error {
	if err := c.read.set(t); err != nil {
		return err
	}
	return c.write.set(t)
}

// A lazyDeadline is when a connection gives up.
type lazyDeadline struct {
	arm func(time.Time) error

	mu       sync.Mutex
	wanted   time.Time     // zero: never
	armed    time.Time     // no later than wanted, unless that was extended
	extended time.Time     // the last wanted one that was extended
	spent    time.Duration // by which deadlines come earlier
}

// extension is short, because the data is already in a buffer.
const extension = 50 * time.Millisecond

// longAgo is after the deadlines that interrupt a pending read, and before all others.
var longAgo = time.Unix(1e9, 0)

// set moves the deadline.
func (d *lazyDeadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !t.IsZero() {
		t = t.Add(-d.spent)
	}
	d.wanted = t
	switch {
	case !d.armed.IsZero() && d.armed.Before(longAgo):
		// After an interruption: no deadline of the next request is earlier than this.
		return d.put(earlier(t, time.Now().Add(readHeaderTimeout)))
	case t.IsZero() || !d.armed.IsZero() && !t.Before(d.armed):
		return nil
	}
	return d.put(t)
}

// startedEarlier makes deadlines earlier by a time, or by none again.
func (d *lazyDeadline) startedEarlier(spent time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spent = spent
}

// early reports whether an error is due to a deadline that has been moved since or can be
// extended, and puts the connection right.
func (d *lazyDeadline) early(err error) bool {
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.wanted.IsZero() || now.Before(d.wanted) {
		return d.put(d.wanted) == nil
	}
	if d.wanted.Before(longAgo) || d.wanted.Equal(d.extended) {
		return false
	}
	d.extended = d.wanted
	return d.put(now.Add(extension)) == nil
}

func (d *lazyDeadline) put(t time.Time) error {
	d.armed = t
	return d.arm(t)
}

// earlier returns the earlier one of a deadline, zero for none, and an instant.
func earlier(deadline, instant time.Time) time.Time {
	if deadline.IsZero() || instant.Before(deadline) {
		return instant
	}
	return deadline
}
