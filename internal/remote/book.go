package remote

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A book is what is owed to the store: units of budgets, and acts about IDs, in order. Its lock
// is the only one between decisions that are made here and calls of the store: who decides
// here, or takes out a debt to pay it, holds it, and nobody waits for the store under it.
type book struct {
	most int
	size atomic.Int64 // debts, and those that hold the lock or wait for it

	mu      sync.Mutex // guards what follows
	budgets map[budget]*balance
	ids     map[idName]*entry
	byKey   map[string]map[*entry]struct{} // takes that were granted here, by key
	refunds int
	// withdrawals of takes with IDs, in any order: nothing waits for them. One in flight is
	// not among them.
	withdrawals []withdrawal
	withdrawing int
}

// A withdrawal is an act that is repeated until the store has acknowledged it.
type withdrawal struct {
	act   *weir.Act
	until int64 // µs; the store has forgotten the take then
}

func newBook(most int) *book {
	return &book{most: most, budgets: map[budget]*balance{}, ids: map[idName]*entry{}, byKey: map[string]map[*entry]struct{}{}}
}

func (b *book) lock() {
	b.size.Add(1)
	b.mu.Lock()
}

func (b *book) unlock() {
	b.mu.Unlock()
	b.size.Add(-1)
}

// empty reports whether nothing is owed, and nothing is being decided here.
func (b *book) empty() bool { return b.size.Load() == 0 }

// len is how many budgets and IDs something is owed about.
func (b *book) len() int {
	b.lock()
	defer b.unlock()
	return len(b.budgets) + len(b.ids) + len(b.withdrawals) + b.withdrawing
}

// A payment is acts that go to the store, in order. What they pay is in flight until paid is
// called with their outcomes, under the book's lock.
type payment struct {
	acts   []*weir.Act
	paid   func(outcomes []*weir.Act)
	flying *flying // nil: nobody waits for it
}

// A flying payment keeps acts about its key or ID from being sent. If its reply is late, they
// do not wait for it.
type flying struct {
	landed chan struct{} // closed when it has its reply
	late   atomic.Bool
}

// A budget is a key under an algorithm.
type budget struct {
	key       string
	algorithm weir.Algorithm
}

func budgetOf(c *weir.Charge) budget { return budget{c.Key, c.Limit.Algorithm} }

// A balance is what is owed about one budget. There is one, of 0 units, for each budget that
// has a local share.
type balance struct {
	name    budget
	hashTag string
	limit   *weir.Limit
	units   int64
	until   int64 // µs; all units have drained by then
	// The units of a log, ring or counter were granted since an instant, and the older ones
	// in the period before it.
	since, older int64
	paying       int64   // units in flight
	busy         *flying // nil: none are
	refunds      []*weir.Act
	refunding    int
	begun        bool        // local decisions have begun with it
	local        *weir.Limit // the limit that holds here, if it is not the local share
}

// balance returns the balance of a budget: a new one if there is none, and nil if there is no
// room.
func (b *book) balance(c *weir.Charge) *balance {
	d := b.budgets[budgetOf(c)]
	if d == nil && len(b.budgets) < b.most {
		d = &balance{name: budget{strings.Clone(c.Key), c.Limit.Algorithm}, hashTag: strings.Clone(c.HashTag), limit: c.Limit}
		b.budgets[d.name] = d
		b.size.Add(1)
	}
	return d
}

// tidy drops a balance of which nothing is left.
func (b *book) tidy(d *balance) {
	if d.units+d.older == 0 && d.busy == nil && len(d.refunds)+d.refunding == 0 && b.budgets[d.name] == d {
		delete(b.budgets, d.name)
		b.size.Add(-1)
	}
}

// begin returns the limit of a budget that holds here, nil for its local share. Its balance
// begins with the one that first returns, which gets the units that the store may not have
// recorded.
func (b *book) begin(c *weir.Charge, now int64, first func(unrecorded int64) *weir.Limit) *weir.Limit {
	d := b.balance(c)
	switch {
	case d == nil:
		return nil
	case !d.begun:
		d.age(now)
		unrecorded := d.units + d.older + d.paying
		for e := range b.byKey[c.Key] {
			for i := range e.take.Charges {
				if now < e.until && budgetOf(&e.take.Charges[i]) == d.name {
					unrecorded += localGrant(e.take, i)
				}
			}
		}
		d.begun, d.local = true, first(unrecorded)
	}
	return d.local
}

