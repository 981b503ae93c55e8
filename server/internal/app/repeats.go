package app

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// repeatsPause is how long a warning that was logged is not logged again.
const repeatsPause = time.Minute

// repeats is a [slog.Handler] for warnings that come with every call while something is
// wrong. It logs each message once a minute, with the number of those left out. Other
// levels pass. Messages are the program's own and few.
type repeats struct {
	slog.Handler
	shared *repeated
	// outage, if not nil, reports whether the store is known to be unreachable. That was
	// logged, and its consequences are not worth a warning.
	outage func() bool
}

// repeated is the state of a handler and of those derived from it.
type repeated struct {
	now func() time.Time

	mu       sync.Mutex
	messages map[string]*repetition
}

// A repetition counts one message.
type repetition struct {
	logged  time.Time
	leftOut int
}

// withoutRepeats returns a logger that leaves out warnings.
func withoutRepeats(logger *slog.Logger, now func() time.Time) *slog.Logger {
	return slog.New(&repeats{Handler: logger.Handler(), shared: &repeated{now: now, messages: map[string]*repetition{}}})
}

// duringOutages returns a logger for failures that follow from the store's. It logs
// warnings at level debug while outage reports one.
func duringOutages(logger *slog.Logger, outage func() bool) *slog.Logger {
	if h, ok := logger.Handler().(*repeats); ok {
		return slog.New(&repeats{h.Handler, h.shared, outage})
	}
	return logger
}

// Handle logs a record, or leaves it out.
func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	if h.outage != nil && h.outage() {
		if r.Level = slog.LevelDebug; !h.Enabled(ctx, r.Level) {
			return nil
		}
		return h.Handler.Handle(ctx, r)
	}
	leftOut, log := h.shared.count(r.Message)
	if !log {
		return nil
	}
	if leftOut > 0 {
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// count counts a message and reports whether to log it, and how many were not.
func (s *repeated) count(message string) (leftOut int, log bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[message]
	if m == nil {
		m = &repetition{}
		s.messages[message] = m
	}
	if !m.logged.IsZero() && now.Sub(m.logged) < repeatsPause {
		m.leftOut++
		return 0, false
	}
	leftOut, m.leftOut, m.logged = m.leftOut, 0, now
	return leftOut, true
}

// WithAttrs returns a handler that counts with this one.
func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeats{h.Handler.WithAttrs(attrs), h.shared, h.outage}
}

// WithGroup returns a handler that counts with this one.
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.Handler.WithGroup(name), h.shared, h.outage}
}
