package remote

import (
	"cmp"
	"context"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Four mechanisms keep the store and local decisions from granting the same units twice.
// A call to the store waits for takes of its keys that an outage cut off (awaited) and
// for local decisions of its keys that are being made (deciding), and carries the
// outstanding charges and amendments of its keys before its own acts (preceding). Later
// local decisions start again from the store's state when the call is known to be in
// flight (boarding).

// shards are a set of the shards of keys.
type shards uint64

// deciding are the local decisions that are being made, one at a time for each shard,
// because each has to know the grants of the one before.
type deciding struct {
	count  atomic.Int64
	shards [outstandingShards]sync.Mutex
}

// begin locks the shards of an act's keys, in order, until end. Nothing that waits for the
// store is called in between.
func (d *deciding) begin(keys shards) {
	d.count.Add(1)
	d.exclude(keys)
}

func (d *deciding) end(keys shards) {
	d.admit(keys)
	d.count.Add(-1)
}

// exclude waits for the decision of each of some shards that is being made, and keeps others
// from beginning until admit.
func (d *deciding) exclude(keys shards) {
	for s := keys; s != 0; s &= s - 1 {
		d.shards[bits.TrailingZeros64(uint64(s))].Lock()
	}
}

func (d *deciding) admit(keys shards) {
	for s := keys; s != 0; s &= s - 1 {
		d.shards[bits.TrailingZeros64(uint64(s))].Unlock()
	}
}

// wait waits for the decisions of some shards that are being made.
func (d *deciding) wait(keys shards) {
	if d.count.Load() > 0 {
		d.exclude(keys)
		d.admit(keys)
	}
}

// grants are which of the local grants, by their numbers, was the last of a key. Keys that
// share an entry count as one.
type grants struct {
	seed   maphash.Seed
	number atomic.Int64
	last   [4096]atomic.Int64
}

func (g *grants) of(key string) *atomic.Int64 {
	return &g.last[maphash.String(g.seed, key)%uint64(len(g.last))]
}

func (g *grants) note(a *weir.Act) {
	for i := range a.Charges {
		if localGrant(a, i) > 0 {
			g.of(a.Charges[i].Key).Store(g.number.Add(1))
		}
	}
}

// since reports whether units of any of an act's keys were granted after a number.
func (g *grants) since(a *weir.Act, number int64) bool {
	for i := range a.Charges {
		if g.of(a.Charges[i].Key).Load() > number {
			return true
		}
	}
	return false
}

// boarding are the calls that look for local decisions of their keys, or have, and that the
// remote Taker does not know yet. They wait for nothing.
type boarding struct {
	shards [outstandingShards]struct {
		sync.RWMutex
		_ [40]byte // to the end of a cache line
	}
}

func (b *boarding) begin(keys shards) {
	for s := keys; s != 0; s &= s - 1 {
		b.shards[bits.TrailingZeros64(uint64(s))].RLock()
	}
}

func (b *boarding) end(keys shards) {
	for s := keys; s != 0; s &= s - 1 {
		b.shards[bits.TrailingZeros64(uint64(s))].RUnlock()
	}
}

// Registered ends the boarding of a call whose keys have some shards.
func (b *boarding) Registered(keys uint64) { b.end(shards(keys)) }

// wait waits for the calls of a shard.
func (b *boarding) wait(shard int) {
	b.shards[shard].Lock()
	//lint:ignore SA2001 Acquiring the lock is the wait.
	b.shards[shard].Unlock()
}

// awaited are the acts that were decided by policy and whose replies are awaited. Until it
// is known which of them the store refused, nothing that it granted beyond the answers is
// refunded: another caller would take it.
type awaited struct {
	count   atomic.Int64
	mu      sync.Mutex // guards budgets
	budgets map[budget]*awaitedActs
}

// awaitedActs are those of one budget.
type awaitedActs struct {
	count int
	units int64 // granted to them here
	// cutOff is how many of them were in flight when their node became unreachable; none
	// is closed when there are none left.
	cutOff int
	none   chan struct{}
}

// maxCutOffWait bounds how long an act waits for acts of its key that an outage cut off: on
// another connection it could overtake them. A reply that comes later still is reconciled.
const maxCutOffWait = 50 * time.Millisecond

func (w *awaited) begin(a *weir.Act, cutOff bool) {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.budgets == nil {
		w.budgets = map[budget]*awaitedActs{}
	}
	for i := range a.Charges {
		key := budgetOf(&a.Charges[i])
		own := w.budgets[key]
		if own == nil {
			own = &awaitedActs{none: make(chan struct{})}
			w.budgets[key] = own
		}
		own.units += localGrant(a, i)
		if own.count++; cutOff {
			own.cutOff++
		}
	}
}

func (w *awaited) end(a *weir.Act, cutOff bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range a.Charges {
		key := budgetOf(&a.Charges[i])
		own := w.budgets[key]
		own.units -= localGrant(a, i)
		if own.count--; own.count == 0 {
			delete(w.budgets, key)
		}
		if cutOff {
			if own.cutOff--; own.cutOff == 0 {
				close(own.none)
				own.none = make(chan struct{})
			}
		}
	}
	w.count.Add(-1)
}

// any reports whether replies under any key of an act are awaited.
func (w *awaited) any(a *weir.Act) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range a.Charges {
		if w.budgets[budgetOf(&a.Charges[i])] != nil {
			return true
		}
	}
	return false
}

