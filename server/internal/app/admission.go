package app

import (
	"cmp"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rules"
)

// What the fields of [Limits] are if they are zero.
const (
	DefaultGRPCMaxConnections  = 2048
	DefaultGRPCMaxStreams      = 1000
	DefaultGRPCMaxWatches      = 256
	DefaultGRPCIdleTimeout     = 5 * time.Minute
	DefaultAdminMaxConnections = 256
	DefaultRequestMemory       = 32 // MiB
)

// Limits bound what clients can make the server keep before it knows what they want.
// The zero value stands for the defaults.
type Limits struct {
	// Bounds are how large a request may be.
	rules.Bounds
	// RequestMemory is how many MiB requests may hold while they are received and
	// decoded, of all connections together. Zero: [DefaultRequestMemory].
	RequestMemory int
	// GRPCMaxConnections is how many gRPC connections can be open. Zero:
	// [DefaultGRPCMaxConnections].
	GRPCMaxConnections int
	// GRPCMaxStreams is how many calls can be in flight on one gRPC connection.
	// Zero: [DefaultGRPCMaxStreams].
	GRPCMaxStreams int
	// GRPCMaxWatches is how many gRPC streams can stay open, of all connections: those
	// that watch the health, and those of reflection. Zero: [DefaultGRPCMaxWatches].
	GRPCMaxWatches int
	// GRPCIdleTimeout is how long a gRPC connection may be without a call. Zero:
	// [DefaultGRPCIdleTimeout].
	GRPCIdleTimeout time.Duration
	// AdminMaxConnections is how many connections of administrators can be open.
	// Zero: [DefaultAdminMaxConnections].
	AdminMaxConnections int
}

func (l Limits) withDefaults() Limits {
	l.RequestMemory = cmp.Or(l.RequestMemory, DefaultRequestMemory)
	l.GRPCMaxConnections = cmp.Or(l.GRPCMaxConnections, DefaultGRPCMaxConnections)
	l.GRPCMaxStreams = cmp.Or(l.GRPCMaxStreams, DefaultGRPCMaxStreams)
	l.GRPCMaxWatches = cmp.Or(l.GRPCMaxWatches, DefaultGRPCMaxWatches)
	l.GRPCIdleTimeout = cmp.Or(l.GRPCIdleTimeout, DefaultGRPCIdleTimeout)
	l.AdminMaxConnections = cmp.Or(l.AdminMaxConnections, DefaultAdminMaxConnections)
	return l
}

// minRequestMemory is room for a few of the largest requests.
const minRequestMemory = 4

// validate names the limit that cannot be.
func (l *Limits) validate() error {
	for _, limit := range []struct {
		field string
		value int
	}{
		{"grpc max connections", l.GRPCMaxConnections},
		{"grpc max streams", l.GRPCMaxStreams},
		{"grpc max watches", l.GRPCMaxWatches},
		{"admin max connections", l.AdminMaxConnections},
		{"request memory", l.RequestMemory},
	} {
		if limit.value < 0 {
			return &weir.InvalidError{Field: limit.field, Value: strconv.Itoa(limit.value), Want: "at least 1; 0 for the default"}
		}
	}
	switch {
	case l.RequestMemory < minRequestMemory:
		return &weir.InvalidError{Field: "request memory", Value: strconv.Itoa(l.RequestMemory), Want: "at least " + strconv.Itoa(minRequestMemory) + " MiB"}
	case l.GRPCIdleTimeout < 0:
		return &weir.InvalidError{Field: "grpc idle timeout", Value: l.GRPCIdleTimeout.String(), Want: "no negative duration"}
	}
	return l.Bounds.Validate()
}

// rejections counts the connections and calls that a listener rejects before it has
// decoded them, and logs each reason at most once a second.
type rejections struct {
	listener string
	metrics  *metrics.Metrics
	logger   *slog.Logger

	mu     sync.Mutex
	logged map[admission.Reason]time.Time
}

func (a *App) rejections(listener string) *rejections {
	return &rejections{listener: listener, metrics: a.metrics, logger: a.logger, logged: map[admission.Reason]time.Time{}}
}

// add notes a rejection.
func (r *rejections) add(reason admission.Reason) {
	r.metrics.Rejected(r.listener, string(reason))
	if r.due(reason, time.Now()) {
		r.logger.Warn("connections or calls are rejected before they are read", "listener", r.listener, "reason", string(reason))
	}
}

func (r *rejections) due(reason admission.Reason, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.logged[reason]) < time.Second {
		return false
	}
	r.logged[reason] = now
	return true
}

// panics returns what reports the panics of a listener's calls.
func (a *App) panics(listener string) *panics.Reporter {
	return &panics.Reporter{Listener: listener, Logger: a.logger, Count: a.metrics.Panicked(listener)}
}
