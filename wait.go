package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// minPause is the shortest pause between calls of a Taker that refuses without a wait.
const minPause = time.Millisecond

// Wait is WaitN for one unit.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN charges n units and returns nil once they may be used. It waits at most
// until the context's deadline, and never longer than the constant [MaxWait]. If it would
// have to wait longer, it charges nothing and returns a [*WaitError] at once. Other errors
// mean that no decision was reached, or are the context's. If the context is cancelled, WaitN
// refunds its booking as [Reservation.Cancel] does.
//
// Under limits that can be booked ahead (gcra, token_bucket, leaky_bucket) WaitN
// books: callers on all hosts get their turns in the order in which they asked,
// and the limit with the longest delay counts. If one of the limits is a window or has a Block,
// WaitN does not book. It takes, sleeps after a refusal for its RetryAfter, and tries again;
// callers that arrive in between may be faster. It does the same if the queue of a
// leaky_bucket is full. WaitN cannot wait for slots of a concurrency limit.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	end := time.Now().Add(MaxWait)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := max(0, time.Until(end).Truncate(time.Microsecond))
		r, err := l.Reserve(ctx, key, n, l.bookable(left))
		if err != nil {
			return err
		}
		if r.OK() {
			return r.wait(ctx)
		}
		if r.needed > left {
			return &WaitError{Need: r.needed, Have: left}
		}
		if err := sleep(ctx, max(minPause, r.decision.RetryAfter)); err != nil {
			return err
		}
	}
}

// bookable returns the part of a time that can be booked ahead.
func (l *Limiter) bookable(left time.Duration) time.Duration {
	if l.options != nil {
		return 0
	}
	for _, limit := range l.limits {
		if !algo.TraitsOf(limit.Algorithm).Books || limit.Block > 0 {
			return 0
		}
	}
	return left
}

// wait sleeps until the reservation is due, or cancels it.
func (r *Reservation) wait(ctx context.Context) error {
	err := sleep(ctx, r.Delay())
	if err == nil {
		return nil
	}
	if _, failed := r.Cancel(ctx); failed != nil {
		return fmt.Errorf("%w; what was booked stays charged: %w", err, failed)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A WaitError says that a wait would last longer than it may. Nothing was charged.
type WaitError struct {
	Need time.Duration // the necessary wait, or [Never]
	Have time.Duration // the time that was left to wait
}

// Error names the wait and the time that there is.
func (e *WaitError) Error() string {
	if e.Need == Never {
		return "weir: no wait is long enough: more than the limit ever grants at once"
	}
	return fmt.Sprintf("weir: a wait of %v is needed: want at most %v", e.Need, e.Have)
}

// RetryAfter returns the necessary wait, or [Never] if no wait is long enough.
func (e *WaitError) RetryAfter() time.Duration { return e.Need }
