// Package resp answers Redis clients: it serves the protocol of Redis, RESP2 and
// RESP3, and in it the CL.THROTTLE of redis-cell. A limit comes with each
// command, so that there are no rules here; gcra decides. Everything that a
// client can make the server keep is bounded, see docs/resp.md.
package resp

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/panics"
)

// What the fields of [Options] are if they are zero.
const (
	DefaultTimeout        = time.Second
	DefaultMaxConnections = 4096
)

// The bounds of one connection.
const (
	idleTimeout  = 300 * time.Second
	authTimeout  = 10 * time.Second // from the first byte to AUTH, whatever is said
	authDelay    = 250 * time.Millisecond
	writeTimeout = 5 * time.Second
	maxUnsent    = 16 << 10 // bytes of answers that wait to be written
	maxPipeline  = 1024     // answers that wait to be written
)

// Options are what [New] needs. Taker is required.
type Options struct {
	// Taker decides.
	Taker weir.Taker
	// Callers authenticates the clients. Nil: they need no password.
	Callers *callers.Authenticator
	// Timeout is how long a command may wait for its decision. Zero:
	// [DefaultTimeout].
	Timeout time.Duration
	// MaxConnections is how many clients can be connected; further ones are
	// told so and hung up on. Zero: [DefaultMaxConnections].
	MaxConnections int
	// Panics reports commands that panic; their connections end. Nil: they are logged.
	Panics *panics.Reporter
	// Logger is told, at most once a second, that the store fails or that there
	// are too many clients. Nil: nothing is logged.
	Logger *slog.Logger
}

// Server answers the clients of any number of listeners. It is safe for
// concurrent use. Create it with New.
type Server struct {
	taker          weir.Taker
	callers        *callers.Authenticator // nil: no password is needed
	timeout        time.Duration
	authDelay      time.Duration // of the answer to a wrong password
	maxConnections int
	panics         *panics.Reporter
	logger         *slog.Logger

	commands   map[string]command
	limits     limits
	batches    sync.Pool
	lastID     atomic.Int64
	lastLogged atomic.Int64 // unix seconds

	base     context.Context // of all decisions; ends when calls are cut off
	cut      context.CancelFunc
	draining atomic.Bool // set while mu is held
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows; never held while waiting
	listeners map[net.Listener]struct{}
	sessions  map[*session]struct{}
}

// New returns a server that listens to nothing yet. The error is a
// [*weir.InvalidError].
func New(o Options) (*Server, error) {
	switch {
	case o.Taker == nil:
		return nil, &weir.InvalidError{Field: "Taker", Value: "nil", Want: "a store"}
	case o.Timeout < 0:
		return nil, &weir.InvalidError{Field: "Timeout", Value: o.Timeout.String(), Want: "a positive duration"}
	case o.MaxConnections < 0:
		return nil, &weir.InvalidError{Field: "MaxConnections", Value: "negative", Want: "a positive number"}
	}
	s := &Server{
		taker:          o.Taker,
		callers:        o.Callers,
		authDelay:      authDelay,
		timeout:        cmp.Or(o.Timeout, DefaultTimeout),
		maxConnections: cmp.Or(o.MaxConnections, DefaultMaxConnections),
		logger:         cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		panics:         o.Panics,
		commands:       commands(),
		listeners:      make(map[net.Listener]struct{}),
		sessions:       make(map[*session]struct{}),
	}
	if s.panics == nil {
		s.panics = &panics.Reporter{Listener: "resp", Logger: s.logger}
	}
	s.batches.New = func() any { return newBatch() }
	s.base, s.cut = context.WithCancel(context.Background())
	return s, nil
}

// warn logs, unless something was logged this second.
func (s *Server) warn(what string, args ...any) {
	now := time.Now().Unix()
	if last := s.lastLogged.Load(); last != now && s.lastLogged.CompareAndSwap(last, now) {
		s.logger.Warn(what, args...)
	}
}
