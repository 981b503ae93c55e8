package outage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A node that answers, but refuses to decide or breaks connections, is unreachable after
// so many failures in a row, or if half of so many calls within a second failed.
const (
	failuresInARow = 5
	callsToJudge   = 20
	judgedFor      = time.Second
)

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
	// greetings counts the calls of Alive since the last reply.
	greetings atomic.Int32
	// unanswered is set while the last call that ended has ended without a reply.
	unanswered atomic.Bool
	outage     atomic.Pointer[Error] // nil while the node is reachable

	// These belong to the watching goroutine.
	seen    uint64  // activity at the last tick with a call in flight
	replies uint32  // at the last tick
	silent  int     // ticks without activity
	usual   float64 // ticks that its last replies took

	troubled atomic.Bool // a call has failed lately: successes are counted too

	mu       sync.Mutex // guards what follows
	until    time.Time  // when the second that is counted ends
	calls    int        // in that second, since the first failure
	failed   int
	inARow   int
	logged   time.Time // when an outage was last logged
	unlogged int       // outages since then
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
	if n.troubled.Load() {
		n.succeed()
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
	if n.greetings.Load() != 0 {
		n.greetings.Store(0)
	}
}

// maxGreetings is how often Alive counts between two replies: enough for a call that has
// to connect and to upload its script first, and too little for a node that does nothing
// but greet.
const maxGreetings = 3

// Alive notes a message of the node that is no reply to a call: it greeted a connection,
// or does not know a script. The silence begins anew.
func (n *Node) Alive() {
	if n.greetings.Add(1) <= maxGreetings {
		n.activity.Add(1)
	}
}

// Outage returns since when and why the node is unreachable; nil if it is reachable.
func (n *Node) Outage() *Error { return n.outage.Load() }

// gotReply reports whether a reply has come since the last tick.
func (n *Node) gotReply() bool {
	before := n.replies
	n.replies = uint32(n.activity.Load())
	return n.replies != before
}

// tick judges the node by the replies since the last tick, and reports whether anything
// is in flight. Limit is the number of ticks for which a node may be silent.
func (n *Node) tick(responsive bool, limit int) bool {
	if uint32(n.inFlight.Load()) == 0 {
		if !n.unanswered.Load() {
			n.silent = 0
		}
		return false
	}
	if activity := n.activity.Load(); activity != n.seen {
		if n.greetings.Load() == 0 {
			n.usual = max(float64(n.silent), n.usual*forgetting)
		}
		n.seen, n.silent = activity, 0
		return true
	}
	if responsive {
		n.silent++
	}
	if limit = n.allowance(limit); n.silent >= limit && n.outage.Load() == nil {
		n.begin(fmt.Errorf("%w for %v", ErrSilent, time.Duration(limit)*Tick))
	}
	return true
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

func (n *Node) succeed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inARow = 0
	if n.calls++; time.Now().After(n.until) {
		n.troubled.Store(false)
	}
}

func (n *Node) fail(cause error) {
	n.mu.Lock()
	now := time.Now()
	if !n.troubled.Load() || now.After(n.until) {
		n.troubled.Store(true)
		n.until, n.calls, n.failed = now.Add(judgedFor), 0, 0
	}
	n.calls++
	n.failed++
	n.inARow++
	enough := n.inARow >= failuresInARow || n.calls >= callsToJudge && 2*n.failed >= n.calls
	n.mu.Unlock()
	if enough && n.outage.Load() == nil {
		n.begin(cause)
	}
}

// begin begins an outage.
func (n *Node) begin(cause error) {
	w := n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &Error{Node: n.Name, Since: time.Now(), Cause: cause}
	if w.stopped || !n.outage.CompareAndSwap(nil, out) {
		return
	}
	w.unreachable.Add(1)
	w.outages.Add(1)
	w.work.Go(func() {
		// The caller who found out must not wait for the logger.
		if earlier, due := n.logDue(); due {
			w.Logger.Warn("the store is unreachable", "node", n.Name, "error", cause, "outages_not_logged", earlier)
		}
		if w.Probe != nil {
			w.probe(n, out)
		}
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
	n.mu.Lock()
	n.inARow, n.calls, n.failed = 0, 0, 0
	n.troubled.Store(false)
	logged := n.unlogged == 0
	n.mu.Unlock()
	if logged && reason != whenStopped {
		n.watch.Logger.Info("the store is reachable again", "node", n.Name, "unreachable_for", time.Since(e.Since).Round(time.Millisecond).String(), "reason", reason)
	}
}

// logPause is for how long after a logged outage others are counted instead.
const logPause = 10 * time.Second

// logDue reports whether an outage is to be logged, and how many were not before it.
func (n *Node) logDue() (unlogged int, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.logged) > logPause {
		unlogged, n.logged, n.unlogged = n.unlogged, now, 0
		return unlogged, true
	}
	n.unlogged++
	return 0, false
}
