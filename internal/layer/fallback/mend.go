package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// perCall is how many acts settle in one call.
	perCall = 64
	// callFor is how long such a call waits.
	callFor = 10 * time.Second
	// rest is how many times as long as a call the pause after it is, so that settling
	// takes a small part of the store's time.
	rest, restMin = 4, 2 * time.Millisecond
	// restFailed is the pause after a call that failed, and restMax the longest.
	restFailed, restMax = 20 * time.Millisecond, 200 * time.Millisecond
	// failuresAtStop is how many calls in a row may fail once Stop was called: a store
	// that was unreachable for a moment is waited for.
	failuresAtStop = 4
)

// mending is the work in the background.
type mending struct {
	mu      sync.Mutex // guards what follows
	running bool
	stopped bool
	out     int                // acts whose replies are awaited
	none    chan struct{}      // closed when there are none; nil if nobody waits
	done    chan struct{}      // closed when nothing runs
	ctx     context.Context    // of the calls of the store
	cut     context.CancelFunc // ends ctx
	ending  chan struct{}      // closed by Stop
}

func (m *mending) init() {
	m.done, m.ending = make(chan struct{}), make(chan struct{})
	close(m.done)
	m.ctx, m.cut = context.WithCancel(context.Background())
}

// begin counts an act whose reply is awaited.
func (m *mending) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out++
}

// end takes it out of the count.
func (m *mending) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out--; m.out == 0 && m.none != nil {
		close(m.none)
		m.none = nil
	}
}

// idle returns a channel that is closed when no reply is awaited.
func (m *mending) idle() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if m.none == nil {
		m.none = make(chan struct{})
	}
	return m.none
}

// wake has everything settled that there is, in the background.
func (t *Taker) wake() {
	m := &t.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running || m.ctx.Err() != nil {
		return
	}
	m.running, m.done = true, make(chan struct{})
	done := m.done
	go func() {
		defer close(done)
		t.mend()
	}()
}

// mend settles until nothing is left.
func (t *Taker) mend() {
	pause, units := restMin, t.counts.chargedBack.Load()
	// The outcomes of a batch come together, and may cancel each other out.
	t.pause(restMin)
	for failures := 0; !t.mended(); {
		began := time.Now()
		if err := t.settleSome(); err != nil {
			pause = min(restMax, restFailed<<failures)
			failures = min(failures+1, 10)
		} else {
			pause, failures = max(restMin, rest*time.Since(began)), 0
		}
		if !t.pause(pause) && failures > failuresAtStop {
			// There is no time left to wait for better.
			t.mending.cut()
		}
	}
	if more := t.counts.chargedBack.Load() - units; more > 0 {
		t.logger.Info("the store has recorded what was granted without it", "units", more, "doubtful_in_all", t.counts.doubtful.Load())
	}
}

// mended reports whether nothing is left to settle, and then nobody does it.
func (t *Taker) mended() bool {
	m := &t.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.owed() > 0 && m.ctx.Err() == nil {
		return false
	}
	m.running = false
	return true
}

// settleSome settles some of each: what is to be charged first, and then what is to go
// back, so that nobody else gets that meanwhile. Acts that certainly were not applied are
// tried again later, and amendments always.
func (t *Taker) settleSome() error {
	ctx, cancel := context.WithTimeout(t.mending.ctx, callFor)
	defer cancel()
	return errors.Join(t.settleIDs(ctx), t.settleDebts(ctx), t.settleReturns(ctx))
}

// askAlone asks the store in the background, where nobody else would survive its panic.
func (t *Taker) askAlone(ctx context.Context, acts []*weir.Act) {
	defer func() {
		if cause := recover(); cause != nil {
			t.logger.Error("the store panicked while it was told what was granted without it", "panic", cause)
			for _, a := range acts {
				a.Err = fmt.Errorf("weir: %v: %w: the store panicked", a.Kind, weir.ErrAmbiguous)
			}
		}
	}()
	t.next.Take(ctx, acts)
}

// again reports whether the store has certainly not applied an act.
func again(err error) bool {
	return errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured)
}