// add adds units that drain by until, or removes some. It returns false without room.
func (b *book) add(c *weir.Charge, units, now, until int64) bool {
	d := b.balance(c)
	if d == nil {
		return false
	}
	for i := 0; i < len(d.refunds) && units > 0; {
		own := &d.refunds[i].Charges[0]
		n := min(own.Cost, units)
		if len(d.refunds[i].Charges) > 1 {
			n = 0
		}
		own.Cost, units = own.Cost-n, units-n
		if own.Cost == 0 {
			d.refunds = slices.Delete(d.refunds, i, i+1)
			b.refunds--
			continue
		}
		i++
	}
	d.limit = c.Limit
	d.age(now)
	d.units = max(0, d.units+units)
	d.until = max(d.until, until)
	return true
}

// refund adds an act that refunds units, less those that the store has not recorded yet. It
// returns false without room.
func (b *book) refund(a *weir.Act) bool {
	d := b.balance(&a.Charges[0])
	if d == nil || b.refunds >= b.most {
		return false
	}
	if len(a.Charges) == 1 {
		n := min(d.units, a.Charges[0].Cost)
		d.units, a.Charges[0].Cost = d.units-n, a.Charges[0].Cost-n
	}
	if a.Charges[0].Cost > 0 || len(a.Charges) > 1 {
		d.refunds = append(d.refunds, a)
		b.refunds++
	}
	return true
}

// stays reports whether each unit counts for a period, and then less or no more.
func (d *balance) stays() bool {
	traits := algo.TraitsOf(d.limit.Algorithm)
	return traits.KeepsLog || traits.Buckets || d.limit.Algorithm == weir.SlidingCounter
}

// age forgets units that have drained.
func (d *balance) age(now int64) {
	if now >= d.until || d.units+d.older == 0 {
		d.units, d.older, d.since = 0, 0, now
	}
	for period := d.limit.Period.Microseconds(); d.stays() && now-d.since >= period && d.units+d.older > 0; {
		d.units, d.older, d.since = 0, d.units, d.since+period
	}
}

// due returns the units that the store lacks. It will count those of a log or ring for a whole
// period from now on, so that a unit of which a half is over counts as half a unit.
func (d *balance) due(now int64) int64 {
	if d.age(now); !d.stays() {
		return d.units
	}
	left := 1 - float64(now-d.since)/float64(d.limit.Period.Microseconds())
	return int64(math.Ceil((float64(d.units)*(1+left) + float64(d.older)*left*left) / 2))
}

// payUnits takes out the units of a balance, so that the next local decision begins anew; nil
// if there are none.
func (r *Remote) payUnits(d *balance) *payment {
	due := d.due(r.now())
	units, anonymous := min(due, d.limit.Capacity()), algo.TraitsOf(d.limit.Algorithm).HoldsSlots
	if anonymous {
		units = min(units, algo.MaxSlots)
	}
	was := *d
	d.units, d.older, d.begun, d.local = 0, 0, false, nil
	if due == 0 {
		r.book.tidy(d)
		return nil
	}
	d.paying, d.busy = was.units+was.older, &flying{landed: make(chan struct{})}
	return &payment{flying: d.busy, acts: []*weir.Act{{
		Kind: acts.KindRecord, Anonymous: anonymous,
		Charges:   []weir.Charge{{Key: d.name.key, HashTag: d.hashTag, Limit: d.limit, Cost: units, At: d.until}},
		Decisions: make([]weir.Decision, 1),
	}}, paid: func(outcomes []*weir.Act) {
		close(d.busy.landed)
		d.paying, d.busy = 0, nil
		switch err := outcomes[0].Err; {
		case err == nil:
			r.counts.recorded.Add(units)
			r.Reconciled(&outcomes[0].Charges[0])
		case notApplied(err):
			if d.units+d.older == 0 {
				d.since = was.since
			}
			d.units, d.older, d.since = d.units+was.units, d.older+was.older, min(d.since, was.since)
		default:
			r.counts.doubtful.Add(units)
		}
		r.book.tidy(d)
	}}
}

