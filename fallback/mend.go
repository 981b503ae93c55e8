package fallback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// goodProbes is how many answers in a row end an absence.
	goodProbes = 3
	// probeAgain is how soon a good probe is followed by the next one.
	probeAgain = 20 * time.Millisecond
	// probePatience is how long a probe may take, in deadlines and at least: a
	// connection may have to be made first.
	probePatience    = 10
	probePatienceMin = 100 * time.Millisecond
	// refusedEvery is how much longer a store is left alone that refuses us for
	// good.
	refusedEvery = 5
	// debtsACall is how many keys the store is told of in one call.
	debtsACall = 64
	// rest is how many times as long as a call the pause after it is, so that
	// telling takes a small part of the store's time.
	rest, restMin = 4, 5 * time.Millisecond
)

// ProbeKey is the key that is charged to find out whether the store answers.
const ProbeKey = "fallback;probe"

// A probe writes: a store that can only be read is away.
var probeLimit = weir.Limit{Count: 1_000_000, Period: time.Second}.MustCompile()

// mending is the work in the background.
type mending struct {
	mu      sync.Mutex // guards what follows
	running bool
	stopped bool
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

// mend has the work done in the background, if nobody does it already.
func (t *Taker) mend() {
	m := &t.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running || m.stopped {
		return
	}
	m.running, m.done = true, make(chan struct{})
	done := m.done
	go func() {
		defer close(done)
		for !t.mended() {
			t.work()
		}
	}()
}

// wake has what was noted here taken care of. As long as the store is away
// somebody does that anyway.
func (t *Taker) wake() {
	if t.breaker.away.Load() == nil {
		t.mend()
	}
}

// mended reports whether there is nothing more to do, and then nobody does it.
func (t *Taker) mended() bool {
	m := &t.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	away := t.breaker.away.Load() != nil
	if away && !m.stopped || !away && t.debts.len() > 0 && m.ctx.Err() == nil {
		return false
	}
	m.running = false
	return true
}

// work does the next thing that there is to do.
func (t *Taker) work() {
	if away := t.breaker.away.Load(); away != nil {
		t.await(away)
		return
	}
	began := time.Now()
	failure := t.settleUp()
	if t.debts.len() > 0 && !t.pause(max(restMin, rest*time.Since(began))) && failure != nil {
		// There is no time left to wait for better.
		t.mending.cut()
	}
}

// opened begins to wait for a store that is away. What is logged of it is logged
// there: a caller would wait for whoever takes the lines.
func (t *Taker) opened() {
	t.counts.openings.Add(1)
	t.mend()
}

// await tries the store until it answers, or Stop is called.
func (t *Taker) await(away *absence) {
	t.logger.Warn("the store is away; limits are decided here by their on_store_failure", "error", away.cause)
	before := t.Stats()
	good, pause := 0, t.every
	for good < goodProbes {
		// Half of it at random, so that instances do not come back as one.
		if !t.pause(pause/2 + rand.N(pause)) {
			return
		}
		err := t.probe()
		switch {
		case err == nil:
			good, pause = good+1, probeAgain
		case errors.Is(err, weir.ErrMisconfigured):
			good, pause = 0, refusedEvery*t.every
		default:
			good, pause = 0, t.every
		}
	}
	t.breaker.close()
	after := t.Stats()
	t.logger.Info("the store answers again", "away", time.Since(away.since).Round(time.Millisecond),
		"local", after.Local-before.Local, "allowed", after.Allowed-before.Allowed,
		"denied", after.Denied-before.Denied, "errors", after.Errors-before.Errors, "keys_to_charge_back", after.Owed)
}

// probe asks the store for a decision, and returns an error unless that came in
// time.
func (t *Taker) probe() error {
	ctx, cancel := context.WithTimeout(t.mending.ctx, t.patience())
	defer cancel()
	a := weir.Act{Charges: []weir.Charge{{Key: ProbeKey, Limit: probeLimit, Cost: 1}}, Decisions: make([]weir.Decision, 1)}
	began := time.Now()
	t.next.Take(ctx, []*weir.Act{&a})
	if took := time.Since(began); a.Err == nil && took > t.deadline {
		return fmt.Errorf("%w: it took %v", weir.ErrAmbiguous, took)
	}
	return a.Err
}

// settleUp tells the store of some of what was granted here. What it certainly
// has not heard of is told again later; what it may have heard of is not.
func (t *Taker) settleUp() error {
	acts := t.debts.collect(debtsACall, t.now())
	if len(acts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.mending.ctx, t.patience())
	defer cancel()
	t.next.Take(ctx, acts)
	failure := error(nil)
	var units, doubtful int64
	for _, a := range acts {
		switch {
		case a.Err == nil:
			units += a.Charges[0].Cost
		case errors.Is(a.Err, weir.ErrNotApplied) || errors.Is(a.Err, weir.ErrMisconfigured):
			failure = a.Err
			t.debts.back(a, t.now())
		default:
			failure = a.Err
			doubtful += a.Charges[0].Cost
		}
	}
	t.counts.chargedBack.Add(units)
	t.counts.doubtful.Add(doubtful)
	t.debts.done(acts)
	t.settled(failure)
	return failure
}

// patience is how long a call in the background may take.
func (t *Taker) patience() time.Duration { return max(probePatience*t.deadline, probePatienceMin) }

// settled says how telling the store went.
func (t *Taker) settled(failure error) {
	switch {
	case failure == nil && t.debts.len() == 0:
		t.logger.Info("what was granted here is charged back", "units_in_all", t.counts.chargedBack.Load(), "doubtful_in_all", t.counts.doubtful.Load())
	case failure != nil && t.breaker.failed(failure):
		t.counts.openings.Add(1)
	}
}

// pause waits, and reports false if Stop was called.
func (t *Taker) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.mending.ending:
		return false
	}
}

// Stop ends the work in the background: a store that is away is not tried any
// more, one that is back is told what is left, as far as ctx lasts. It returns when
// that is done; the error says how many keys the store was not told of. Takes go
// on, and every one of them asks the store. Further calls do the same.
func (t *Taker) Stop(ctx context.Context) error {
	m := &t.mending
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
	t.breaker.disable()
	if n := t.debts.owing(t.now()); n > 0 {
		return fmt.Errorf("fallback: stop: the store was not told what was granted here under %d keys", n)
	}
	return nil
}
