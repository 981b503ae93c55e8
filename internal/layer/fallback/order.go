package fallback

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Three things keep the store from granting once more what was granted without it: a call
// to the store waits for local decisions of its keys that are being made (deciding) and
// for takes of its keys that an outage cut off (awaited), and carries the outstanding
// charges and amendments of its keys before its own acts (preceding).

// deciding are the local decisions that are being made.
type deciding struct {
	count  atomic.Int64
	shards [outstandingShards]sync.RWMutex
}

// begin locks the shards of an act's keys, in order, until end. Nothing that waits is
// called in between.
func (d *deciding) begin(a *weir.Act, o *outstanding) (shards uint64) {
	d.count.Add(1)
	for i := range a.Charges {
		shards |= 1 << o.shard(a.Charges[i].Key)
	}
	for i := range d.shards {
		if shards&(1<<i) != 0 {
			d.shards[i].RLock()
		}
	}
	return shards
}

func (d *deciding) end(shards uint64) {
	for i := range d.shards {
		if shards&(1<<i) != 0 {
			d.shards[i].RUnlock()
		}
	}
	d.count.Add(-1)
}

// wait waits for the decisions of a shard that are being made.
func (d *deciding) wait(shard int) {
	if d.count.Load() > 0 {
		d.shards[shard].Lock()
		//lint:ignore SA2001 Acquiring the lock is the wait.
		d.shards[shard].Unlock()
	}
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

// claimBefore returns what has to precede acts; nil if nothing has to. It waits for claims
// of other callers as long as ctx lasts, because theirs may fail.
func (l *Layer) claimBefore(ctx context.Context, acts []*weir.Act) *preceding {
	if l.outstanding.len() == 0 && l.ids.amendable() == 0 && l.deciding.count.Load() == 0 && l.awaited.count.Load() == 0 {
		return nil
	}
	var charges []*weir.Charge
	for _, a := range acts {
		if l.remote != nil && !l.remote.Reachable(a) {
			continue
		}
		for i := range a.Charges {
			c := &a.Charges[i]
			l.awaited.wait(ctx, c)
			l.deciding.wait(l.outstanding.shard(c.Key))
			charges = append(charges, c)
		}
	}
	// In one order everywhere, so that callers with keys in common do not block each other.
	slices.SortFunc(charges, func(a, b *weir.Charge) int { return cmp.Compare(a.Key, b.Key) })
	for {
		p, busy := l.claim(charges)
		if busy == nil {
			return p
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

// claim takes everything that has to precede some charges, or nothing if another caller
// has a part of it: busy is closed once that caller's call has ended.
func (l *Layer) claim(charges []*weir.Charge) (p *preceding, busy <-chan struct{}) {
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

// claimOne takes what has to precede one charge, as far as no other caller has it.
func (l *Layer) claimOne(p *preceding, c *weir.Charge) (busy <-chan struct{}) {
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

// unclaim returns claims that were not sent.
func (l *Layer) unclaim(p *preceding) {
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
