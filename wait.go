package weir

import (
	"context"
	"fmt"
	"time"
)

const (
	// undoTimeout bounds giving a booking back for a caller that has gone.
	undoTimeout = time.Second
	// minPause keeps a Taker that refuses without a wait from being asked all
	// the time.
	minPause = time.Millisecond
)

// Wait is WaitN for one unit.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN charges n units and returns nil once they may be used. It waits at most
// until the context's deadline, and never longer than the constant [MaxWait].
// Where that cannot be met it returns at once: with an error that has a method
//
//	RetryAfter() time.Duration
//
// for how long it would have had to wait, [Never] if no wait is long enough, and
// has charged nothing. Other errors say that no decision was reached, or are the
// context's: a wait that is cancelled gives back what it booked, as
// [Reservation.Cancel] does.
//
// Under limits that can be booked ahead (gcra, token_bucket, leaky_bucket) it
// books: callers on all hosts get their turns in the order in which they asked,
// and the limit with the longest delay counts. Under windows, and sets of limits
// with a window among them, it takes; after a refusal it sleeps for as long as
// the refusal says and tries again, and those who come meanwhile may be faster.
// So it does where the queue of a leaky_bucket is full.
// Places of a concurrency limit cannot be waited for.
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
			return &lateError{need: r.needed, have: left}
		}
		if err := sleep(ctx, max(minPause, r.decision.RetryAfter)); err != nil {
			return err
		}
	}
}

// bookable is how much of a time can be booked ahead.
func (l *Limiter) bookable(left time.Duration) time.Duration {
	if l.options != nil {
		return 0
	}
	for _, limit := range l.limits {
		if !limit.Algorithm.Traits().Books {
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
	// The context that ended must not keep the booking from going back.
	undo, done := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer done()
	if _, failed := r.Cancel(undo); failed != nil {
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

// lateError says that a wait would last longer than it may.
type lateError struct{ need, have time.Duration }

// Error names the wait and the time that there is.
func (e *lateError) Error() string {
	if e.need == Never {
		return "weir: no wait is long enough: more than the limit ever grants at once"
	}
	return fmt.Sprintf("weir: a wait of %v is needed: want at most %v", e.need, e.have)
}

// RetryAfter is the wait that is needed.
func (e *lateError) RetryAfter() time.Duration { return e.need }
