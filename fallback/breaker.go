package fallback

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// When a store counts as away: after so many failures in a row, or after half of
// so many calls within a second.
const (
	failuresInARow = 5
	callsToJudge   = 20
	judgedFor      = time.Second
)

// A breaker tells whether the store is away.
type breaker struct {
	away atomic.Pointer[absence] // nil while it is not
	// troubled is set while successes have to be counted too.
	troubled atomic.Bool

	mu     sync.Mutex // guards what follows
	until  time.Time  // the end of the second that is counted
	calls  int        // in that second, since the first failure
	bad    int
	inARow int
	off    bool // for good
}

// An absence is one time that the store is away.
type absence struct {
	since time.Time
	cause error // of the failure that was the last straw
	// err is what those get who are not answered otherwise: nothing was sent.
	err error
}

// succeeded counts a call that the store answered.
func (b *breaker) succeeded() {
	if !b.troubled.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inARow = 0
	if b.calls++; time.Now().After(b.until) {
		b.troubled.Store(false)
	}
}

// failed counts a call that it did not answer, and reports whether that makes it
// away from now on.
func (b *breaker) failed(cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.troubled.Load() || now.After(b.until) {
		b.troubled.Store(true)
		b.until, b.calls, b.bad = now.Add(judgedFor), 0, 0
	}
	b.calls++
	b.bad++
	b.inARow++
	if b.off || b.away.Load() != nil || b.inARow < failuresInARow && (b.calls < callsToJudge || 2*b.bad < b.calls) {
		return false
	}
	b.away.Store(&absence{now, cause, fmt.Errorf("%w: the store is away since %s: %v", weir.ErrNotApplied, now.UTC().Format(time.TimeOnly), cause)})
	return true
}

// close ends the absence.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inARow = 0
	b.troubled.Store(false)
	b.away.Store(nil)
}

// disable makes the breaker count nothing from now on.
func (b *breaker) disable() {
	b.mu.Lock()
	b.off = true
	b.mu.Unlock()
	b.close()
}
