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
	"github.com/weirlimit/weir/internal/outage"
)

const (
	// actsPerCall and callTimeout bound a call that pays debts.
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

// errHere says that the take that an act is about was granted here.
var errHere = fmt.Errorf("%w: the take was granted without the store", weir.ErrNotApplied)

// errLate says that the reply to what is owed before an act is late.
var errLate = errors.New("its reply is late")

// payFirst pays what is owed about the keys and IDs of acts, and returns the acts that may
// follow it. The others are not sent: their nodes are unreachable, or their takes were granted
// here, or something is still owed before them.
func (r *Remote) payFirst(ctx context.Context, all []*weir.Act) (rest []*weir.Act) {
	all = r.calls.Unreachable(all)
	var err error
	for err == nil && !r.book.empty() {
		var due []*payment
		var busy *flying
		all, due, busy = r.claim(all)
		switch {
		case len(due) > 0:
			err = r.pay(ctx, due)
		case busy != nil && busy.late.Load():
			err = errLate
		case busy != nil:
			select {
			case <-busy.landed:
			case <-ctx.Done():
				err = ctx.Err()
			}
		default:
			return all
		}
	}
	if err == nil {
		return all
	}
	r.book.lock()
	defer r.book.unlock()
	for _, a := range all {
		if r.blocked(a) {
			a.Err = fmt.Errorf("weir: %v: %w: what is owed before it: %v", a.Kind, weir.ErrNotApplied, err)
			if out := new(outage.Error); errors.As(err, &out) {
				a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrNotApplied, out)
			}
		} else {
			rest = append(rest, a)
		}
	}
	return rest
}

// claim takes out what has to be paid before acts, and returns what is in flight of it. It
// returns the acts that are not about takes that were granted here.
func (r *Remote) claim(all []*weir.Act) (rest []*weir.Act, due []*payment, busy *flying) {
	r.book.lock()
	defer r.book.unlock()
	about := func(e *entry) {
		if e.busy != nil {
			busy = e.busy
		} else if len(e.acts) > 0 {
			due = append(due, r.payEntry(e))
		}
	}
	for _, a := range all {
		if r.book.granted(a, r.now()) != nil {
			a.Err = errHere
			continue
		}
		rest = append(rest, a)
		if e := r.book.ids[idOf(a)]; e != nil {
			about(e)
		}
		for i := range a.Charges {
			c := &a.Charges[i]
			for e := range r.book.byKey[c.Key] {
				about(e)
			}
			if d := r.book.budgets[budgetOf(c)]; d == nil {
				continue
			} else if d.busy != nil {
				busy = d.busy
			} else if p := r.payUnits(d); p != nil {
				due = append(due, p)
			}
		}
	}
	return rest, due, busy
}

// blocked reports whether something is still owed before an act.
func (r *Remote) blocked(a *weir.Act) bool {
	if r.book.ids[idOf(a)] != nil {
		return true
	}
	for i := range a.Charges {
		if d := r.book.budgets[budgetOf(&a.Charges[i])]; d != nil && (d.busy != nil || d.due(r.now()) > 0) || len(r.book.byKey[a.Charges[i].Key]) > 0 {
			return true
		}
	}
	return false
}

// pay sends payments, and returns the errors of their acts.
func (r *Remote) pay(ctx context.Context, due []*payment) (err error) {
	var all []*weir.Act
	for _, p := range due {
		all = append(all, p.acts...)
	}
	r.takeAndRecover(ctx, all)
	for _, p := range due {
		err = errors.Join(err, r.outcome(p))
	}
	return err
}

// outcome ends a payment once the outcomes of its acts are known, and returns their errors.
func (r *Remote) outcome(p *payment) (err error) {
	var missing atomic.Int64
	missing.Store(1)
	known := func() {
		if missing.Add(-1) == 0 {
			r.book.lock()
			p.paid(p.acts)
			r.book.unlock()
		}
	}
	for _, a := range p.acts {
		err = errors.Join(err, a.Err)
		var late acts.Pending
		if !errors.As(a.Err, &late) {
			continue
		}
		if p.flying != nil {
			p.flying.late.Store(true)
		}
		missing.Add(1)
		r.reconciler.awaited.Add(1)
		late.Then(func(reply *weir.Act) {
			defer r.reconciler.awaited.Add(-1)
			a.Err = reply.Err
			copy(a.Decisions, reply.Decisions)
			known()
			r.wake()
		})
	}
	known()
	return err
}

// errPanicked is the error of acts whose outcome a panic of the store left unknown.
var errPanicked = fmt.Errorf("weir: %w: the store panicked", weir.ErrAmbiguous)

