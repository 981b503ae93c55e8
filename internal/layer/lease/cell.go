package lease

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A cell is what this instance holds for the charges of one kind of act: as many
// units of each as left says. Its shard's lock guards it.
type cell struct {
	charges []weir.Charge // without costs
	left    int64
	at      int64           // the store's clock when the share was charged
	said    []weir.Decision // of that charge
	taken   int64           // ns, our clock: when the share was asked for
	end     int64           // ns: from when on it must not be spent
	// window says that a window ends then: what is left is worth nothing.
	window bool
	demand
	// short says that the store gave less than it was asked for.
	short bool
	// waiting is what those who wait for the refill will spend.
	waiting int64
	ready   chan struct{} // closed by the refill; nil: none is under way
	asked   int64         // ns: when the refill was claimed, and the share found wanting
	touched int64
	gone    bool // no longer among the cells
}

// state is what became of an attempt to spend.
type state int

const (
	unwatched state = iota // ask the store as if there were no leases
	paid
	claimed // this caller refills the cell
	busy    // another caller does
)

func (l *Leaser) shard(key string) *shard {
	return &l.shards[maphash.String(l.seed, key)%shardCount]
}

// spend pays the act from its share, or claims the refill.
func (l *Leaser) spend(a *weir.Act) (*cell, state) {
	key, now := a.Charges[0].Key, l.now()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[key]
	if c != nil && !c.matches(a) {
		// Another limit for the key. What is left under the old one goes back, or is
		// over, before there are shares of the new one.
		if c.ready != nil || c.left > 0 && now < c.end {
			return nil, unwatched
		}
		c.gone, c = true, nil
	}
	if c == nil {
		if c = l.watch(s, a, now); c == nil {
			return nil, unwatched
		}
	}
	if now < c.taken {
		now = l.now() // a refill overtook this caller between the clock and the lock
	}
	c.touched = now
	if c.pay(a, now) {
		s.spent++
		return c, paid
	}
	if c.ready != nil {
		c.waiting += a.Charges[0].Cost
		return c, busy
	}
	if !c.pays(a.Charges[0].Cost, now, l.ahead) {
		return nil, unwatched
	}
	c.ready, c.asked = make(chan struct{}), now
	return c, claimed
}

// watch makes a cell for an act, if there is room and the act is sound.
func (l *Leaser) watch(s *shard, a *weir.Act, now int64) *cell {
	if len(s.cells) >= l.perShard || l.keeping.stopped.Load() || a.Prepare() {
		return nil
	}
	c := &cell{charges: make([]weir.Charge, len(a.Charges)), said: make([]weir.Decision, len(a.Charges)), taken: now, demand: demand{from: now}}
	for i := range a.Charges {
		ch := &a.Charges[i]
		c.charges[i] = weir.Charge{Key: strings.Clone(ch.Key), HashTag: strings.Clone(ch.HashTag), Limit: ch.Limit}
	}
	s.cells[c.charges[0].Key] = c
	return c
}

func (c *cell) matches(a *weir.Act) bool {
	if len(a.Charges) != len(c.charges) {
		return false
	}
	for i := range a.Charges {
		if a.Charges[i].Limit != c.charges[i].Limit || a.Charges[i].Key != c.charges[i].Key || a.Charges[i].HashTag != c.charges[i].HashTag {
			return false
		}
	}
	return true
}

// spend takes from what is left, if that suffices.
func (c *cell) spend(cost, now int64) bool {
	if c.left < cost || now >= c.end || now < c.taken {
		return false
	}
	c.left -= cost
	c.spent += cost
	return true
}

// remains is what the i-th limit has room for now, as far as this instance knows, and
// how long until it is fresh.
func (c *cell) remains(i int, now int64) (int64, time.Duration) {
	return c.said[i].Remaining + c.left, since(c.said[i].ResetAfter, now-c.taken)
}

// pay answers the act from what is left, if that suffices.
func (c *cell) pay(a *weir.Act, now int64) bool {
	cost := a.Charges[0].Cost
	if !c.spend(cost, now) {
		return false
	}
	a.Err = nil
	for i := range a.Decisions {
		// In place: a copy of what was written just before would have to wait for that.
		d := &a.Decisions[i]
		*d = weir.Decision{}
		d.Outcome, d.Source, d.Granted, d.At = weir.Granted, weir.SourceLease, cost, c.at
		d.Remaining, d.ResetAfter = c.remains(i, now)
	}
	return true
}

// wait waits for another caller's refill, once, and spends of it. What it does not
// suffice for goes to the store by itself: there it meets others.
func (l *Leaser) wait(ctx context.Context, c *cell, a *weir.Act) state {
	s := l.shard(a.Charges[0].Key)
	s.mu.Lock()
	ready := c.ready
	s.mu.Unlock()
	if ready != nil {
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

// aside ends the shares of keys that an act resets: what was charged is forgotten.
func (l *Leaser) aside(a *weir.Act) {
	if a.Kind != weir.KindReset {
		return
	}
	for i := range a.Charges {
		s := l.shard(a.Charges[i].Key)
		s.mu.Lock()
		if c := s.cells[a.Charges[i].Key]; c != nil {
			c.left, c.gone = 0, true
			delete(s.cells, a.Charges[i].Key)
		}
		s.mu.Unlock()
	}
}

// look adds what is left here to what a look has found in the store.
func (l *Leaser) look(a *weir.Act) {
	if a.Kind != weir.KindTake || a.Err != nil {
		return
	}
	for i := range a.Charges {
		ch := &a.Charges[i]
		if ch.Cost != 0 || ch.Limit == nil {
			continue
		}
		s := l.shard(ch.Key)
		s.mu.Lock()
		if c := s.cells[ch.Key]; c != nil && c.charges[0].Limit == ch.Limit && l.now() < c.end {
			a.Decisions[i].Remaining += c.left
		}
		s.mu.Unlock()
	}
}
