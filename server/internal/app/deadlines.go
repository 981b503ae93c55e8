package app

import (
	"net"
	"sync"
	"time"
)

// An unhurried connection sets its deadlines seldom. net/http moves them seven times
// a request, nearly always further away, and each move costs what a timer does. One
// that is too early is left in place; when it comes, it is moved.
type unhurried struct {
	*counted
	read, write deadline
}

func newUnhurried(c *counted) *unhurried {
	return &unhurried{counted: c, read: deadline{arm: c.SetReadDeadline}, write: deadline{arm: c.SetWriteDeadline}}
}

// Read reads until the deadline that was set last.
func (u *unhurried) Read(p []byte) (int, error) {
	for {
		n, err := u.counted.Read(p)
		if err == nil || n > 0 || !u.read.early(err) {
			return n, err
		}
	}
}

// Write writes until the deadline that was set last.
func (u *unhurried) Write(p []byte) (int, error) {
	written := 0
	for {
		n, err := u.counted.Write(p[written:])
		written += n
		if err == nil || !u.write.early(err) {
			return written, err
		}
	}
}

// SetReadDeadline moves the deadline of Read.
func (u *unhurried) SetReadDeadline(t time.Time) error { return u.read.set(t) }

// SetWriteDeadline moves the deadline of Write.
func (u *unhurried) SetWriteDeadline(t time.Time) error { return u.write.set(t) }

// SetDeadline moves both.
func (u *unhurried) SetDeadline(t time.Time) error {
	if err := u.read.set(t); err != nil {
		return err
	}
	return u.write.set(t)
}

// A deadline is when a connection gives up.
type deadline struct {
	arm func(time.Time) error

	mu     sync.Mutex
	wanted time.Time // zero: never
	armed  time.Time // no later than wanted
}

// longAgo is after the instants that interrupt what is under way, and before all
// others.
var longAgo = time.Unix(1e9, 0)

// set moves the deadline.
func (d *deadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	switch {
	case !d.armed.IsZero() && d.armed.Before(longAgo):
		// After an interruption a deadline that none of the next request's is earlier
		// than.
		return d.put(earlier(t, time.Now().Add(readHeaderTimeout)))
	case t.IsZero() || !d.armed.IsZero() && !t.Before(d.armed):
		return nil
	}
	return d.put(t)
}

// early reports whether an error is due to a deadline that has been moved since, and
// puts the connection right.
func (d *deadline) early(err error) bool {
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !time.Now().Before(d.wanted) {
		return false
	}
	return d.put(d.wanted) == nil
}

func (d *deadline) put(t time.Time) error {
	d.armed = t
	return d.arm(t)
}

// earlier returns the earlier one of a deadline, zero for none, and an instant.
func earlier(deadline, instant time.Time) time.Time {
	if deadline.IsZero() || instant.Before(deadline) {
		return instant
	}
	return deadline
}
