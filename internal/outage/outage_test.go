package outage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newWatch returns a watch that is stopped with the test.
func newWatch(t *testing.T, o Options) *Watch {
	t.Helper()
	w := New(o)
	t.Cleanup(w.Stop)
	return w
}

// ticks has a node looked at so many times.
func (n *Node) ticks(times int, responsive bool) {
	for range times {
		n.tick(responsive, n.watch.limit)
	}
}

// awaitProbe waits for the outcome of a probe that is not judged yet.
func (n *Node) awaitProbe() {
	if n.doubt != nil {
		<-n.doubt.ctx.Done()
	}
}

// unanswered is a probe that its node leaves without an answer.
func unanswered(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }

// unwatched is a node whose watch never runs: the test looks.
func unwatched(t *testing.T) *Node {
	t.Helper()
	w := newWatch(t, Options{Probe: unanswered})
	w.asleep.Store(false)
	return w.Node("n")
}

// TestSilence: what befalls a node tick by tick, and whether it is out then.
func TestSilence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		do   func(n *Node, limit int)
		out  bool
	}{
		{"nothing was asked", func(n *Node, limit int) { n.ticks(10*limit, true) }, false},
		{"no reply", func(n *Node, limit int) { n.Begin(); n.ticks(limit+1+probePatience, true) }, true},
		{"no reply to a call, and the probe is not answered yet", func(n *Node, limit int) {
			n.Begin()
			n.ticks(limit+probePatience, true)
		}, false},
		{"no reply to a call, and the probe is answered", func(n *Node, limit int) {
			n.watch.Probe = func(context.Context, string) error { return nil }
			n.Begin()
			for range 20 {
				for n.doubt == nil {
					n.ticks(1, true)
				}
				n.awaitProbe()
				n.ticks(1, true)
			}
		}, false},
		{"no reply to a call, and the probe fails", func(n *Node, limit int) {
			n.watch.Probe = func(context.Context, string) error { return errors.New("connection refused") }
			n.Begin()
			n.ticks(limit+1, true)
			n.awaitProbe()
			n.ticks(1, true)
		}, true},
		{"a reply while the node is probed", func(n *Node, limit int) {
			for range 10 {
				n.Begin()
				n.ticks(limit+probePatience-1, true)
				n.Decided(n.Begin())
			}
		}, false},
		{"suspected, and the probe fails", func(n *Node, _ int) {
			n.watch.Probe = func(context.Context, string) error { return errors.New("connection refused") }
			n.Suspect()
			n.ticks(1, true)
			n.awaitProbe()
			n.ticks(1, true)
		}, true},
		{"suspected, and the probe is answered", func(n *Node, _ int) {
			n.watch.Probe = func(context.Context, string) error { return nil }
			n.Suspect()
			n.ticks(1, true)
			n.awaitProbe()
			n.ticks(100, true)
		}, false},
		{"no reply for longer than from a slow node", func(n *Node, limit int) {
			n.Begin()
			n.ticks(6, true)
			n.Decided(n.Begin())
			n.ticks(3*6+probePatience+1, true)
		}, true},
		{"slow as before", func(n *Node, limit int) {
			n.Begin()
			n.ticks(6, true)
			n.Decided(n.Begin())
			n.ticks(3*5+probePatience, true)
		}, false},
		{"slow once, long ago", func(n *Node, limit int) {
			n.Begin()
			n.ticks(limit-1, true)
			for range 1000 {
				n.Decided(n.Begin())
				n.ticks(1, true)
			}
			n.ticks(limit+probePatience, true)
		}, true},
		{"no reply ever from a node that was very slow", func(n *Node, limit int) {
			n.Begin()
			n.usual = 1000
			n.ticks(maxFactor*limit+probePatience+1, true)
		}, true},
		{"not for long enough", func(n *Node, limit int) { n.Begin(); n.ticks(limit, true) }, false},
		{"nothing could be heard", func(n *Node, limit int) { n.Begin(); n.ticks(10*(limit+probePatience), false) }, false},
		{"little could be heard", func(n *Node, limit int) {
			n.Begin()
			for range limit + probePatience - 1 {
				n.ticks(5, false)
				n.ticks(1, true)
			}
		}, false},
		{"a reply to another call", func(n *Node, limit int) {
			n.Begin()
			for range 10 {
				n.ticks(limit-1, true)
				n.Decided(n.Begin())
			}
		}, false},
		{"one call after the other, each answered", func(n *Node, limit int) {
			for range 10 {
				call := n.Begin()
				n.ticks(limit-1, true)
				n.Decided(call)
			}
		}, false},
		{"calls that come do not end the silence", func(n *Node, limit int) {
			for range limit + probePatience + 1 {
				n.Begin()
				n.ticks(1, true)
			}
		}, true},
		{"calls whose own time is over do not end it", func(n *Node, limit int) {
			for range limit + probePatience + 1 {
				call := n.Begin()
				n.ticks(1, true)
				n.TimedOut(call)
				n.ticks(3, true)
			}
		}, true},
		{"calls whose own time is over are no failures", func(n *Node, _ int) {
			for range 100 {
				n.TimedOut(n.Begin())
			}
		}, false},
		{"five refusals in a row", func(n *Node, _ int) { n.refuses(failuresInARow) }, true},
		{"four of them, a decision, four again", func(n *Node, _ int) {
			n.refuses(failuresInARow - 1)
			n.Decided(n.Begin())
			n.refuses(failuresInARow - 1)
		}, false},
		{"half of all calls lost", func(n *Node, _ int) {
			for range 100 {
				n.Lost(n.Begin(), errors.New("reset"))
				n.Decided(n.Begin())
			}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := unwatched(t)
			tc.do(n, n.watch.limit)
			if out := n.Outage(); (out != nil) != tc.out || n.watch.Any() != tc.out {
				t.Errorf("out: %v, any: %v", out, n.watch.Any())
			}
		})
	}
}

