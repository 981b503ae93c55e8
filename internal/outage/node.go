package outage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// failuresInARow is after how many failures in a row a node that refuses to decide or breaks
// connections is unreachable.
const failuresInARow = 5

// A Node is a server of a store, as far as its replies show. It is safe for concurrent
// use.
type Node struct {
	Name  string
	watch *Watch

	// inFlight is the number of calls without a reply, in the lower half, and the
	// generation in the upper half.
	inFlight atomic.Uint64
	// activity counts replies, in the lower half, and calls before which nothing was in
	// flight, in the upper half: the silence begins anew with each.
	activity atomic.Uint64
	// unanswered is set while the last call that ended has ended without a reply.
	unanswered atomic.Bool
	outage     atomic.Pointer[Error] // nil while the node is reachable
	latest     atomic.Pointer[Error] // the last one that has begun

	// failures counts the failures since the last decision.
	failures atomic.Int32
	// answered counts the probes that were answered.
	answered atomic.Int64
	// suspected asks for a probe at the next tick.
	suspected atomic.Bool

	// These belong to the watching goroutine.
	seen    uint64  // activity at the last tick with a call in flight
	replies uint32  // at the last tick
	silent  int     // ticks without activity
	usual   float64 // ticks that its last replies took
	doubt   *doubt  // the probe that tells silence from an outage; nil: there is none

	mu       sync.Mutex // guards what follows
	since    time.Time  // when the logged outages below began to be counted
	logged   int        // outages since then
	unlogged int        // outages that were not logged
}

// A doubt is a probe of a silent node.
type doubt struct {
	ctx    context.Context
	cancel context.CancelFunc
	ticks  int                   // without activity since it was sent
	failed atomic.Pointer[error] // nil: it has not failed, or its time was over
}

// A Generation is the time between two outages of a node. Calls of an earlier generation
// are written off: whether they end says nothing about the node any more.
type Generation uint32

const generationBits = 32

// Begin notes that a call is sent to the node. The generation is for the method that
// notes its end.
func (n *Node) Begin() Generation {
	state := n.inFlight.Add(1)
	if uint32(state) == 1 && !n.unanswered.Load() {
		n.activity.Add(1 << 32)
	}
	if n.watch.asleep.Load() {
		n.watch.wake()
	}
	return Generation(state >> generationBits)
}

// end takes a call out of those in flight, unless it was written off.
func (n *Node) end(g Generation) {
	for {
		state := n.inFlight.Load()
		if Generation(state>>generationBits) != g || n.inFlight.CompareAndSwap(state, state-1) {
			return
		}
	}
}

// Decided notes a reply with a decision, which ends an outage.
func (n *Node) Decided(g Generation) {
	n.replied()
	n.end(g)
	if n.outage.Load() != nil {
		n.recover("a late reply came")
	}
	if n.failures.Load() != 0 {
		n.failures.Store(0)
	}
}

// Refused notes a reply that says that the node cannot decide now. Several of them begin
// an outage.
func (n *Node) Refused(g Generation, cause error) {
	n.replied()
	n.end(g)
	n.fail(cause)
}

// Lost notes that no reply will come. Several of them begin an outage.
func (n *Node) Lost(g Generation, cause error) {
	n.end(g)
	n.fail(cause)
}

// TimedOut notes that a call ended because its own time was over, before it was sent or
// answered. That is no failure, but the silence goes on with the next call.
func (n *Node) TimedOut(g Generation) {
	n.unanswered.Store(true)
	n.end(g)
}

func (n *Node) replied() {
	n.activity.Add(1)
	if n.unanswered.Load() {
		n.unanswered.Store(false)
	}
}

// Suspect has the node probed at the next tick: a call that it had a part in, beside other
// nodes, has failed.
func (n *Node) Suspect() {
	n.suspected.Store(true)
	if n.watch.asleep.Load() {
		n.watch.wake()
	}
}

// Answered returns the number of probes that the node has answered.
func (n *Node) Answered() int64 { return n.answered.Load() }

// Outage returns since when and why the node is unreachable; nil if it is reachable.
func (n *Node) Outage() *Error { return n.outage.Load() }

// OutageAfter returns the node's last outage, also if it is over, if it began after so many outages
// of all nodes as [Watch.Outages] returned; else nil.
func (n *Node) OutageAfter(outages int64) *Error {
	if e := n.latest.Load(); e != nil && e.number > outages {
		return e
	}
	return nil
}

// gotReply reports whether a reply has come since the last tick.
func (n *Node) gotReply() bool {
	before := n.replies
	n.replies = uint32(n.activity.Load())
	return n.replies != before
}

