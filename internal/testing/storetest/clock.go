package storetest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that tests set. Its zero value starts at 1970; use [NewClock] for an
// ordinary day. It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that shows noon of 2025-06-15 UTC.
func NewClock() *Clock {
	c := new(Clock)
	c.Set(time.Date(2025, 6, 15, 12, 0, 0, 0, time.UTC))
	return c
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Micros returns the time that the clock shows, in µs since 1970.
func (c *Clock) Micros() int64 { return c.micros.Load() }

// Set makes the clock show t.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