func (n *Node) refuses(times int) {
	for range times {
		n.Refused(n.Begin(), fmt.Errorf("%w: LOADING", weir.ErrNotApplied))
	}
}

// TestErrorsHaveNoClass: a call that had left when its node went out may have been
// applied.
func TestErrorsHaveNoClass(t *testing.T) {
	t.Parallel()
	n := unwatched(t)
	n.refuses(failuresInARow)
	if out := n.Outage(); out == nil || errors.Is(out, weir.ErrNotApplied) || out.Silent() || out.Error() == "" {
		t.Errorf("%v", out)
	}
}

// TestGenerations: what was in flight when an outage ended counts no more, whatever becomes of
// it.
func TestGenerations(t *testing.T) {
	t.Parallel()
	n := unwatched(t)
	early := n.Begin()
	lost := n.Begin()
	n.ticks(n.watch.limit+1+probePatience, true)
	if n.Outage() == nil {
		t.Fatal("not out")
	}
	n.Decided(early)
	if n.Outage() != nil {
		t.Fatal("a late reply did not end it")
	}
	if n.ticks(10*n.watch.limit, true); n.Outage() != nil {
		t.Error("a call of before is waited for")
	}
	now := n.Begin()
	n.Lost(lost, errors.New("reset"))
	if uint32(n.inFlight.Load()) != 1 {
		t.Errorf("in flight: %d", uint32(n.inFlight.Load()))
	}
	n.Decided(now)
	if uint32(n.inFlight.Load()) != 0 || n.watch.Outages() != 1 {
		t.Errorf("in flight: %d, outages: %d", uint32(n.inFlight.Load()), n.watch.Outages())
	}
}

