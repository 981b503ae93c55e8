package gate

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// calm is for how long nothing may fail before decisions count as reached again, so
// that a store that fails now and then is not logged each time.
const calm = time.Second

// trouble logs when decisions begin to fail and when they no longer do. The zero value
// is ready for use; it must not be copied.
type trouble struct {
	failing atomic.Bool
	mu      sync.Mutex // guards what follows
	since   time.Time
	last    time.Time // of the latest failure
	failed  int       // since then
}

// note notes what became of a request.
func (t *trouble) note(logger *slog.Logger, err error) {
	switch {
	case logger == nil:
	case err != nil:
		t.fail(logger, err)
	case t.failing.Load():
		t.recover(logger)
	}
}

func (t *trouble) fail(logger *slog.Logger, err error) {
	t.mu.Lock()
	now, first := time.Now(), !t.failing.Load()
	if first {
		t.since, t.failed = now, 0
		t.failing.Store(true)
	}
	t.last = now
	t.failed++
	t.mu.Unlock()
	if first {
		logger.Warn("the limiter reaches no decision; further failures are counted and not logged", "error", err)
	}
}

func (t *trouble) recover(logger *slog.Logger) {
	t.mu.Lock()
	now := time.Now()
	if !t.failing.Load() || now.Sub(t.last) < calm {
		t.mu.Unlock()
		return
	}
	t.failing.Store(false)
	after, failed := now.Sub(t.since), t.failed
	t.mu.Unlock()
	logger.Info("the limiter reaches decisions again", "after", after.Round(time.Millisecond), "failed", failed)
}
