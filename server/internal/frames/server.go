package frames

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Server serves calls. [New] makes one.
type Server struct {
	options  Options
	handlers sync.WaitGroup // running calls

	packers chan *packer // those that nobody uses

	clock  atomic.Int64 // of the last tick, in nanoseconds
	opened atomic.Int64 // streams whose handler runs
	counts counts

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	stopping  bool
	cutting   bool // Stop waits no longer
	ticking   bool
	left      *sync.Cond      // a connection has left
	living    context.Context // of the ticker
	quit      context.CancelFunc
	ended     chan struct{} // the ticker has ended
}

// New returns a server. It starts nothing.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		options:   o,
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
		ended: make(chan struct{}),
	}
	s.packers = make(chan *packer, runtime.GOMAXPROCS(0))
	for range cap(s.packers) {
		s.packers <- new(packer)
	}
	s.living, s.quit = context.WithCancel(context.Background())
	s.left = sync.NewCond(&s.mu)
	return s, nil
}

// Serve accepts connections until the listener fails or [Server.Stop] is called,
// which it reports as [ErrStopped]. It closes the listener. It may be called for
// several listeners. The caller must call Stop in the end.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.enter(l) {
		return ErrStopped
	}
	defer s.forget(l)
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accept(nc)
		case s.isStopping():
			return ErrStopped
		case temporary(err):
			// Too many open files, most likely: some will be closed.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.options.Logger.Warn("cannot accept a gRPC connection", "error", err)
			time.Sleep(pause)
		default:
			return fmt.Errorf("frames: serve: %w", err)
		}
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary() && !errors.Is(err, net.ErrClosed)
}

// enter starts the ticker with the first listener.
func (s *Server) enter(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.listeners[l] = struct{}{}
	if !s.ticking {
		s.ticking = true
		go s.tend()
	}
	return true
}

func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	s.left.Broadcast()
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// accept serves a connection.
func (s *Server) accept(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	stopping, cutting := s.stopping, s.cutting
	if !cutting {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if cutting {
		_ = nc.Close()
		return
	}
	s.counts.accepted.Add(1)
	if stopping {
		// Its client connected before the listener was closed, and may have sent a call.
		c.drain(partingWords)
	}
	go func() {
		if c.begin() {
			// The handshake has grown the stack, which would stay as large.
			go c.work(reading)
		}
	}()
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.left.Broadcast()
}

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// partingWords tell a client why it has to go elsewhere.
const partingWords = "the server stops"

// Stop closes the listeners, asks every client to go elsewhere, and waits until the
// calls in flight are answered. If ctx ends first it cuts them off and returns an
// error. Calling it again waits again.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for l := range s.listeners {
		_ = l.Close()
	}
	started := s.ticking
	s.mu.Unlock()
	for _, c := range s.connections() {
		c.drain(partingWords)
	}
	err := s.await(ctx)
	if err != nil {
		s.mu.Lock()
		s.cutting = true
		s.mu.Unlock()
		for _, c := range s.connections() {
			c.cut()
		}
		err = fmt.Errorf("frames: stop: calls were cut off: %w", err)
	}
	if started {
		s.quit()
		<-s.ended
		if err == nil {
			s.handlers.Wait()
		}
	}
	return err
}

// await waits until nothing is served any more.
func (s *Server) await(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.conns)+len(s.listeners) > 0 && ctx.Err() == nil {
		s.left.Wait()
	}
	if len(s.conns)+len(s.listeners) == 0 {
		return nil
	}
	return ctx.Err()
}

// tend looks after the connections until the server ends.
func (s *Server) tend() {
	defer close(s.ended)
	ticker := time.NewTicker(s.options.tick())
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-s.living.Done():
			return
		}
		now := time.Now()
		s.tick(now.Sub(last))
		last = now
	}
}

// tick advances the clock that measures clients' time, and checks the connections. The
// clock stands still while this process gets no processor: data that clients sent during
// that time arrived in time, and is read late.
func (s *Server) tick(elapsed time.Duration) {
	now := time.Duration(s.clock.Add(int64(min(elapsed, 2*s.options.tick()))))
	for _, c := range s.connections() {
		c.tend(now)
	}
}

// now is the time of the last tick.
func (s *Server) now() time.Duration { return time.Duration(s.clock.Load()) }

// soon returns the time of the next tick. A client whose time is measured from then on
// has at least the promised time.
func (s *Server) soon() time.Duration { return s.now() + s.options.tick() }
