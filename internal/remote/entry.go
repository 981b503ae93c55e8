package remote

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// An entry is what is owed to one node about one ID: its part of the acts.
type entry struct {
	delivery
	name  idName
	take  *weir.Act   // the part of a take that was granted here; nil: it was not
	grant *grant      // of which take is a part
	acts  []*weir.Act // in order
	sent  int         // of them, in flight
	until int64       // µs; the ID lives until then
	size  int         // bytes
}

// A grant is a take with an ID that was granted here. Acts about the ID are decided here until
// every node has recorded its part.
type grant struct {
	take  *weir.Act
	parts atomic.Int32
}

// enter returns the entry of an ID: a new one if there is none.
func (l *ledger) enter(name idName, until int64) *entry {
	e := l.ids[name]
	if e == nil {
		name.owner, name.id = strings.Clone(name.owner), strings.Clone(name.id)
		e = &entry{name: name, until: until}
		l.ids[e.name] = e
		l.add(1)
		l.grow(e, 2*int(unsafe.Sizeof(*e))+len(name.owner)+len(name.id))
	}
	return e
}

// grow counts the memory of an entry.
func (l *ledger) grow(e *entry, bytes int) {
	if l.ids[e.name] == e {
		e.size += bytes
		l.charge(bytes)
	}
}

// deliver owes an act about the ID. A renewal replaces the one before it.
func (l *ledger) deliver(e *entry, own *weir.Act) {
	if last := e.last(); last != nil && last.Kind == acts.KindRenew && own.Kind == acts.KindRenew && len(e.acts) > e.sent {
		e.acts[len(e.acts)-1] = own
		return
	}
	e.acts = append(e.acts, own)
	l.grow(e, actBytes(own))
}

// last returns the last act that is owed about the ID, or nil.
func (e *entry) last() *weir.Act {
	if len(e.acts) == 0 {
		return nil
	}
	return e.acts[len(e.acts)-1]
}

// enterTake owes the store a take with an ID that was granted here. Units granted without limit are
// not charged.
func (r *Remote) enterTake(at *location, a *weir.Act) {
	now := r.now()
	g := &grant{take: copyOf(a)}
	at.each(func(l *ledger) bool {
		take := at.part(a, l)
		if at.one == nil && !slices.ContainsFunc(take.Decisions, func(d weir.Decision) bool { return d.Outcome != weir.NotEvaluated }) {
			return true // another alternative was granted
		}
		for i := range take.Charges {
			if r.Policy(&take.Charges[i]) == Allow {
				take.Decisions[i].Granted = 0
			}
		}
		if old := l.ids[at.id]; old != nil {
			r.leave(l, old)
		}
		e := l.enter(at.id, now+life(take))
		e.take, e.grant = take, g
		g.parts.Add(1)
		amend := *take // which shares the charges, and neither is changed
		amend.Kind = acts.KindAmend
		l.deliver(e, &amend)
		for i := range take.Charges {
			key := take.Charges[i].Key
			if l.byKey[key] == nil {
				l.byKey[key] = map[*entry]struct{}{}
			}
			l.byKey[key][e] = struct{}{}
		}
		return true
	})
}

// payEntry takes out the first acts about an ID.
func (r *Remote) payEntry(l *ledger, e *entry, most int) *payment {
	sent := make([]*weir.Act, min(most, len(e.acts)))
	for i := range sent {
		sent[i] = copyOf(e.acts[i])
	}
	e.sent = len(sent)
	return &payment{ledger: l, acts: sent, flight: e.send(), paid: func(outcomes []*weir.Act) { r.paidEntry(l, e, outcomes) }}
}

// paidEntry notes the outcomes of the first acts about an ID.
func (r *Remote) paidEntry(l *ledger, e *entry, outcomes []*weir.Act) {
	e.sent = 0
	for _, reply := range outcomes {
		if undecided(reply) {
			e.landed(r.now(), reply.Err)
			return
		}
		l.grow(e, -actBytes(e.acts[0]))
		e.acts = e.acts[1:]
		r.counts.reconciled.Add(1)
	}
	if e.landed(r.now(), nil); len(e.acts) == 0 {
		r.leave(l, e)
	}
}

