// Package resp serves the protocol of Redis, RESP2 and RESP3, with the commands WEIR.*, whose
// limits come with each command, and the command CL.THROTTLE of redis-cell. All memory that a
// client can occupy is bounded; see docs/resp.md.
package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Defaults of [Options].
const (
	DefaultTimeout        = time.Second
	DefaultMaxConnections = 4096
)

// Bounds of one connection.
const (
	idleTimeout  = 300 * time.Second
	authTimeout  = 10 * time.Second // from the first byte to AUTH, whatever commands come
	authDelay    = 250 * time.Millisecond
	writeTimeout = 5 * time.Second
	writeSlack   = time.Second // by which a write may take longer
	maxUnsent    = 16 << 10    // bytes of replies that wait to be written
	maxPipeline  = 1024        // replies that wait to be written
)

// Options are what [New] needs. Taker and Rules are required.
type Options struct {
	// Taker decides.
	Taker weir.Taker
	// Rules returns the rules in force, which can replace the limits of WEIR.* commands. It
	// must never return nil.
	Rules func() *rules.Set
	// Callers authenticates the clients. Nil: they need no password.
	Callers *callers.Authenticator
	// Timeout is how long a command may wait for its decision, or up to a sixteenth less. Zero:
	// [DefaultTimeout].
	Timeout time.Duration
	// MaxConnections is the number of clients that may be connected. A further one replaces
	// the oldest that has not given a command yet, or gets an error and is disconnected. Zero: [DefaultMaxConnections].
	MaxConnections int
	// Panics reports commands that panic; their connections end. Nil: they are logged.
	Panics *panics.Reporter
	// Logger gets a line each time that the store fails or too many clients connect. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// Server serves the clients of any number of listeners. It is safe for concurrent use.
// Create it with New.
type Server struct {
	taker          weir.Taker
	rules          func() *rules.Set
	callers        *callers.Authenticator // nil: no password is needed
	ends           *deadline.Group        // of the decisions
	authDelay      time.Duration          // of the answer to a wrong password
	maxConnections int
	room           *admission.Room
	panics         *panics.Reporter
	logger         *slog.Logger

	commands map[string]command
	limits   limits
	batches  sync.Pool
	lastID   atomic.Int64

	base     context.Context // of all decisions; ends when calls are cut off
	cut      context.CancelFunc
	draining atomic.Bool // set while mu is held
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows; never held while waiting
	listeners map[net.Listener]struct{}
	sessions  map[*session]struct{}
}

// New returns a server without listeners.
func New(o Options) *Server {
	s := &Server{
		taker:          o.Taker,
		rules:          o.Rules,
		callers:        o.Callers,
		authDelay:      authDelay,
		ends:           deadline.NewGroup(cmp.Or(o.Timeout, DefaultTimeout)),
		maxConnections: cmp.Or(o.MaxConnections, DefaultMaxConnections),
		logger:         cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		panics:         o.Panics,
		commands:       commands(),
		listeners:      make(map[net.Listener]struct{}),
		sessions:       make(map[*session]struct{}),
	}
	s.room = admission.NewRoom(s.maxConnections)
	if s.panics == nil {
		s.panics = &panics.Reporter{Listener: "resp", Logger: s.logger}
	}
	s.batches.New = func() any { return newBatch() }
	s.base, s.cut = context.WithCancel(context.Background())
	return s
}

const (
	// refuseTimeout bounds how long one client too many delays accepting others.
	refuseTimeout = 100 * time.Millisecond
	// firstPause and lastPause bound how long accepting pauses while the process has no
	// room for another connection.
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Serve serves the listener's clients until Shutdown, and then returns nil. It owns the
// listener.
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
			s.logger.Warn("clients wait to be accepted", "error", err)
			s.pause(pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// open registers a listener, unless the server is shut down.
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

// accept begins a session if there is room for one. When the room is full, the client that
// has waited longest without a command that it may give makes room.
func (s *Server) accept(conn net.Conn) {
	seat := s.room.Enter(func() {
		s.full()
		_ = conn.Close()
	})
	if seat == nil {
		s.refuse(conn)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		seat.Leave()
		_ = conn.Close()
		return
	}
	c := newSession(s, conn)
	c.seat = seat
	s.sessions[c] = struct{}{}
	s.running.Go(c.run)
}

func (s *Server) full() { s.logger.Warn("too many clients", "most", s.maxConnections) }

func (s *Server) refuse(conn net.Conn) {
	defer conn.Close()
	s.full()
	// For reading too, because TLS begins with a read.
	if conn.SetDeadline(time.Now().Add(refuseTimeout)) == nil {
		// A client that misses the error sees the connection close.
		_, _ = io.WriteString(conn, "-ERR max number of clients reached\r\n")
	}
}

func (s *Server) forget(c *session) {
	c.seat.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
}

// Clients returns how many clients are connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Shutdown stops accepting clients, answers the commands that were read, and closes the
// connections. When ctx ends first it cuts off the rest and returns an error.
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

// drain wakes the goroutines that wait for clients.
func (s *Server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for l := range s.listeners {
		// Serve closes it again and ignores the error.
		_ = l.Close()
	}
	for c := range s.sessions {
		// A connection without deadlines is broken already.
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
