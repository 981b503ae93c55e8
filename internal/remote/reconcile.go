package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

const (
	// actsPerCall and callTimeout bound a call that reconciles.
	actsPerCall = 64
	callTimeout = 10 * time.Second
	// A pause after a call is pauseFactor times as long as the call, at least minPause, so
	// that reconciling takes a small part of the store's time.
	pauseFactor, minPause = 4, 2 * time.Millisecond
	// firstRetry is the pause after a call that failed, maxRetry the longest.
	firstRetry, maxRetry = 20 * time.Millisecond, 200 * time.Millisecond
	// failuresAtStop is how many calls in a row may fail once Stop was called: a short
	// outage is waited for.
	failuresAtStop = 4
)

// A reconciler is the state of the background work.
type reconciler struct {
	awaited  atomic.Int64       // acts whose replies are awaited
	ctx      context.Context    // of the calls of the store
	cancel   context.CancelFunc // ends ctx
	stop     sync.Once
	stopping chan struct{} // closed by Stop

	mu      sync.Mutex // guards what follows
	running bool
	done    chan struct{} // closed when nothing runs
}

func newReconciler() *reconciler {
	r := &reconciler{done: make(chan struct{}), stopping: make(chan struct{})}
	close(r.done)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// wake starts reconciling in the background, unless it runs.
func (l *Remote) wake() {
	r := l.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running || r.ctx.Err() != nil {
		return
	}
	r.running, r.done = true, make(chan struct{})
	done := r.done
	go func() {
		defer close(done)
		l.reconcile()
	}()
}

// reconcile works until nothing is outstanding.
func (l *Remote) reconcile() {
	pause, before := minPause, l.counts.recorded.Load()
	// Outcomes of one batch come together and may cancel each other.
	l.pause(minPause)
	for failures := 0; !l.finished(); {
		began := time.Now()
		if err := l.reconcileSome(); err != nil {
			pause = min(maxRetry, firstRetry<<failures)
			failures = min(failures+1, 10)
		} else {
			pause, failures = max(minPause, pauseFactor*time.Since(began)), 0
		}
		if !l.pause(pause) && failures > failuresAtStop {
			l.reconciler.cancel()
		}
	}
	if units := l.counts.recorded.Load() - before; units > 0 {
		l.Logger.Info("the store has recorded units granted without it", "units", units, "doubtful_total", l.counts.doubtful.Load())
	}
}

// finished reports whether nothing is outstanding; then the work is over.
func (l *Remote) finished() bool {
	r := l.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.unreconciled() > 0 && r.ctx.Err() == nil {
		return false
	}
	r.running = false
	return true
}

// pause waits. It returns false if Stop was called.
func (l *Remote) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.reconciler.ctx.Done():
	}
	select {
	case <-l.reconciler.stopping:
		return false
	default:
		return true
	}
}

// reconcileSome reconciles some takes, charges and refunds, the refunds last, so that no
// other caller takes the units in between. Acts that were certainly not applied are tried
// again later, and amendments always.
func (l *Remote) reconcileSome() error {
	ctx, cancel := context.WithTimeout(l.reconciler.ctx, callTimeout)
	defer cancel()
	return errors.Join(l.amendTakes(ctx), l.recordOutstanding(ctx), l.sendRefunds(ctx), l.deliver(ctx))
}

// errPanicked is the error of acts whose outcome a panic of the store left unknown.
var errPanicked = fmt.Errorf("weir: %w: the store panicked", weir.ErrAmbiguous)

// takeAndRecover asks the store in the background, where a panic would end the process.
func (l *Remote) takeAndRecover(ctx context.Context, acts []*weir.Act) {
	defer func() {
		if cause := recover(); cause != nil {
			l.Logger.Error("the store panicked while units granted without it were recorded", "panic", cause)
			for _, a := range acts {
				a.Err = errPanicked
			}
		}
	}()
	l.calls.Take(ctx, acts)
}

// notApplied reports whether the store has certainly not applied an act.
func notApplied(err error) bool {
	return errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured)
}

