package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// callTimeout bounds a call that pays debts.
	callTimeout = 10 * time.Second
	// A pause after a call is pauseFactor times as long as the call, at least minPause, so
	// that reconciling takes a small part of the node's time.
	pauseFactor, minPause = 4, 2 * time.Millisecond
	// firstRetry is the pause after a call that failed, maxRetry the longest, also between two
	// looks at a node that is unreachable.
	firstRetry, maxRetry = 20 * time.Millisecond, 200 * time.Millisecond
	// prunedAtOnce bounds how many debts of an unreachable node are looked at under its lock.
	prunedAtOnce = 1024
	// failuresAtStop is how many calls in a row may fail once Stop was called: a short
	// outage is waited for.
	failuresAtStop = 4
)

// A background is what all background work has in common.
type background struct {
	awaited  atomic.Int64       // acts whose replies are awaited
	ctx      context.Context    // of the calls of the store
	cancel   context.CancelFunc // ends ctx
	stop     sync.Once
	stopping chan struct{} // closed by Stop
}

func newBackground() *background {
	b := &background{stopping: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// wake has what is owed to the nodes of a location paid.
func (r *Remote) wake(at *location) {
	at.each(func(l *ledger) bool {
		r.wakeLedger(l)
		return true
	})
}

// wakeLedger sends new withdrawals, which join the next batch, and starts paying in the background,
// unless it runs or nothing is owed.
func (r *Remote) wakeLedger(l *ledger) {
	if l.empty() {
		return
	}
	if p := r.newWithdrawals(l); p != nil {
		r.calls.Post(p.acts)
		r.outcome(p)
	}
	if l.running.Load() {
		return
	}
	l.lock()
	defer l.unlock()
	if l.running.Load() || r.background.ctx.Err() != nil {
		return
	}
	l.running.Store(true)
	done := make(chan struct{})
	l.done = done
	go func() {
		defer close(done)
		r.reconcile(l)
	}()
}

// newWithdrawals takes out withdrawals that have not been sent yet.
func (r *Remote) newWithdrawals(l *ledger) *payment {
	l.lock()
	defer l.unlock()
	if len(l.withdrawals) == 0 || l.refused || !r.calls.Reaches(l.node) {
		return nil
	}
	return r.payWithdrawals(l, actsPerCall)
}

// reconcile pays one node until nothing is owed that is not in flight. The reply that is missing
// begins it again.
func (r *Remote) reconcile(l *ledger) {
	pause, before := minPause, r.counts.recorded.Load()
	// Outcomes of one batch come together and may cancel each other.
	r.pause(minPause)
	failures := 0
	for {
		due, more := r.collect(l)
		if !more {
			break
		}
		began := time.Now()
		var err error
		if len(due) > 0 {
			ctx, cancel := context.WithTimeout(r.background.ctx, callTimeout)
			err = r.pay(ctx, due)
			cancel()
		}
		if err != nil || len(due) == 0 {
			pause = min(maxRetry, firstRetry<<failures)
			failures = min(failures+1, 10)
		} else {
			pause, failures = max(minPause, pauseFactor*time.Since(began)), 0
		}
		if !r.pause(pause) && failures > failuresAtStop {
			r.background.cancel()
		}
	}
	if units := r.counts.recorded.Load() - before; units > 0 {
		r.Logger.Info("the store has recorded units granted without it", "node", l.node, "units", units, "doubtful_total", r.counts.doubtful.Load())
	}
}

// collect takes out some debts. More is false, and the work is over, if there are none that are not in
// flight. While the node is unreachable, it takes out none.
func (r *Remote) collect(l *ledger) (due []*payment, more bool) {
	l.lock()
	defer l.unlock()
	defer func() { l.running.Store(more) }()
	switch {
	case r.background.ctx.Err() != nil:
		return nil, false
	case !r.calls.Reaches(l.node) && !r.hasMoved(l):
		r.prune(l)
		return nil, true
	}
	due, more = r.takeOut(l)
	for _, p := range due {
		if node, _ := r.calls.Node(p.acts[0]); node != l.node {
			r.ledgers.noteMoved(l)
		}
	}
	return due, more
}

// takeOut takes out some debts: withdrawals, at most a half, and then whatever map iteration, which
// begins anywhere, finds.
func (r *Remote) takeOut(l *ledger) (due []*payment, more bool) {
	now, room := r.now(), actsPerCall
	add := func(p *payment) {
		if p != nil {
			due, room = append(due, p), room-len(p.acts)
		}
	}
	if len(l.withdrawals) > 0 {
		add(r.payWithdrawals(l, actsPerCall/2))
	}
	for _, e := range l.ids {
		switch {
		case room <= 0:
			return due, true
		case e.busy != nil:
		case now >= e.until || len(e.acts) == 0:
			r.forget(l, e)
		case e.mayRepeat(now):
			add(r.payEntry(l, e, room))
		default:
			more = true
		}
	}
	for _, d := range l.budgets {
		if room <= 0 {
			break
		}
		if len(d.refunds) > 0 && d.refunding == 0 {
			add(r.payRefunds(l, d, room))
		}
		switch {
		case d.busy != nil || room <= 0:
		case d.mayRepeat(now):
			add(r.payUnits(l, d))
		default:
			more = true
		}
	}
	return due, more || len(due) > 0
}

// prune drops debts that are over, of those that map iteration, which begins anywhere, finds.
func (r *Remote) prune(l *ledger) {
	now, budgets, ids := r.now(), prunedAtOnce, prunedAtOnce
	for _, d := range l.budgets {
		if d.busy == nil && !d.isDue(now) {
			d.units, d.older, d.begun = 0, 0, false
			l.tidy(d)
		}
		if budgets--; budgets == 0 {
			break
		}
	}
	for _, e := range l.ids {
		if e.busy == nil && now >= e.until {
			r.forget(l, e)
		}
		if ids--; ids == 0 {
			break
		}
	}
}

// forget drops an entry whose ID is over. What the store has not recorded is lost.
func (r *Remote) forget(l *ledger, e *entry) {
	if last := e.last(); last != nil && endsTake(last) {
		r.counts.undelivered.Add(1)
	}
	if e.take != nil && len(e.acts) > 0 {
		for i := range e.take.Charges {
			r.counts.doubtful.Add(localGrant(e.take, i))
		}
	}
	r.leave(l, e)
}

// hasMoved reports whether another node has a key now that something is owed about.
func (r *Remote) hasMoved(l *ledger) bool {
	for _, d := range l.budgets {
		c := weir.Charge{Key: d.name.key, HashTag: d.hashTag, Limit: d.limit}
		if node, _ := r.calls.Node(&weir.Act{Charges: []weir.Charge{c}}); node != l.node {
			return true
		}
		break
	}
	for _, e := range l.ids {
		if len(e.acts) > 0 {
			if node, _ := r.calls.Node(e.acts[0]); node != l.node {
				return true
			}
			break
		}
	}
	return false
}

// pause waits. It returns false if Stop was called.
func (r *Remote) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.background.ctx.Done():
	}
	select {
	case <-r.background.stopping:
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
	b := r.background
	for b.awaited.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(minPause):
		case <-ctx.Done():
		}
	}
	b.stop.Do(func() { close(b.stopping) })
	defer context.AfterFunc(ctx, b.cancel)()
	rest, ends, withdrawals := 0, 0, 0
	r.ledgers.each(func(l *ledger) {
		l.lock()
		done := l.done
		l.unlock()
		if done != nil {
			<-done
		}
	})
	b.cancel()
	r.ledgers.each(func(l *ledger) { r.unpaid(l, &rest, &ends, &withdrawals) })
	awaited := b.awaited.Load()
	if rest+ends+withdrawals > 0 || awaited > 0 {
		return fmt.Errorf("weir: stop: charges under %d keys and IDs are not recorded in the store, %d releases and settlements are not delivered, %d takes are not withdrawn, and %d replies are missing", rest, ends, withdrawals, awaited)
	}
	return nil
}

// unpaid counts what a node is owed: budgets and IDs, ends of takes, and withdrawals.
func (r *Remote) unpaid(l *ledger, rest, ends, withdrawals *int) {
	l.lock()
	defer l.unlock()
	for _, d := range l.budgets {
		if d.isDue(r.now()) || d.busy != nil || len(d.refunds)+d.refunding > 0 {
			*rest++
		}
	}
	for _, e := range l.ids {
		if last := e.last(); last != nil && endsTake(last) && e.take == nil {
			*ends++
		} else {
			*rest++
		}
	}
	*withdrawals += len(l.withdrawals) + l.withdrawing
}