// TestWatch: a node goes out by itself and is back by a probe, twice, and the watch goes
// to sleep in between.
func TestWatch(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	var probes atomic.Int64
	w := newWatch(t, Options{
		Silence: 2 * Tick,
		Probe: func(_ context.Context, node string) error {
			if probes.Add(1); node != "n" {
				t.Errorf("probed %q", node)
			}
			if well.Load() {
				return nil
			}
			return weir.ErrAmbiguous
		},
	})
	n := w.Node("n")
	for range 2 {
		well.Store(false)
		n.Begin()
		testserver.Eventually(t, "out", func() bool { return n.Outage() != nil && n.Outage().Silent() })
		before := probes.Load()
		testserver.Eventually(t, "probed", func() bool { return probes.Load() > before+1 })
		well.Store(true)
		testserver.Eventually(t, "back", func() bool { return n.Outage() == nil && !w.Any() })
		testserver.Eventually(t, "asleep", func() bool { return w.asleep.Load() })
	}
	if w.Outages() != 2 {
		t.Errorf("%d outages", w.Outages())
	}
}

// TestNodesFailByThemselves.
func TestNodesFailByThemselves(t *testing.T) {
	t.Parallel()
	w := newWatch(t, Options{Silence: 2 * Tick, Probe: unanswered})
	bad, good := w.Node("bad"), w.Node("good")
	bad.Begin()
	testserver.Eventually(t, "out", func() bool { good.Decided(good.Begin()); return bad.Outage() != nil })
	if good.Outage() != nil {
		t.Error(good.Outage())
	}
	for i := range 2 * maxNodes {
		w.Node(fmt.Sprint(i))
	}
	if n := len(w.Nodes()); n > maxNodes+1 {
		t.Errorf("%d nodes", n)
	}
}

// TestResponsive: a reply or an echo since the last tick shows that replies can be received,
// and an older one does not.
func TestResponsive(t *testing.T) {
	t.Parallel()
	n := unwatched(t)
	w := n.watch
	if !w.echo.open() {
		t.Fatal("no pipe")
	}
	t.Cleanup(w.echo.close)
	back := func() bool { return w.echo.received.Load() == w.echo.sent }
	for i, tc := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"an echo", func() { testserver.Eventually(t, "back", back) }, true},
		{"a reply", n.replied, true},
		{"another one", n.replied, true},
		{"old ones", func() { testserver.Eventually(t, "back", back) }, false},
		{"an echo again", func() { testserver.Eventually(t, "back", back) }, true},
		{"a reply that is not the last one awaited", func() { n.replied(); testserver.Eventually(t, "back", back); w.WholeTick() }, true},
		{"the same, later", func() { n.replied(); w.echo.received.Add(-1) }, false},
	} {
		if tc.do(); w.responsive() != tc.want {
			t.Errorf("%d, %s: got %v", i, tc.what, !tc.want)
		}
	}
}

// TestWholeTick returns once this process was able to hear for a tick.
func TestWholeTick(t *testing.T) {
	t.Parallel()
	w := newWatch(t, Options{Probe: unanswered})
	<-w.WholeTick() // nobody watches
	call := w.Node("n").Begin()
	for range 3 {
		began := time.Now()
		<-w.WholeTick()
		if d := time.Since(began); d < Tick/2 {
			t.Errorf("after %v", d)
		}
	}
	w.Node("n").Decided(call)
	waiting := w.WholeTick()
	w.Stop()
	<-waiting
}

// TestFarAway: a node that takes longer to answer than a probe usually may is asked with
// patience, once at a time, beside the others.
func TestFarAway(t *testing.T) {
	t.Parallel()
	var asked, patient atomic.Int64
	w := newWatch(t, Options{Probe: func(ctx context.Context, _ string) error {
		asked.Add(1)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) < patientProbe/2 {
			<-ctx.Done()
			return weir.ErrAmbiguous
		}
		if n := patient.Add(1); n > 1 {
			t.Errorf("%d probes with patience", n)
		}
		for asked.Load() < 4 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}})
	n := w.Node("n")
	n.refuses(failuresInARow)
	testserver.Eventually(t, "back", func() bool { return n.Outage() == nil })
	if patient.Load() != 1 {
		t.Errorf("%d probes with patience, want 1", patient.Load())
	}
}