func (l *Remote) recordOutstanding(ctx context.Context) error {
	acts := l.outstanding.collect(actsPerCall, l.now())
	l.takeAndRecover(ctx, acts)
	return l.recorded(acts)
}

// recorded handles the outcomes of acts that record outstanding charges.
func (l *Remote) recorded(acts []*weir.Act) error {
	return l.conclude(acts, func(_ int, a *weir.Act) {
		c := &a.Charges[0]
		switch {
		case a.Err == nil:
			l.counts.recorded.Add(c.Cost)
			l.Reconciled(c)
		case notApplied(a.Err):
			l.outstanding.restore(a, l.now())
		default:
			l.counts.doubtful.Add(c.Cost)
		}
		l.outstanding.done(c)
	})
}

func (l *Remote) sendRefunds(ctx context.Context) error {
	acts := l.refunds.collect(actsPerCall, l.awaited.any)
	l.takeAndRecover(ctx, acts)
	return l.conclude(acts, func(_ int, a *weir.Act) {
		c := &a.Charges[0]
		switch {
		case a.Err == nil:
			l.counts.refunded.Add(a.Decisions[0].Granted)
			l.Reconciled(c)
		case notApplied(a.Err) && l.refunds.add(a):
		default:
			l.counts.doubtful.Add(c.Cost)
		}
		l.refunds.done()
	})
}

func (l *Remote) amendTakes(ctx context.Context) error {
	all := l.ids.collect(actsPerCall, l.now(), l.awaited.any)
	l.takeAndRecover(ctx, actsOf(all))
	return l.amended(all)
}

func actsOf(all []amendment) []*weir.Act {
	acts := make([]*weir.Act, len(all))
	for i := range all {
		acts[i] = all[i].Act
	}
	return acts
}

// amended handles the outcomes of amendments.
func (l *Remote) amended(all []amendment) error {
	return l.conclude(actsOf(all), func(i int, reply *weir.Act) {
		a := all[i]
		l.ids.replyTo(a.of)
		if undecided(reply) {
			return
		}
		l.counts.reconciled.Add(1)
		l.release(a.of, a.changes)
		for j := range a.Charges {
			l.Reconciled(&a.Charges[j])
		}
	})
}

// conclude calls f with each act and its index once its outcome is known, which may be
// later. It returns the errors of the acts.
func (l *Remote) conclude(all []*weir.Act, f func(i int, outcome *weir.Act)) error {
	var failure error
	for i, a := range all {
		failure = errors.Join(failure, a.Err)
		var late acts.Pending
		if !errors.As(a.Err, &late) {
			f(i, a)
			continue
		}
		l.reconciler.awaited.Add(1)
		late.Then(func(reply *weir.Act) {
			defer l.reconciler.awaited.Add(-1)
			f(i, reply)
			l.wake()
		})
	}
	return failure
}

// Stop waits for late replies and calls in flight, and reconciles outstanding charges, until
// ctx ends. The error counts the charges that the store has not recorded. Takes are still
// answered, and ask the store whether it is reachable or not. Stop may be called again.
func (l *Remote) Stop(ctx context.Context) error {
	return errors.Join(l.settleUp(ctx), l.calls.Stop(ctx))
}

// settleUp waits for late replies and reconciles.
func (l *Remote) settleUp(ctx context.Context) error {
	r := l.reconciler
	for r.awaited.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(minPause):
		case <-ctx.Done():
		}
	}
	r.stop.Do(func() { close(r.stopping) })
	r.mu.Lock()
	done := r.done
	r.mu.Unlock()
	defer context.AfterFunc(ctx, r.cancel)()
	<-done
	r.cancel()
	awaited := r.awaited.Load()
	n, ends := l.outstanding.positive(l.now())+l.ids.len()+l.refunds.len(), l.deliveries.len()
	if n > 0 || ends > 0 || awaited > 0 {
		return fmt.Errorf("weir: stop: charges under %d keys and IDs are not recorded in the store, %d releases and settlements are not delivered, and %d replies are missing", n, ends, awaited)
	}
	return nil
}
