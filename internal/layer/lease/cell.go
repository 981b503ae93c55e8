package lease

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/yield"
)

// A cell has the units leased for acts with the same keys and limits, as many of each. Its
// shard's lock guards it.
type cell struct {
	hash    uint64        // of the keys
	charges []weir.Charge // without costs
	left    int64
	leased  int64           // units that count in the layer's total, at least those left
	at      time.Time       // the store's clock when they were charged
	granted []weir.Decision // of that charge
	taken   int64           // when they were asked for, in ns of our clock
	end     int64           // when they expire, in ns
	// window: they all expire with their windows, so there is nothing to return.
	window bool
	demand
	// short: the store granted less than it was asked for.
	short bool
	// waiting is how many units the callers ask for that wait for the refill.
	waiting int64
	ready   chan struct{} // closed by the refill; nil: none is in flight
	asked   int64         // when the refill was claimed, in ns
	touched int64
	removed bool // from the shard
}

// state is the outcome of an attempt to spend.
type state int

const (
	unwatched state = iota // ask the store as if there were no leases
	paid
	claimed // this caller refills the cell
	busy    // another caller refills it
)

// hash returns a hash of an act's keys.
func (l *Layer) hash(charges []weir.Charge) uint64 {
	h := uint64(0)
	for i := range charges {
		h = (h ^ maphash.String(l.seed, charges[i].Key)) * 0x9e3779b97f4a7c15
	}
	return h
}

func (l *Layer) shard(hash uint64) *shard { return &l.shards[hash>>(64-shardBits)] }

// spend pays the act with leased units, or claims the refill. If the keys had other limits
// before, it also returns the act that returns the units leased under those; nil if there are
// none.
func (l *Layer) spend(a *weir.Act) (c *cell, outcome state, expired *weir.Act) {
	hash, now := l.hash(a.Charges), l.now()
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	c = s.cells[hash]
	if c != nil && !c.matches(a) {
		// The units leased under the old limits are spent or expire before units of the new
		// ones are leased.
		if c.ready != nil || c.has(now) {
			return nil, unwatched, nil
		}
		expired = l.empty(c, now)
		l.remove(s, c)
		c = nil
	}
	if c == nil {
		if c = l.watch(s, hash, a, now); c == nil {
			return nil, unwatched, expired
		}
	}
	if now < c.taken {
		now = l.now() // a refill overtook this caller between the clock and the lock
	}
	c.touched = now
	if c.pay(a, now) {
		s.spent++
		return c, paid, nil
	}
	if c.ready != nil {
		c.waiting += a.Charges[0].Cost
		return c, busy, nil
	}
	if !c.pays(a.Charges[0].Cost, now, l.ahead) && !c.has(now) {
		c.spent += a.Charges[0].Cost
		return nil, unwatched, expired
	}
	c.ready, c.asked = make(chan struct{}), now
	return c, claimed, expired
}

// remove removes a cell from its shard.
func (l *Layer) remove(s *shard, c *cell) {
	c.left, c.removed = 0, true
	l.total.count(c, 0)
	delete(s.cells, c.hash)
}

// watch returns a new cell for an act, nil if there is no room or the act is invalid.
func (l *Layer) watch(s *shard, hash uint64, a *weir.Act, now int64) *cell {
	if len(s.cells) >= l.perShard || l.returner.stopped.Load() || acts.Prepare(a) {
		return nil
	}
	c := &cell{hash: hash, charges: make([]weir.Charge, len(a.Charges)), granted: make([]weir.Decision, len(a.Charges)), taken: now, demand: demand{from: now}}
	for i := range a.Charges {
		ch := &a.Charges[i]
		c.charges[i] = weir.Charge{Key: strings.Clone(ch.Key), HashTag: strings.Clone(ch.HashTag), Limit: ch.Limit}
	}
	s.cells[hash] = c
	return c
}

func (c *cell) matches(a *weir.Act) bool {
	if len(a.Charges) != len(c.charges) {
		return false
	}
	for i := range a.Charges {
		own, other := &c.charges[i], &a.Charges[i]
		if own.Key != other.Key || own.HashTag != other.HashTag || !own.Limit.Alike(other.Limit) {
			return false
		}
	}
	return true
}