// leave leaves an ID to a node, which answers it from now on. Once that was the last one, the slots
// that it holds here are free: the store counts them. The next local decision counts the free
// slots again, because the store may have granted others.
func (r *Remote) leave(l *ledger, e *entry) {
	if l.ids[e.name] != e {
		return
	}
	delete(l.ids, e.name)
	l.add(-1)
	l.charge(-e.size)
	if e.take == nil {
		return
	}
	for i := range e.take.Charges {
		c := &e.take.Charges[i]
		if delete(l.byKey[c.Key], e); len(l.byKey[c.Key]) == 0 {
			delete(l.byKey, c.Key)
		}
		if d := l.budgets[budgetOf(c)]; d != nil && algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			d.begun = false
			l.tidy(d)
		}
	}
	if e.grant.parts.Add(-1) == 0 && hasSlots(e.grant.take) {
		r.freeHere(e.grant.take)
	}
}

// freeHere releases a take in the local store.
func (r *Remote) freeHere(take *weir.Act) {
	a := copyOf(take)
	a.Kind, a.Hold, a.MaxWait, a.Err = acts.KindRelease, 0, 0, nil
	r.decideLocally(nil, a)
}

// localID is the ID of a take in the local store, which knows it by its number: a take that was
// granted here is left to the store later, and then nothing here is about its ID.
func localID(number uint64) string { return strconv.FormatUint(number, 36) }

// hasSlots reports whether a take was granted slots.
func hasSlots(a *weir.Act) bool {
	for i := range a.Charges {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots && a.Decisions[i].Granted > 0 {
			return true
		}
	}
	return false
}

// life is how long an act's ID is remembered, in µs.
func life(a *weir.Act) int64 {
	granted, _ := acts.Lives(a)
	return granted.Microseconds()
}

// A withdrawal is an act that is repeated until the store has acknowledged it.
type withdrawal struct {
	act   *weir.Act
	until int64 // µs; the store has forgotten the take then
}

// withdraw has a take withdrawn at one node. It returns false without room.
func (l *ledger) withdraw(own *weir.Act, until int64) bool {
	if !l.room(len(l.withdrawals) + l.withdrawing) {
		return false
	}
	own.Kind = acts.KindWithdraw
	l.withdrawals = append(l.withdrawals, withdrawal{own, until})
	l.charge(actBytes(own))
	l.add(1)
	return true
}

// payWithdrawals takes out some withdrawals; nil if there are none.
func (r *Remote) payWithdrawals(l *ledger, most int) *payment {
	var due []withdrawal
	var sent []*weir.Act
	for len(l.withdrawals) > 0 && len(due) < most {
		w := l.withdrawals[0]
		if l.withdrawals = l.withdrawals[1:]; r.now() >= w.until {
			l.charge(-actBytes(w.act))
			l.add(-1)
			continue
		}
		due, sent = append(due, w), append(sent, copyOf(w.act))
	}
	if len(l.withdrawals) == 0 {
		l.withdrawals = nil
	}
	if len(due) == 0 {
		return nil
	}
	l.withdrawing += len(due)
	return &payment{ledger: l, acts: sent, paid: func(outcomes []*weir.Act) {
		l.withdrawing -= len(due)
		l.refused = false
		for i, reply := range outcomes {
			if undecided(reply) {
				l.withdrawals, l.refused = append(l.withdrawals, due[i]), true
				continue
			}
			l.charge(-actBytes(due[i].act))
			l.add(-1)
			r.counts.reconciled.Add(1)
		}
	}}
}

// A delivery is the state of a debt that others wait for.
type delivery struct {
	busy     *flight // what is in flight; nil: nothing is
	failures int     // in a row
	failed   int64   // µs; when the last of them was counted
}

// A flight keeps acts about its key or ID from being sent. If its reply is late, they do not
// wait for it.
type flight struct {
	landed chan struct{} // closed when it has its reply
	late   atomic.Bool
}

// A debt that has failed maxFailures times in a row, at least between apart, is the background's
// alone, which repeats it after a pause: it may be that the store cannot do just this one.
const (
	maxFailures = 4
	apart       = int64(50 * time.Millisecond / time.Microsecond)
	repeatAfter = int64(5 * time.Second / time.Microsecond)
)

// send notes that the debt is in flight.
func (d *delivery) send() *flight {
	d.busy = &flight{landed: make(chan struct{})}
	return d.busy
}

// landed notes the outcome of the debt: an error because its node is unreachable is no failure of its
// own.
func (d *delivery) landed(now int64, err error) {
	close(d.busy.landed)
	switch d.busy = nil; {
	case err == nil:
		d.failures = 0
	case !isOut(err) && now-d.failed >= apart:
		d.failures, d.failed = d.failures+1, now
	}
}

// blocks reports whether acts have to wait for the debt.
func (d *delivery) blocks() bool { return d.failures < maxFailures }

// mayRepeat reports whether the background may pay the debt.
func (d *delivery) mayRepeat(now int64) bool {
	return d.busy == nil && (d.blocks() || now-d.failed >= repeatAfter)
}