// takeAndRecover asks the store for debts: a panic of it would end the process.
func (r *Remote) takeAndRecover(ctx context.Context, acts []*weir.Act) {
	defer func() {
		if cause := recover(); cause != nil {
			r.Logger.Error("the store panicked while units granted without it were recorded", "panic", cause)
			for _, a := range acts {
				a.Err = errPanicked
			}
		}
	}()
	r.calls.Take(ctx, acts)
}

// notApplied reports whether the store has certainly not applied an act.
func notApplied(err error) bool {
	return errors.Is(err, weir.ErrNotApplied) || errors.Is(err, weir.ErrMisconfigured)
}

// collect takes out some debts.
func (r *Remote) collect() (due []*payment) {
	r.book.lock()
	defer r.book.unlock()
	now, n := r.now(), 0
	if p := r.payWithdrawals(actsPerCall / 2); p != nil {
		due, n = append(due, p), len(p.acts)
	}
	for _, e := range r.book.ids {
		switch {
		case n >= actsPerCall:
			return due
		case e.busy != nil:
		case now >= e.until || len(e.acts) == 0:
			r.leave(e)
		default:
			due = append(due, r.payEntry(e))
			n += len(e.acts)
		}
	}
	// Map iteration begins anywhere: balances of an unreachable node do not block the others.
	for _, d := range r.book.budgets {
		if n >= actsPerCall {
			break
		}
		if len(d.refunds) > 0 && d.refunding == 0 {
			due = append(due, r.payRefunds(d))
			n += d.refunding
		}
		if d.busy == nil {
			if p := r.payUnits(d); p != nil {
				due = append(due, p)
				n++
			}
		}
	}
	return due
}

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

// wake starts paying in the background, unless it runs or nothing is owed.
func (r *Remote) wake() {
	if r.book.empty() {
		return
	}
	c := r.reconciler
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || c.ctx.Err() != nil {
		return
	}
	c.running, c.done = true, make(chan struct{})
	done := c.done
	go func() {
		defer close(done)
		r.reconcile()
	}()
}

// reconcile works until nothing is owed that can be paid.
func (r *Remote) reconcile() {
	pause, before := minPause, r.counts.recorded.Load()
	// Outcomes of one batch come together and may cancel each other.
	r.pause(minPause)
	failures := 0
	for due := r.next(); due != nil; due = r.next() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.reconciler.ctx, callTimeout)
		err := r.pay(ctx, due)
		if cancel(); err != nil {
			pause = min(maxRetry, firstRetry<<failures)
			failures = min(failures+1, 10)
		} else {
			pause, failures = max(minPause, pauseFactor*time.Since(began)), 0
		}
		if !r.pause(pause) && failures > failuresAtStop {
			r.reconciler.cancel()
		}
	}
	if units := r.counts.recorded.Load() - before; units > 0 {
		r.Logger.Info("the store has recorded units granted without it", "units", units, "doubtful_total", r.counts.doubtful.Load())
	}
}

// next takes out the next debts. If there are none that are not in flight, the work is over,
// and the reply that is missing begins it again.
func (r *Remote) next() (due []*payment) {
	c := r.reconciler
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		due = r.collect()
	}
	c.running = due != nil
	return due
}

// unpaid is how many budgets and IDs, and ends of takes, are owed.
func (r *Remote) unpaid() (rest, ends int) {
	r.book.lock()
	defer r.book.unlock()
	for _, d := range r.book.budgets {
		if d.due(r.now()) > 0 || d.busy != nil || len(d.refunds)+d.refunding > 0 {
			rest++
		}
	}
	for _, e := range r.book.ids {
		if last := e.last(); last != nil && endsTake(last) && e.take == nil {
			ends++
		} else {
			rest++
		}
	}
	return rest + len(r.book.withdrawals) + r.book.withdrawing, ends
}

// pause waits. It returns false if Stop was called.
func (r *Remote) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.reconciler.ctx.Done():
	}
	select {
	case <-r.reconciler.stopping:
		return false
	default:
		return true
	}
}

// Stop waits for late replies and calls in flight, and pays what is owed, until ctx ends. The
// error counts what the store has not recorded. Takes are still answered, and ask the store
// whether it is reachable or not. Stop may be called again.
func (r *Remote) Stop(ctx context.Context) error {
	return errors.Join(r.settleUp(ctx), r.calls.Stop(ctx))
}

// settleUp waits for late replies and pays.
func (r *Remote) settleUp(ctx context.Context) error {
	c := r.reconciler
	for c.awaited.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(minPause):
		case <-ctx.Done():
		}
	}
	c.stop.Do(func() { close(c.stopping) })
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.cancel)()
	<-done
	c.cancel()
	awaited := c.awaited.Load()
	if rest, ends := r.unpaid(); rest+ends > 0 || awaited > 0 {
		return fmt.Errorf("weir: stop: charges under %d keys and IDs are not recorded in the store, %d releases and settlements are not delivered, and %d replies are missing", rest, ends, awaited)
	}
	return nil
}
