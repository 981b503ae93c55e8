package clock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestNanos holds the clock against the system's, read before and after, from several
// goroutines, until the counter has been gone by.
func TestNanos(t *testing.T) {
	t.Parallel()
	c := New()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for time.Since(c.Start()) < 100*time.Millisecond || steady && machine.until.Load() == 0 && !machine.over.Load() {
				before := time.Since(c.Start()).Nanoseconds()
				got := c.Nanos()
				if after := time.Since(c.Start()).Nanoseconds(); got < before-1000 || got > after {
					t.Errorf("%d ns, between %d and %d of the system's clock", got, before, after)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New()
		time.Sleep(time.Hour)
		if got := c.Nanos(); got != time.Hour.Nanoseconds() {
			t.Errorf("%d ns", got)
		}
	})
}

// world is a machine whose system clock runs up to 1/2000 faster or slower than it
// did, as one that is being put right, beside a counter.
type world struct {
	g                   gauge
	ticks, gone, system int64 // gone: the system's ns, in 1/perTick ns
}

const (
	perTick = 1_000_000 // parts of a ns
	pace    = 476_190   // of those a tick: 2.1 GHz
)

func (w *world) pass(ticks, ppm int64) {
	w.ticks += ticks
	w.gone += ticks * (pace + pace*ppm/1_000_000)
	w.system = w.gone / perTick
}

// read is what Nanos does.
func (w *world) read(late int64) int64 {
	if w.g.holds(w.ticks) {
		return w.g.at(w.ticks)
	}
	now := w.system
	w.pass(late, 0)
	if !w.g.over.Load() {
		w.g.set(now, w.ticks)
	}
	return now
}

// TestGauge holds a gauge to its promise under all that a clock may be put right by.
func TestGauge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{ticks: rapid.Int64Range(1, 1<<62).Draw(t, "ticks at first")}
		ppm := func() int64 { return rapid.Int64Range(-500, 500).Draw(t, "ppm") }
		w.read(0)
		w.pass(100_000_000, ppm())
		w.read(0)
		if w.g.scale.Load() == 0 {
			t.Fatal("no pace was learned")
		}
		for last := w.system; ; {
			w.pass(rapid.Int64Range(1, 3*window).Draw(t, "ticks"), ppm())
			before := w.system
			got := w.read(rapid.Int64Range(0, prompt-1).Draw(t, "late"))
			if got > before || got < before-1000 {
				t.Fatalf("%d at %d", got, before)
			}
			if got < last-1000 {
				t.Fatalf("%d after %d", got, last)
			}
			if last = got; rapid.IntRange(0, 30).Draw(t, "end") == 0 {
				break
			}
		}
		if w.g.over.Load() {
			t.Fatal("a good counter was given up")
		}
	})
}

// TestAstray: a counter that changes its pace is given up for good.
func TestAstray(t *testing.T) {
	t.Parallel()
	w := world{ticks: 1}
	for range 100 {
		w.pass(1_000_000, 0)
		w.read(0)
	}
	for range 4 {
		w.pass(window*5/4, 100_000) // a tenth slower than it was
		w.read(0)
	}
	if w.pass(1, 0); !w.g.over.Load() || w.read(0) != w.system {
		t.Errorf("over: %v; %d at %d", w.g.over.Load(), w.read(0), w.system)
	}
}

// TestStandstill: where the counter goes on while the system's clock stands still, as
// in a machine that sleeps, and the other way round, the clock is right again at once.
func TestStandstill(t *testing.T) {
	t.Parallel()
	w := world{ticks: 1}
	w.read(0)
	w.pass(100_000_000, 0)
	w.read(0)
	w.ticks += 1 << 50
	if got := w.read(0); got != w.system {
		t.Errorf("after a sleep: %d at %d", got, w.system)
	}
	w.ticks = 1 << 20
	if got := w.read(0); got != w.system {
		t.Errorf("after a sleep in which the counter began anew: %d at %d", got, w.system)
	}
	w.pass(window/2, 0)
	if got := w.read(0); got > w.system || got < w.system-1000 || w.g.over.Load() {
		t.Errorf("%d at %d", got, w.system)
	}
}

func BenchmarkNanos(b *testing.B) {
	c := New()
	for b.Loop() {
		c.Nanos()
	}
}

func BenchmarkSince(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		time.Since(start)
	}
}
