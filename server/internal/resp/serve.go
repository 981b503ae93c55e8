package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	// refuseTimeout is how long one client too many may keep others from being
	// accepted.
	refuseTimeout = 100 * time.Millisecond
	// firstPause and lastPause are how long accepting pauses where the process
	// has no room for another connection.
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Serve answers the listener's clients until Shutdown, and returns nil then. It
// owns the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.open(l) {
		return nil
	}
	pause := firstPause
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = firstPause
			s.accept(conn)
		case s.draining.Load():
			return nil
		case !exhausted(err):
			return fmt.Errorf("resp: accept: %w", err)
		default:
			s.warn("clients wait to be accepted", "error", err)
			s.pause(pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// open notes a listener, unless the server is shut down.
func (s *Server) open(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// exhausted reports whether accepting can succeed later.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func (s *Server) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.base.Done():
	}
}

// accept begins a session, if there is room for one.
func (s *Server) accept(conn net.Conn) {
	s.mu.Lock()
	full := len(s.sessions) >= s.maxConnections
	if full || s.draining.Load() {
		s.mu.Unlock()
		s.refuse(conn, full)
		return
	}
	c := newSession(s, conn)
	s.sessions[c] = struct{}{}
	s.running.Go(c.run)
	s.mu.Unlock()
}

func (s *Server) refuse(conn net.Conn, full bool) {
	defer conn.Close()
	if !full {
		return
	}
	s.warn("too many clients", "most", s.maxConnections)
	// For reading too: TLS begins with that.
	if conn.SetDeadline(time.Now().Add(refuseTimeout)) == nil {
		// Whoever does not hear it sees the end.
		_, _ = io.WriteString(conn, "-ERR max number of clients reached\r\n")
	}
}

func (s *Server) forget(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
}

// Clients is how many are connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Shutdown accepts nobody any more, answers what has been read, and hangs up.
// When ctx ends first, what is left is cut off and the error says so.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	defer s.cut()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.cut()
	s.hangUp()
	<-done
	return fmt.Errorf("resp: shutdown: clients were cut off: %w", ctx.Err())
}

// drain wakes whoever waits for a client.
func (s *Server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for l := range s.listeners {
		// Serve closes it again, and nobody else has to know how that went.
		_ = l.Close()
	}
	for c := range s.sessions {
		// A connection that cannot have a deadline is broken already.
		_ = c.conn.SetReadDeadline(time.Now())
	}
}

func (s *Server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		_ = c.conn.Close()
	}
}
