package outage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// When a node that refuses to decide, or breaks connections, counts as out: after so
// many calls in a row, or after half of so many within a second.
const (
	failuresInARow = 5
	callsToJudge   = 20
	judgedFor      = time.Second
)

// A Node is a server of a store, as far as its replies tell. It is safe for
// concurrent use.
type Node struct {
	Name  string
	watch *Watch

	// inFlight is how many calls have no reply, in the lower half, and in the upper
	// half the era: calls of an earlier one are written off.
	inFlight atomic.Uint64
	beats    atomic.Uint64 // replies, and calls before which nothing was in flight
	out      atomic.Pointer[Error]
	// signs is how many signs of life there were since the last reply.
	signs atomic.Int32
	// unheard: a call that ended unanswered is the last that is known.
	unheard atomic.Bool

	// The watching goroutine's own.
	seen   uint64
	silent int     // ticks
	usual  float64 // ticks between two of its last replies

	troubled atomic.Bool // successes are counted too
	mu       sync.Mutex  // guards what follows
	until    time.Time   // the end of the second that is counted
	calls    int         // in that second, since the first failure
	bad      int
	inARow   int
	failure  error
	logged   time.Time // when a line was last written
	unlogged int       // outages since then
}

// An Era is the time between two outages of a node.
type Era uint32

const eraBits = 32

// Begin notes that a call is sent to the node. The era is for what ends it.
func (n *Node) Begin() Era {
	state := n.inFlight.Add(1)
	if uint32(state) == 1 && !n.unheard.Load() {
		n.beats.Add(1)
	}
	if n.watch.asleep.Load() {
		n.watch.wake()
	}
	return Era(state >> eraBits)
}

// end takes a call out of those in flight, unless it was written off.
func (n *Node) end(era Era) {
	for {
		state := n.inFlight.Load()
		if Era(state>>eraBits) != era || n.inFlight.CompareAndSwap(state, state-1) {
			return
		}
	}
}

// Heard notes a reply that decided: it ends an outage.
func (n *Node) Heard(era Era) {
	n.hear()
	n.end(era)
	if n.out.Load() != nil {
		n.back("a late reply came")
	}
	if n.troubled.Load() {
		n.succeeded()
	}
}

// Refused notes a reply that says that the node cannot decide now. Several of them
// begin an outage.
func (n *Node) Refused(era Era, cause error) {
	n.hear()
	n.end(era)
	n.failed(cause)
}

// Lost notes that no reply will come. Several of them begin an outage.
func (n *Node) Lost(era Era, cause error) {
	n.end(era)
	n.failed(cause)
}

// Left notes that a call ended because its own time was over, before it was sent or
// answered. It is no failure, but the silence goes on with the next call.
func (n *Node) Left(era Era) {
	n.unheard.Store(true)
	n.end(era)
}

// hear notes a reply.
func (n *Node) hear() {
	n.beats.Add(1)
	if n.unheard.Load() {
		n.unheard.Store(false)
	}
	if n.signs.Load() != 0 {
		n.signs.Store(0)
	}
}

// maxSigns is how many signs of life count between two replies: enough for a call that
// has to connect and to send its script first, and not enough for a node that does
// nothing but greet.
const maxSigns = 3

// Sign notes something that the node said which is no reply to a call: it greeted a
// connection, or does not know a script. The silence begins anew.
func (n *Node) Sign() {
	if n.signs.Add(1) <= maxSigns {
		n.beats.Add(1)
	}
}

// Out says since when and why the node is out; nil if it is not.
func (n *Node) Out() *Error { return n.out.Load() }

// look judges the node by the replies since the last tick, and reports whether
// anything is in flight.
func (n *Node) look(heard bool, limit int) bool {
	if uint32(n.inFlight.Load()) == 0 {
		if !n.unheard.Load() {
			n.silent = 0
		}
		return false
	}
	if beats := n.beats.Load(); beats != n.seen {
		if n.signs.Load() == 0 {
			n.usual = max(float64(n.silent), n.usual*forgetting)
		}
		n.seen, n.silent = beats, 0
		return true
	}
	if heard {
		n.silent++
	}
	if limit = n.mayBeSilent(limit); n.silent >= limit && n.out.Load() == nil {
		n.gone(fmt.Errorf("%w for %v", ErrSilent, time.Duration(limit)*Tick))
	}
	return true
}

// What a node that is slow, or gets little processor time, may be silent for: so many
// times as long as it was between two of its last replies, and at most so many times as
// long as others. It is forgotten within a second of many replies.
const (
	slower     = 3
	slowest    = 5
	forgetting = 1 - 1.0/256
)

// mayBeSilent is for how many ticks the node may be silent, where others may for limit.
func (n *Node) mayBeSilent(limit int) int {
	return min(max(limit, int(slower*n.usual)), slowest*limit)
}

func (n *Node) succeeded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inARow = 0
	if n.calls++; time.Now().After(n.until) {
		n.troubled.Store(false)
	}
}

func (n *Node) failed(cause error) {
	n.mu.Lock()
	now := time.Now()
	if !n.troubled.Load() || now.After(n.until) {
		n.troubled.Store(true)
		n.until, n.calls, n.bad = now.Add(judgedFor), 0, 0
	}
	n.calls++
	n.bad++
	n.inARow++
	n.failure = cause
	enough := n.inARow >= failuresInARow || n.calls >= callsToJudge && 2*n.bad >= n.calls
	n.mu.Unlock()
	if enough && n.out.Load() == nil {
		n.gone(cause)
	}
}

// logPause is for how long outages that follow one that was logged are counted
// instead.
const logPause = 10 * time.Second

// gone begins an outage.
func (n *Node) gone(cause error) {
	w := n.watch
	e := &Error{Node: n.Name, Since: time.Now(), Cause: cause}
	w.mu.Lock()
	if w.stopped || !n.out.CompareAndSwap(nil, e) {
		w.mu.Unlock()
		return
	}
	w.out.Add(1)
	w.begun.Add(1)
	w.work.Go(func() {
		// Not by the caller who found out: it would wait for whoever takes the line.
		n.report(cause)
		if w.Probe != nil {
			w.probe(n)
		}
	})
	w.mu.Unlock()
}

func (n *Node) report(cause error) {
	if earlier, worth := n.tell(); worth {
		n.watch.Logger.Warn("the store is unreachable", "node", n.Name, "error", cause, "outages_not_logged", earlier)
	}
}

// back ends an outage. Calls that are still without a reply are written off: they say
// nothing of what comes now.
func (n *Node) back(why string) {
	e := n.out.Load()
	if e == nil || !n.out.CompareAndSwap(e, nil) {
		return
	}
	for state := n.inFlight.Load(); !n.inFlight.CompareAndSwap(state, (state>>eraBits+1)<<eraBits); {
		state = n.inFlight.Load()
	}
	n.hear()
	n.watch.out.Add(-1)
	n.mu.Lock()
	n.inARow, n.calls, n.bad = 0, 0, 0
	n.troubled.Store(false)
	tell := n.unlogged == 0
	n.mu.Unlock()
	if tell {
		n.watch.Logger.Info("the store is reachable again", "node", n.Name, "after", time.Since(e.Since).Round(time.Millisecond), "reason", why)
	}
}

// tell reports whether an outage is worth a line, and how many had none before it.
func (n *Node) tell() (unlogged int, worth bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.logged) > logPause {
		unlogged, n.logged, n.unlogged = n.unlogged, now, 0
		return unlogged, true
	}
	n.unlogged++
	return 0, false
}