// payRefunds takes out the refunds of a balance.
func (r *Remote) payRefunds(d *balance) *payment {
	all := d.refunds
	d.refunds, d.refunding = nil, len(all)
	return &payment{acts: all, paid: func(outcomes []*weir.Act) {
		d.refunding = 0
		for _, a := range outcomes {
			r.book.refunds--
			switch c := &a.Charges[0]; {
			case a.Err == nil:
				r.counts.refunded.Add(a.Decisions[0].Granted)
				r.Reconciled(c)
			case notApplied(a.Err) && r.book.refund(a):
			default:
				r.counts.doubtful.Add(c.Cost)
			}
		}
		r.book.tidy(d)
	}}
}

// An idName is an ID and the owner of its scope or, without one, the key that it was first
// taken with.
type idName struct {
	scoped    bool
	owner, id string
}

func idOf(a *weir.Act) idName {
	if a.ID == "" || len(a.Charges) == 0 {
		return idName{}
	}
	if owner := a.Scope.Owner; owner != "" {
		return idName{true, owner, a.ID}
	}
	return idName{false, a.Charges[0].Key, a.ID}
}

// An entry is what is owed about one ID.
type entry struct {
	name  idName
	take  *weir.Act   // granted here: acts about the ID are decided here; nil: it was not
	acts  []*weir.Act // in order
	until int64       // µs; the ID lives until then
	busy  *flying     // the acts in flight; nil: none are
}

// enter returns the entry of an act's ID: a new one if there is none, and nil if there is no
// room.
func (b *book) enter(a *weir.Act, now int64) *entry {
	e := b.ids[idOf(a)]
	if e == nil && len(b.ids) < b.most {
		own := keptCopy(a)
		e = &entry{name: idOf(own), until: now + life(own)}
		b.ids[e.name] = e
		b.size.Add(1)
	}
	return e
}

// add adds an act about the ID.
func (e *entry) add(a *weir.Act) {
	own := keptCopy(a)
	own.Err = nil
	e.acts = append(e.acts, own)
}

// last returns the last act that is owed about the ID, or nil.
func (e *entry) last() *weir.Act {
	if len(e.acts) == 0 {
		return nil
	}
	return e.acts[len(e.acts)-1]
}

// granted returns the entry of an act's ID if its take was granted here; else nil.
func (b *book) granted(a *weir.Act, now int64) *entry {
	if e := b.ids[idOf(a)]; e != nil && e.take != nil && now < e.until {
		return e
	}
	return nil
}

// grant owes the store a take with an ID that was granted here. Acts about the ID are decided
// here until that is paid. Units granted without limit are not charged.
func (b *book) grant(a *weir.Act, now int64, unlimited func(*weir.Charge) bool) {
	take := keptCopy(a)
	for i := range take.Decisions {
		if unlimited(&take.Charges[i]) {
			take.Decisions[i].Granted = 0
		}
	}
	if old := b.ids[idOf(take)]; old != nil {
		b.remove(old)
	}
	e := b.enter(take, now)
	e.take = take
	e.add(take)
	e.acts[0].Kind = acts.KindAmend
	for i := range take.Charges {
		key := take.Charges[i].Key
		if b.byKey[key] == nil {
			b.byKey[key] = map[*entry]struct{}{}
		}
		b.byKey[key][e] = struct{}{}
	}
}

// remove drops an entry, whose ID the store answers from now on.
func (b *book) remove(e *entry) {
	if b.ids[e.name] != e {
		return
	}
	delete(b.ids, e.name)
	b.size.Add(-1)
	for i := 0; e.take != nil && i < len(e.take.Charges); i++ {
		key := e.take.Charges[i].Key
		if delete(b.byKey[key], e); len(b.byKey[key]) == 0 {
			delete(b.byKey, key)
		}
	}
}

