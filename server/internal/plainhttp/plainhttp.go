// Package plainhttp reads the requests that nearly all clients send, GET /v1/auth with a query
// and POST of /v1/take, /v1/settle and /v1/release, at a fraction of net/http's cost: answering
// others' requests must cost them nothing. Its duty is that a request it accepts means the same
// to net/http. So it accepts a strict subset of HTTP/1.1; a connection with any other request
// goes to net/http, with the request unread, and stays there.
//
// Handlers are net/http's: this package replaces the reading of requests and the writing of
// responses, and no more. But they must keep nothing of a request, and change nothing in its
// header: the next request of the connection has the same memory.
package plainhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a connection that can go to net/http.
type Conn interface {
	net.Conn
	// Unread makes Read return bytes once more. The request that they begin has been
	// arriving for a time, by which net/http's first deadlines come earlier.
	Unread(p []byte, spent time.Duration)
	// Hold and WriteSome are those of a [held.Conn], Hold with the deadline of Read.
	// The error of a connection that has none is [errors.ErrUnsupported].
	Hold(room func() []byte, received func(n int) bool) error
	WriteSome(p []byte) (int, error)
	// CloseWrite ends writing, also that of a write that waits.
	CloseWrite() error
}

// A Server reads requests for the handler of an [http.Server], whose timeouts it uses. It is
// safe for concurrent use. Create it with New.
type Server struct {
	http     *http.Server
	running  sync.WaitGroup
	draining atomic.Bool // set while mu is held

	mu       sync.Mutex // guards what follows; never held while waiting
	listener net.Listener
	ended    chan struct{} // by Serve; nil: it was not called
	conns    map[*conn]struct{}
}

// New returns a server that reads requests for another, which has all four timeouts and serves
// nothing else.
func New(s *http.Server) *Server { return &Server{http: s, conns: map[*conn]struct{}{}} }

// Serve serves the connections of a listener, which have to be a [Conn]. It returns what
// [http.Server.Serve] returns, after all connections were closed or passed to that.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return errors.Join(l.Close(), http.ErrServerClosed)
	}
	h := &handed{Listener: l, conns: make(chan net.Conn), failed: make(chan error), ended: make(chan struct{})}
	s.listener, s.ended = l, h.ended
	s.mu.Unlock()
	go s.accept(h)
	defer close(h.ended)
	return s.http.Serve(h)
}

// accept accepts connections until the listener is closed or Serve ends.
func (s *Server) accept(h *handed) {
	for {
		accepted, err := h.Listener.Accept()
		if err == nil {
			s.running.Go(func() { s.serve(accepted.(Conn), h) })
			continue
		}
		closed := errors.Is(err, net.ErrClosed)
		if closed {
			// Until then Serve passes connections on to net/http.
			s.running.Wait()
		}
		select {
		case h.failed <- err:
		case <-h.ended:
			return
		}
		if closed {
			return
		}
	}
}

// serve serves a connection, or passes it to net/http.
func (s *Server) serve(accepted Conn, h *handed) {
	c, cancel := newConn(s, accepted)
	defer cancel()
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	spent, handOver := c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if handOver {
		accepted.Unread(c.in, spent)
		select {
		case h.conns <- accepted:
			return
		case <-h.ended:
		}
	}
	_ = accepted.Close()
}

// Shutdown closes the listener, answers the requests that have arrived, closes idle connections,
// and waits until Serve has ended. When ctx ends first, it cuts off all connections and returns
// the error of ctx. Shut down the [http.Server] afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	ended := s.ended
	if ended != nil {
		_ = s.listener.Close() // Serve knows the error
	}
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // a connection without deadlines is broken
	}
	s.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		// Closing would wait for what a held read has begun. Nothing is read any more.
		_ = c.CloseWrite()
	}
	return ctx.Err()
}

// handed is the listener of the connections that go to net/http.
type handed struct {
	net.Listener
	conns  chan net.Conn
	failed chan error
	ended  chan struct{} // Serve has ended
}

// Accept returns the next connection for net/http, or the listener's error.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case err := <-h.failed:
		return nil, err
	}
}