// tick judges the node by the replies since the last tick, and reports whether anything
// is in flight. Limit is the number of ticks for which a node may be silent until it is
// probed.
func (n *Node) tick(responsive bool, limit int) bool {
	if n.suspected.Load() && n.suspected.Swap(false) {
		n.question()
	}
	if uint32(n.inFlight.Load()) == 0 && n.doubt == nil {
		if !n.unanswered.Load() {
			n.silent = 0
		}
		return false
	}
	if activity := n.activity.Load(); activity != n.seen {
		n.usual = max(float64(n.silent), n.usual*forgetting)
		n.seen, n.silent = activity, 0
		n.believe()
		return true
	}
	if responsive {
		n.silent++
	}
	switch {
	case n.doubt != nil:
		n.judge(responsive)
	case n.silent >= n.allowance(limit):
		n.question()
	}
	return true
}

// probePatience is for how many ticks a silent node may leave a probe without an answer.
const probePatience = int(150 * time.Millisecond / Tick)

// question has the node probed, unless it is or is known to be unreachable.
func (n *Node) question() {
	w := n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.doubt != nil || n.outage.Load() != nil || w.stopped {
		return
	}
	d := &doubt{}
	d.ctx, d.cancel = context.WithTimeout(w.ctx, doubtTimeout)
	n.doubt = d
	w.work.Go(func() {
		err := w.Probe(d.ctx, n.Name)
		switch {
		case err == nil:
			n.answered.Add(1)
			n.activity.Add(1)
		case d.ctx.Err() == nil:
			d.failed.Store(&err)
		}
		d.cancel()
	})
}

// judge begins an outage if the probe has failed or was left without an answer.
func (n *Node) judge(responsive bool) {
	d := n.doubt
	if responsive {
		d.ticks++
	}
	silence := fmt.Errorf("%w for %v", ErrSilent, time.Duration(n.silent)*Tick)
	switch failed := d.failed.Load(); {
	case failed != nil && n.silent == 0:
		n.begin(*failed)
	case failed != nil:
		n.begin(fmt.Errorf("%w: %w", silence, *failed))
	case d.ticks >= probePatience:
		n.begin(silence)
	case d.ctx.Err() == nil:
		return
	}
	// A probe that ended while this process was not responsive is made anew.
	n.believe()
}

// believe ends the probe of a node that is judged.
func (n *Node) believe() {
	if n.doubt != nil {
		n.doubt.cancel()
		n.doubt = nil
	}
}

// A node whose last replies were slow may be silent for three times as long as the
// slowest of them took, and at most for five times the limit. A slow reply is forgotten
// by and by: half of it after 177 more replies.
const (
	slowFactor = 3
	maxFactor  = 5
	forgetting = 1 - 1.0/256
)

// allowance returns for how many ticks the node may be silent.
func (n *Node) allowance(limit int) int {
	return min(max(limit, int(slowFactor*n.usual)), maxFactor*limit)
}

func (n *Node) fail(cause error) {
	if n.failures.Add(1) >= failuresInARow && n.outage.Load() == nil {
		n.begin(cause)
	}
}

// begin begins an outage.
func (n *Node) begin(cause error) {
	w := n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &Error{Node: n.Name, Since: time.Now(), Cause: cause}
	if w.stopped || n.outage.Load() != nil {
		return
	}
	// Whoever is answered because of an outage finds it counted, see OutageAfter.
	out.number = w.outages.Add(1)
	n.latest.Store(out)
	n.outage.Store(out)
	w.unreachable.Add(1)
	w.work.Go(func() {
		// The caller who found out must not wait for the logger.
		if earlier, due := n.logDue(); due {
			out.logged.Store(true)
			w.Logger.Warn("the store is unreachable", "node", n.Name, "error", cause, "outages_not_logged", earlier)
		}
		w.probe(n, out)
	})
}

// recover ends an outage. Calls without a reply are written off.
func (n *Node) recover(reason string) {
	e := n.outage.Load()
	if e == nil || !n.outage.CompareAndSwap(e, nil) {
		return
	}
	for state := n.inFlight.Load(); !n.inFlight.CompareAndSwap(state, (state>>generationBits+1)<<generationBits); {
		state = n.inFlight.Load()
	}
	n.replied()
	n.watch.unreachable.Add(-1)
	n.failures.Store(0)
	if e.logged.Load() && reason != whenStopped {
		n.watch.Logger.Info("the store is reachable again", "node", n.Name, "unreachable_for", time.Since(e.Since).Round(time.Millisecond).String(), "reason", reason)
	}
}

// A node that is unreachable again and again has maxLogged outages in the log for each
// logPeriod; the others are counted.
const (
	maxLogged = 10
	logPeriod = time.Minute
)

// logDue reports whether an outage is to be logged, and how many were not before it.
func (n *Node) logDue() (unlogged int, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.since) > logPeriod {
		n.since, n.logged = now, 0
	}
	if n.logged >= maxLogged {
		n.unlogged++
		return 0, false
	}
	n.logged++
	unlogged, n.unlogged = n.unlogged, 0
	return unlogged, true
}
