// Package clock measures what the monotonic clock does, for about half of what that
// costs: from a reading of the system's clock it counts on with the processor's time
// stamp counter for a tenth of a millisecond, where the processor has one that never
// changes its pace. Elsewhere it reads the system's clock.
package clock

import "time"

// A Clock tells how long ago it was made. It is a value that may be copied, and is
// safe for concurrent use. Create it with New.
type Clock struct {
	start time.Time
	begun int64 // start by the gauge
	plain bool  // goes by the system's clock alone
}

// gauged is the instant at which the process's gauge stands at zero.
var gauged = time.Now()

// machine is the process's gauge.
var machine gauge

// New returns a Clock that stands at zero. In a bubble of testing/synctest, where
// time is made up, it is the bubble's.
func New() Clock {
	c := Clock{start: time.Now()}
	// Bubbles begin with the year 2000. A machine whose clock was never set does so as
	// well, and just reads its clock at the full price.
	c.plain = !steady || c.start.Year() <= 2000
	if !c.plain {
		c.begun = c.start.Sub(gauged).Nanoseconds()
	}
	return c
}

// Start is when the clock was made.
func (c *Clock) Start() time.Time { return c.start }

// Nanos is how many nanoseconds have passed since New, which is never more than the
// system's clock says and less than a microsecond less. So of two readings, the later
// one may be less than a microsecond below the earlier.
func (c *Clock) Nanos() int64 {
	if c.plain {
		return time.Since(c.start).Nanoseconds()
	}
	ticks := counter()
	if machine.holds(ticks) {
		return machine.at(ticks) - c.begun
	}
	return machine.read(ticks) - c.begun
}

// system reads the system's clock as the gauge tells it.
func system() int64 { return time.Since(gauged).Nanoseconds() }