// unrecorded is how many units of a budget were granted here to acts whose replies are awaited.
func (w *awaited) unrecorded(c *weir.Charge) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if own := w.budgets[budgetOf(c)]; own != nil {
		return own.units
	}
	return 0
}

// wait waits for the replies of a budget that an outage cut off, for maxCutOffWait.
func (w *awaited) wait(ctx context.Context, c *weir.Charge) {
	w.mu.Lock()
	var none chan struct{}
	if own := w.budgets[budgetOf(c)]; own != nil && own.cutOff > 0 {
		none = own.none
	}
	w.mu.Unlock()
	if none == nil {
		return
	}
	timer := time.NewTimer(maxCutOffWait)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// preceding are the outstanding charges and amendments that go to the store in one call
// with some acts, before them.
type preceding struct {
	records    []*weir.Act
	amendments []amendment
}

// board returns the acts that have to precede acts, or nil if none has to, and marks the
// call as boarding. It waits for claims of other callers, because theirs may fail; if ctx
// ends first, it returns false.
func (l *Remote) board(ctx context.Context, acts []*weir.Act, keys shards) (first *preceding, boards bool) {
	l.boarding.begin(keys)
	if l.outstanding.len() == 0 && l.ids.len() == 0 && l.deciding.count.Load() == 0 && l.awaited.count.Load() == 0 {
		return nil, true
	}
	l.boarding.end(keys)
	var charges []*weir.Charge
	for _, a := range acts {
		for i := range a.Charges {
			c := &a.Charges[i]
			l.awaited.wait(ctx, c)
			charges = append(charges, c)
		}
	}
	// In one order everywhere, so that callers with keys in common do not block each other.
	slices.SortFunc(charges, func(a, b *weir.Charge) int { return cmp.Compare(a.Key, b.Key) })
	for {
		p, busy := l.claimAndBoard(charges, keys)
		if busy == nil {
			return p, true
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// claimAndBoard claims while nothing is decided locally that the claim could miss. The call
// is boarding then, unless another caller's is busy.
func (l *Remote) claimAndBoard(charges []*weir.Charge, keys shards) (p *preceding, busy <-chan struct{}) {
	l.deciding.exclude(keys)
	defer l.deciding.admit(keys)
	l.boarding.begin(keys)
	if p, busy = l.claim(charges); busy != nil {
		l.boarding.end(keys)
	}
	return p, busy
}

// claim takes everything that has to precede some charges, or nothing if another caller
// has a part of it: busy is closed once that caller's call has ended.
func (l *Remote) claim(charges []*weir.Charge) (p *preceding, busy <-chan struct{}) {
	p = new(preceding)
	for _, c := range charges {
		if busy = l.claimOne(p, c); busy != nil {
			l.unclaim(p)
			return nil, busy
		}
	}
	if len(p.records) == 0 && len(p.amendments) == 0 {
		return nil, nil
	}
	return p, nil
}

// claimOne claims the acts that have to precede one charge, unless another caller has
// claimed them.
func (l *Remote) claimOne(p *preceding, c *weir.Charge) (busy <-chan struct{}) {
	claimed := func(a *weir.Act) bool { return budgetOf(&a.Charges[0]) == budgetOf(c) }
	if !slices.ContainsFunc(p.records, claimed) {
		record, recording := l.outstanding.claim(c, l.now())
		if record != nil {
			p.records = append(p.records, record)
		}
		busy = recording
	}
	amendments, amending := l.ids.claim(c.Key, l.now(), l.awaited.any, p.amendments)
	p.amendments = amendments
	return cmp.Or(busy, amending)
}

// unclaim returns claims that are not sent.
func (l *Remote) unclaim(p *preceding) {
	for _, a := range p.records {
		l.outstanding.restore(a, l.now())
		l.outstanding.done(&a.Charges[0])
	}
	for i := range p.amendments {
		l.ids.replyTo(p.amendments[i].of)
	}
}

// and returns p's acts and the given ones, in the order in which they are decided.
func (p *preceding) and(acts []*weir.Act) []*weir.Act {
	all := make([]*weir.Act, 0, len(p.records)+len(p.amendments)+len(acts))
	all = append(all, p.records...)
	for i := range p.amendments {
		all = append(all, p.amendments[i].Act)
	}
	return append(all, acts...)
}