// settleDebts records units of keys.
func (t *Taker) settleDebts(ctx context.Context) error {
	acts := t.debts.collect(perCall, t.now())
	if len(acts) == 0 {
		return nil
	}
	t.askAlone(ctx, acts)
	return t.recorded(acts)
}

// recorded takes in what became of the records of debts.
func (t *Taker) recorded(acts []*weir.Act) error {
	var failure error
	for _, a := range acts {
		failure = errors.Join(failure, t.concluded(a, func(a *weir.Act) {
			c := &a.Charges[0]
			switch {
			case a.Err == nil:
				t.counts.chargedBack.Add(c.Cost)
				t.changed(c)
			case again(a.Err):
				t.debts.back(a, t.now())
			default:
				t.counts.doubtful.Add(c.Cost)
			}
			t.debts.done(c)
		}))
	}
	return failure
}

// settleReturns gives units back.
func (t *Taker) settleReturns(ctx context.Context) error {
	acts := t.returns.collect(perCall, t.following.any)
	if len(acts) == 0 {
		return nil
	}
	t.askAlone(ctx, acts)
	var failure error
	for _, a := range acts {
		failure = errors.Join(failure, t.concluded(a, func(a *weir.Act) {
			c := &a.Charges[0]
			switch {
			case a.Err == nil:
				t.counts.refunded.Add(a.Decisions[0].Granted)
				t.changed(c)
			case again(a.Err) && t.returns.add(a):
			default:
				t.counts.doubtful.Add(c.Cost)
			}
			t.returns.done(1)
		}))
	}
	return failure
}

// settleIDs amends takes.
func (t *Taker) settleIDs(ctx context.Context) error {
	all := t.ids.collect(perCall, t.now(), t.following.any)
	if len(all) == 0 {
		return nil
	}
	acts := make([]*weir.Act, len(all))
	for i := range all {
		acts[i] = all[i].Act
	}
	t.askAlone(ctx, acts)
	return t.amended(all)
}

// amended takes in what became of amendments.
func (t *Taker) amended(all []amendment) error {
	var failure error
	for _, a := range all {
		failure = errors.Join(failure, t.concluded(a.Act, func(reply *weir.Act) {
			t.ids.over(a.of)
			if reply.Err != nil && !errors.Is(reply.Err, weir.ErrInvalid) {
				return
			}
			t.counts.settled.Add(1)
			t.gone(a.of, a.changes)
			for i := range a.Charges {
				t.changed(&a.Charges[i])
			}
		}))
	}
	return failure
}

// concluded calls f with an act that was asked for in the background, once its outcome
// is known, and returns its error.
func (t *Taker) concluded(a *weir.Act, f func(*weir.Act)) error {
	err := a.Err
	var late weir.Pending
	if err == nil || !errors.As(err, &late) {
		f(a)
		return err
	}
	t.mending.begin()
	late.Then(func(reply *weir.Act) {
		defer t.mending.end()
		f(reply)
		t.wake()
	})
	return err
}

// pause waits, and reports false if Stop was called.
func (t *Taker) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.mending.ctx.Done():
	}
	select {
	case <-t.mending.ending:
		return false
	default:
		return true
	}
}

// Stop waits for late replies, and settles what is left, as far as ctx lasts. The error
// says how much the store has not recorded. Takes go on. It may be called again.
func (t *Taker) Stop(ctx context.Context) error {
	m := &t.mending
	select {
	case <-m.idle():
	case <-ctx.Done():
	}
	m.mu.Lock()
	if !m.stopped {
		m.stopped = true
		close(m.ending)
	}
	done := m.done
	m.mu.Unlock()
	defer context.AfterFunc(ctx, m.cut)()
	<-done
	m.cut()
	m.mu.Lock()
	out := m.out
	m.mu.Unlock()
	if n := t.debts.owing(t.now()) + t.ids.toAmend() + t.returns.len(); n > 0 || out > 0 {
		return fmt.Errorf("fallback: stop: the store was not told what was granted without it under %d keys and ids, and %d replies are missing", n, out)
	}
	return nil
}