// payEntry takes out the acts about an ID.
func (r *Remote) payEntry(e *entry) *payment {
	e.busy = &flying{landed: make(chan struct{})}
	sent := make([]*weir.Act, len(e.acts))
	for i := range sent {
		sent[i] = copyOf(e.acts[i])
	}
	return &payment{sent, func(outcomes []*weir.Act) { r.paidEntry(e, outcomes) }, e.busy}
}

// paidEntry notes the outcomes of the first acts about an ID.
func (r *Remote) paidEntry(e *entry, outcomes []*weir.Act) {
	close(e.busy.landed)
	e.busy = nil
	for _, reply := range outcomes {
		if undecided(reply) {
			return
		}
		e.acts = e.acts[1:]
		r.counts.reconciled.Add(1)
		for i := range reply.Charges {
			if reply.Err == nil {
				r.Reconciled(&reply.Charges[i])
			}
		}
	}
	if len(e.acts) == 0 {
		r.leave(e)
	}
}

// withdraw has an asking for a take withdrawn. It returns false without room.
func (b *book) withdraw(a *weir.Act, now int64) bool {
	if len(b.withdrawals)+b.withdrawing >= b.most {
		return false
	}
	own := keptCopy(a)
	own.Kind, own.Err = acts.KindWithdraw, nil
	b.withdrawals = append(b.withdrawals, withdrawal{own, now + life(a)})
	b.size.Add(1)
	return true
}

// payWithdrawals takes out some withdrawals.
func (r *Remote) payWithdrawals(most int) *payment {
	b := r.book
	var due []withdrawal
	var sent []*weir.Act
	n := min(most, len(b.withdrawals))
	for _, w := range b.withdrawals[:n] {
		if r.now() >= w.until {
			b.size.Add(-1)
			continue
		}
		due, sent = append(due, w), append(sent, copyOf(w.act))
	}
	if b.withdrawals = b.withdrawals[n:]; len(b.withdrawals) == 0 {
		b.withdrawals = nil
	}
	b.withdrawing += len(due)
	if len(due) == 0 {
		return nil
	}
	return &payment{acts: sent, paid: func(outcomes []*weir.Act) {
		b.withdrawing -= len(due)
		for i, reply := range outcomes {
			if undecided(reply) {
				b.withdrawals = append(b.withdrawals, due[i])
				continue
			}
			b.size.Add(-1)
			r.counts.reconciled.Add(1)
			for j := range reply.Charges {
				r.Reconciled(&reply.Charges[j])
			}
		}
	}}
}

// leave leaves an ID to the store, and frees the slots that it holds here. The next local
// decision counts the free slots again, because the store has granted these, and may have
// granted others.
func (r *Remote) leave(e *entry) {
	r.book.remove(e)
	if e.take == nil || !hasSlots(e.take) {
		return
	}
	for i := range e.take.Charges {
		if d := r.book.budgets[budgetOf(&e.take.Charges[i])]; d != nil {
			d.begun = false
			r.book.tidy(d)
		}
	}
	a := copyOf(e.take)
	a.Kind, a.Hold, a.MaxWait, a.Err = acts.KindRelease, 0, 0, nil
	r.decideLocally(a)
}

// hasSlots reports whether a take was granted slots.
func hasSlots(a *weir.Act) bool {
	for i := range a.Charges {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots && a.Decisions[i].Granted > 0 {
			return true
		}
	}
	return false
}

// copyOf returns an act with charges and decisions of its own.
func copyOf(a *weir.Act) *weir.Act {
	own := *a
	own.Charges, own.Decisions = slices.Clone(a.Charges), slices.Clone(a.Decisions)
	return &own
}

// keptCopy returns a copy whose texts are its own, too: a caller's may be in memory that is used
// again.
func keptCopy(a *weir.Act) *weir.Act {
	own := copyOf(a)
	own.ID, own.Scope.Owner = strings.Clone(a.ID), strings.Clone(a.Scope.Owner)
	for i := range own.Charges {
		c := &own.Charges[i]
		c.Key, c.HashTag = strings.Clone(c.Key), strings.Clone(c.HashTag)
	}
	return own
}

// life is how long an act's ID is remembered, in µs.
func life(a *weir.Act) int64 {
	granted, _ := acts.Lives(a)
	return granted.Microseconds()
}
