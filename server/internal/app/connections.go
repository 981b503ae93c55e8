package app

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/internal/admission"
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
	most     int
	open     *atomic.Int64 // connections
	told     string        // to one client too many; empty where there is no telling
	rejected func(admission.Reason)
}

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= int64(b.most) {
			return newUnhurried(newCounted(conn, b.open)), nil
		}
		b.open.Add(-1)
		b.refuse(conn)
	}
}

func (b *bounded) refuse(conn net.Conn) {
	defer conn.Close()
	b.rejected(admission.Connections)
	if b.told != "" && conn.SetWriteDeadline(time.Now().Add(refuseTimeout)) == nil {
		// Whoever does not hear it sees the end.
		_, _ = io.WriteString(conn, b.told)
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

// boundHTTP bounds the connections of a listener that speaks HTTP.
func (a *App) boundHTTP(l net.Listener, t TLS, b bounded) net.Listener {
	b.Listener = l
	if t == (TLS{}) {
		b.told = tooMany
	}
	return &b
}
