package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	watch "github.com/weirlimit/weir/internal/outage"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A fault is something that happens to a store while callers ask, and what is
// promised for it beside what the oracles demand.
type fault struct {
	name    string
	promise string
	makeup  makeup
	// strike does it once, and returns when it is over.
	strike func(*world)
	// wanted is what most callers are told meanwhile, instead of an answer: if
	// nobody gets none, the fault proved nothing. Granted, where nobody may notice.
	wanted outcome
}

const struck = 250 * time.Millisecond // how long a fault lasts

// faults are all that happens to one Redis.
var faults = []fault{
	{"no fault", "every promise of the contract", makeup{}, func(*world) { time.Sleep(struck) }, granted},
	{"connection refused", "nothing charged that was not granted", makeup{}, network(testserver.Refuse), unknown},
	{"reply dropped", "charged once or unknown, ids once", makeup{}, network(testserver.Drop), unknown},
	{"connection reset", "charged once or unknown, ids once", makeup{}, network(testserver.Reset), unknown},
	{"reply cut", "charged once or unknown, ids once", makeup{}, network(testserver.Cut), unknown},
	{"reply late", "charged once or unknown, ids once", makeup{}, network(testserver.Delay), unknown},
	{"request late", "charged once or unknown, ids once", makeup{}, network(testserver.Late), unknown},
	{"10 ms slow", "no error", makeup{}, slow(10 * time.Millisecond), granted},
	{"SIGSTOP", "no answer from a store that is away", makeup{}, suspend, unknown},
	{"kill -9, AOF always", "nothing granted is lost", makeup{args: kept}, killed, unknown},
	{"kill -9, restart empty", "at most one more limit a restart", makeup{}, forgotten, unknown},
	{"FLUSHALL", "at most one more limit each time", makeup{}, flushed, granted},
	{"SCRIPT FLUSH every 10 ms", "no error", makeup{}, scriptless, granted},
	{"clock 1 h back", "nothing granted for it, no lock-out", makeup{clock: true}, stepped(-time.Hour), granted},
	{"clock 1 h forward", "at most one more burst", makeup{clock: true}, stepped(time.Hour), granted},
	{"OOM", "not applied is not charged", makeup{}, outOfMemory, unapplied},
}

var kept = []string{"--appendonly", "yes", "--appendfsync", "always"}

// TestFaults has callers ask every algorithm while each fault strikes.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, f.run)
	}
}

func (f *fault) run(t *testing.T) {
	t.Parallel()
	w := newWorld(t, f.makeup)
	control := startControl(func() { _ = w.admin.Ping(context.Background()).Err() })
	verdicts := w.run(rounds(), f.strike)
	machine := control.end()
	if w.server.Torn() {
		t.Skip("Redis restored a part of a script: what it holds proves nothing")
	}
	r := row{fault: f.name, promise: f.promise, measured: w.summary()}
	for name, err := range verdicts {
		if err != nil {
			r.fail(t, "%s: %v", name, err)
		}
	}
	if f.wanted != granted && w.history.count(unapplied)+w.history.count(unknown) == 0 {
		r.fail(t, "nobody noticed it")
	}
	if f.wanted == granted && w.intolerable(machine) != nil {
		r.fail(t, "errors where none are allowed: %v; this machine was up to %v late", w.intolerable(machine), machine)
	}
	report(r)
}

// intolerable is an error that a busy machine does not explain; nil if there is none. On
// one, the patience of callers ends, and a Redis that is not run for as long as the
// watch allows it to be silent is unreachable.
func (w *world) intolerable(machine time.Duration) error {
	for _, o := range w.history.ops {
		var unreachable *watch.Error
		silent := errors.As(o.err, &unreachable) && machine > watch.DefaultSilence/2
		if o.err != nil && !late(o.err) && !silent {
			return o.err
		}
	}
	return nil
}

func late(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

func (w *world) summary() string {
	h := w.history
	text := fmt.Sprintf("%d asked: %d granted, %d refused, %d not applied, %d unknown",
		len(h.ops), h.count(granted), h.count(refused), h.count(unapplied), h.count(unknown))
	if w.back.missing(w.ask) == "" {
		text += fmt.Sprintf("; all granted again after %v", time.Duration(w.back.last()-h.healed.Load()).Round(time.Millisecond))
	}
	return text
}

// network afflicts one request in five.
func network(f testserver.Fault) func(*world) {
	return func(w *world) {
		afflict := func([]byte) testserver.Fault {
			if rand.IntN(5) == 0 {
				return f
			}
			return testserver.Pass
		}
		w.proxied.Store(&afflict)
		time.Sleep(struck)
		w.proxied.Store(&calm)
	}
}

func slow(d time.Duration) func(*world) {
	return func(w *world) {
		wait := func([]byte) testserver.Fault { time.Sleep(d); return testserver.Pass }
		w.proxied.Store(&wait)
		time.Sleep(struck)
		w.proxied.Store(&calm)
	}
}

func suspend(w *world) {
	w.server.Pause()
	back := w.history.absent()
	time.Sleep(struck)
	back()
	w.server.Resume()
}

func killed(w *world) {
	w.server.Kill()
	back := w.history.absent()
	time.Sleep(struck / 5)
	back()
	w.server.Restart()
}

func forgotten(w *world) {
	w.history.lose()
	killed(w)
}

func flushed(w *world) {
	w.history.lose()
	w.do("flushall")
}

// scriptless has Redis forget the scripts over and over.
func scriptless(w *world) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for end := time.Now().Add(struck); time.Now().Before(end); <-pace.C {
		w.do("script", "flush")
	}
}

// outOfMemory has Redis refuse to write.
func outOfMemory(w *world) {
	w.do("config", "set", "maxmemory", "1")
	time.Sleep(struck)
	w.do("config", "set", "maxmemory", "0")
}