// TestStop ends probes that hang, may be called again, and what comes later is asked.
func TestStop(t *testing.T) {
	t.Parallel()
	w := New(Options{Probe: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }})
	n := w.Node("n")
	n.refuses(failuresInARow)
	if n.Outage() == nil {
		t.Fatal("not out")
	}
	w.Stop()
	w.Stop()
	if n.refuses(failuresInARow); n.Outage() != nil || w.Any() {
		t.Error(n.Outage())
	}
	n.Begin()
	if !w.asleep.Load() {
		t.Error("it watches")
	}
}

// TestRace has everything done at once.
func TestRace(t *testing.T) {
	t.Parallel()
	w := newWatch(t, Options{Silence: Tick, Probe: func(context.Context, string) error { return nil }, OnTick: func(bool) bool { return false }})
	var doing sync.WaitGroup
	end := time.Now().Add(200 * time.Millisecond)
	for i := range 8 {
		doing.Go(func() {
			for n := w.Node(fmt.Sprint(i % 3)); time.Now().Before(end); time.Sleep(time.Millisecond) {
				first, second := n.Begin(), n.Begin()
				switch i % 4 {
				case 0:
					n.Lost(first, weir.ErrAmbiguous)
				case 1:
					n.Refused(first, weir.ErrNotApplied)
				case 2:
					n.TimedOut(first)
				}
				n.Suspect()
				n.Decided(second)
				_, _ = n.Outage(), w.Nodes()
			}
		})
	}
	doing.Wait()
}

// TestErrorText holds that the class of the call that met the cause is not in the text.
func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	for _, err := range []error{
		cause,
		fmt.Errorf("%w: %w", weir.ErrNotApplied, cause),
		fmt.Errorf("weir: take: %w", fmt.Errorf("%w: %w", weir.ErrAmbiguous, cause)),
		fmt.Errorf("weir: take: %w: %w", weir.ErrMisconfigured, cause),
	} {
		out := &Error{Node: "a:1", Since: time.Unix(0, 0), Cause: err}
		if got := out.Error(); got != "the store a:1 is unreachable since 1970-01-01T00:00:00Z: connection refused" {
			t.Errorf("%v: %s", err, got)
		}
	}
	probed := fmt.Errorf("%w for 55ms: %w", ErrSilent, fmt.Errorf("weir: take: %w: %w", weir.ErrNotApplied, cause))
	if got := (&Error{Since: time.Unix(0, 0), Cause: probed}).Error(); got != "the store is unreachable since 1970-01-01T00:00:00Z: no reply for 55ms: connection refused" {
		t.Error(got)
	}
	if err := fmt.Errorf("probe: %w", cause); classless(err) != err {
		t.Error("an error without a class was changed")
	}
}

// TestLog: every outage begins and ends in the log, once, with its node; of a node that goes
// out again and again, so many in a minute.
func TestLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&text, nil))
		w := New(Options{
			Probe:  func(context.Context, string) error { return errors.New("connection refused") },
			Logger: logger, Responsive: func() bool { return true },
		})
		n := w.Node("redis:6379")
		flap := func(times int) (begun, ended int, log string) {
			text.Reset()
			for range times {
				n.refuses(failuresInARow)
				synctest.Wait()
				n.Decided(n.Begin())
				synctest.Wait()
			}
			log = text.String()
			return strings.Count(log, `msg="the store is unreachable" node=redis:6379`), strings.Count(log, `msg="the store is reachable again" node=redis:6379`), log
		}
		if begun, ended, log := flap(maxLogged + 3); begun != maxLogged || ended != maxLogged {
			t.Errorf("%d begin and %d end, want %d: %s", begun, ended, maxLogged, log)
		}
		time.Sleep(logPeriod + time.Second)
		if begun, ended, log := flap(2); begun != 2 || ended != 2 || !strings.Contains(log, "outages_not_logged=3") {
			t.Errorf("%d begin and %d end, want 2: %s", begun, ended, log)
		}
		w.Stop()
	})
}
