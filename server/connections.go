package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultHTTPMaxConnections is how many HTTP connections there can be unless
	// [Options.HTTPMaxConnections] says otherwise.
	DefaultHTTPMaxConnections = 4096

	// refuseTimeout is how long one client too many may keep others from being
	// accepted.
	refuseTimeout = 100 * time.Millisecond
	tooMany       = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// A bounded listener accepts no more connections than it may hold open; further
// ones are told so, as far as that is possible, and hung up on: whoever waits
// behind a client that says nothing would wait for long.
type bounded struct {
	net.Listener
	most       int64
	secret     bool // TLS goes over it: there is no telling in plain text
	open       *atomic.Int64
	logger     *slog.Logger
	lastLogged atomic.Int64 // unix seconds
	close      func() error
}

// bound bounds the connections of a listener, and counts them.
func (o *Options) bound(l net.Listener, open *atomic.Int64, seldom *slog.Logger) net.Listener {
	return &bounded{
		Listener: l, most: int64(o.HTTPMaxConnections), secret: o.HTTPTLS != (TLS{}), open: open, logger: seldom,
		close: sync.OnceValue(l.Close),
	}
}

// Close ends Accept. A stop closes the listener before net/http does: each gets the same
// answer.
func (b *bounded) Close() error { return b.close() }

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.most {
			return newUnhurried(newCounted(conn, b.open)), nil
		}
		b.open.Add(-1)
		b.refuse(conn)
	}
}

func (b *bounded) refuse(conn net.Conn) {
	defer conn.Close()
	now := time.Now()
	if last := b.lastLogged.Load(); last != now.Unix() && b.lastLogged.CompareAndSwap(last, now.Unix()) {
		b.logger.Warn("too many HTTP connections", "most", b.most)
	}
	if !b.secret && conn.SetWriteDeadline(now.Add(refuseTimeout)) == nil {
		// Whoever does not hear it sees the end.
		_, _ = io.WriteString(conn, tooMany)
	}
}

// counted is a connection that makes room when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// newCounted is a connection that was counted.
func newCounted(conn net.Conn, open *atomic.Int64) *counted {
	return &counted{Conn: conn, leave: sync.OnceFunc(func() { open.Add(-1) })}
}

// CloseWrite ends what is written and leaves the rest to be read, so that an
// answer to a request that goes on is not lost.
func (c *counted) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close closes the connection, once or more often.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
