// Package logs bounds what clients and failures can make a program log.
package logs

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A Seldom limits what is logged often to a line in a period. The zero value limits it to a line a
// second. It is safe for concurrent use.
type Seldom struct {
	// Period is the least time between two lines. Zero: one second.
	Period time.Duration

	last    atomic.Int64 // unix nanoseconds
	leftOut atomic.Int64
}

// Due reports whether to log now, and if so, how often it was not due since it was last.
func (s *Seldom) Due() (leftOut int64, due bool) {
	period := s.Period
	if period == 0 {
		period = time.Second
	}
	now, last := time.Now().UnixNano(), s.last.Load()
	if last != 0 && now-last < int64(period) || !s.last.CompareAndSwap(last, now) {
		s.leftOut.Add(1)
		return 0, false
	}
	return s.leftOut.Swap(0), true
}

// Handler returns a handler that passes one record in a second on, with the number of those that it
// left out as "left_out".
func Handler(h slog.Handler) slog.Handler { return &handler{h, new(Seldom)} }

type handler struct {
	slog.Handler
	seldom *Seldom
}

// Handle passes a record on if it is due.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	leftOut, due := h.seldom.Due()
	if !due {
		return nil
	}
	if leftOut > 0 {
		r.AddAttrs(slog.Int64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that counts with this one.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.seldom}
}

// WithGroup returns a handler that counts with this one.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.seldom}
}
