package clock

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// window is how many ticks the counter is gone by after a reading of the system's
	// clock: 50 … 130 µs.
	window = 1 << 18
	// prompt is how many ticks a reading of the system's clock takes at most to be
	// counted from.
	prompt = 1 << 10
	// behind is the part by which the counter's time is told to run slow. That is more
	// than the system's clock is ever slowed down to be put right (1/2000), so that
	// time goes on when the clock is read again, and never back.
	behind = 512
	// learning is how long, in ns, the pace of the counter is measured.
	learning = 10_000_000
	// astray is how far, in ns, the counter's time may be off before it is given up.
	astray = 2000
)

// A gauge tells nanoseconds by a counter of ticks, which it puts right by the system's
// clock. The zero value is ready for use.
type gauge struct {
	until  atomic.Int64  // the tick up to which offset holds; 0: none
	offset atomic.Int64  // ns at tick 0
	scale  atomic.Uint64 // ns a tick, in 2⁶⁴ths; set once
	over   atomic.Bool   // the counter was found astray, and is not gone by any more

	mu                      sync.Mutex // guards what follows, and changes of the above
	firstTicks, firstSystem int64
}

// holds reports whether a tick lies in the window.
func (g *gauge) holds(ticks int64) bool { return uint64(g.until.Load()-ticks) < window }

// at is the time at a tick of the window.
func (g *gauge) at(ticks int64) int64 {
	nanos, _ := bits.Mul64(uint64(ticks), g.scale.Load())
	return g.offset.Load() + int64(nanos)
}

// read asks the system, and has the counter gone by for a window. Ticks are those
// of a moment ago.
func (g *gauge) read(ticks int64) int64 {
	now := system()
	if g.over.Load() || !g.mu.TryLock() {
		return now
	}
	defer g.mu.Unlock()
	if after := counter(); after-ticks < prompt {
		g.set(now, after)
	}
	return now
}

// set files a reading of the system's clock, which was made just before a tick.
func (g *gauge) set(now, ticks int64) {
	if g.scale.Load() == 0 && !g.learn(now, ticks) {
		return
	}
	if uint64(ticks-g.until.Load()) < window {
		// The counter's time still means something: it must not have gone astray, and
		// does not go back.
		told := g.at(ticks)
		if told > now+astray || told < now-astray {
			g.over.Store(true)
			g.until.Store(0)
			return
		}
		now = max(now, told)
	}
	nanos, _ := bits.Mul64(uint64(ticks), g.scale.Load())
	g.offset.Store(now - int64(nanos) - 1) // what at rounds down must not make it more
	g.until.Store(ticks + window)
}

// learn measures the pace of the counter, and reports whether it is known.
func (g *gauge) learn(now, ticks int64) bool {
	elapsed, passed := now-g.firstSystem, ticks-g.firstTicks
	switch {
	case g.firstTicks == 0 || passed <= 0:
		g.firstTicks, g.firstSystem = ticks, now
		return false
	case elapsed < learning:
		return false
	case elapsed >= passed: // no processor ticks so slowly
		g.over.Store(true)
		return false
	}
	scale, _ := bits.Div64(uint64(elapsed), 0, uint64(passed))
	g.scale.Store(scale - scale/behind)
	return true
}