// has reports whether leased units are left.
func (c *cell) has(now int64) bool { return c.left > 0 && now < c.end && now >= c.taken }

// spend takes units, if enough are left.
func (c *cell) spend(cost, now int64) bool {
	if c.left < cost || !c.has(now) {
		return false
	}
	c.left -= cost
	c.spent += cost
	return true
}

// remains returns the room of the i-th limit, as far as this instance knows, and the time
// until it is fresh.
func (c *cell) remains(i int, now int64) (int64, time.Duration) {
	return c.granted[i].Remaining + c.left, since(c.granted[i].ResetAfter, now-c.taken)
}

// pay grants the act if enough units are left.
func (c *cell) pay(a *weir.Act, now int64) bool {
	cost := a.Charges[0].Cost
	if !c.spend(cost, now) {
		return false
	}
	a.Err = nil
	for i := range a.Decisions {
		// In place: copying a decision that was just written stalls the processor.
		d := &a.Decisions[i]
		*d = weir.Decision{}
		d.Outcome, d.Source, d.Granted, d.At = weir.Granted, acts.SourceLease, cost, c.at
		d.Remaining, d.ResetAfter = c.remains(i, now)
	}
	return true
}

// wait waits for another caller's refill, once, and spends of it. If that does not suffice,
// the act goes to the store by itself, where it is batched.
func (l *Layer) wait(ctx context.Context, c *cell, a *weir.Act) state {
	s := l.shard(c.hash)
	s.mu.Lock()
	ready := c.ready
	s.mu.Unlock()
	if ready != nil {
		yield.Before(ctx)
		select {
		case <-ready:
		case <-ctx.Done():
			a.Err = fmt.Errorf("weir: take: %w: %w", weir.ErrNotApplied, context.Cause(ctx))
			return paid
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.pay(a, l.now()) {
		s.spent++
		return paid
	}
	return unwatched
}

// expire drops the leases of keys that an act resets: the store forgets their charges.
func (l *Layer) expire(a *weir.Act) {
	if a.Kind != acts.KindReset || !l.total.any(a.Charges) {
		return
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, c := range s.cells {
			if slices.ContainsFunc(c.charges, func(own weir.Charge) bool { return has(a.Charges, own.Key) }) {
				l.remove(s, c)
			}
		}
		s.mu.Unlock()
	}
}

func has(charges []weir.Charge, key string) bool {
	return slices.ContainsFunc(charges, func(c weir.Charge) bool { return c.Key == key })
}

// addLeased adds the units leased here to the result of a peek, if a take of the same charges
// would spend them.
func (l *Layer) addLeased(a *weir.Act) {
	if a.Err != nil || !l.leasable(a) || a.Charges[0].Cost > 0 {
		return
	}
	hash := l.hash(a.Charges)
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[hash]
	if c == nil || !c.matches(a) || !c.has(l.now()) {
		return
	}
	for i := range a.Decisions {
		a.Decisions[i].Remaining += c.left
	}
}

// minActs is how many acts a lease has to suffice for. Leasing units and returning those not
// spent in time is work for the store too: for fewer acts, more than it saves.
const minActs = 2

// A demand is how many units a cell was asked for since an instant, one to two lifetimes of
// a lease ago.
type demand struct {
	spent int64
	from  int64 // ns
}

// growth bounds a lease: so many times the units asked for so far.
const growth = 4

// during returns the demand during one lifetime of a lease.
func (d *demand) during(now, ahead int64) float64 {
	return float64(d.spent) * float64(ahead) / float64(max(now-d.from, ahead))
}

// next returns the size of the next lease: half of the demand during its lifetime, so that
// few units have to be returned. A demand seen for a shorter time is extrapolated.
func (d *demand) next(now, ahead int64) float64 {
	return min(float64(d.spent)*float64(ahead)/float64(2*max(now-d.from, 1)), float64(growth*d.spent))
}

// pays reports whether a lease is worth its cost for acts like this one.
func (d *demand) pays(cost, now, ahead int64) bool {
	recent := d.during(now, ahead)
	if now-d.from > 2*ahead {
		d.spent, d.from = int64(recent), now-ahead
	}
	return recent >= float64(2*minActs*cost)
}
