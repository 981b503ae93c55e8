package storetest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that tests set. Its zero value stands at 1970; NewClock's
// stands at an ordinary day. It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that stands at noon of 2025-06-15 UTC.
func NewClock() *Clock {
	c := new(Clock)
	c.Set(time.Date(2025, 6, 15, 12, 0, 0, 0, time.UTC))
	return c
}

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Micros is the time that the clock shows, in µs since 1970.
func (c *Clock) Micros() int64 { return c.micros.Load() }

// Set makes the clock show t.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock, back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
