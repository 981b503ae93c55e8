package lease

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A trip is the acts that one Take sends to the store.
type trip struct {
	acts    []*weir.Act
	refills []*refill
}

// pass has an act of a call go on as it is.
func (t *trip) pass(a *weir.Act, acts []*weir.Act) {
	if len(acts) == 1 && len(t.acts) == 0 {
		t.acts = acts
	} else {
		t.acts = append(t.acts, a)
	}
}

// A refill is an act that leases units besides its own.
type refill struct {
	cell  *cell
	first *weir.Act // the caller's
	act   *weir.Act // the act sent: the caller's, or one of our own
	need  int64     // the part of the act's cost that the store charges
	extra int64     // the units to lease
	old   int64     // the part of the cost paid with the last leased units
	oldAt time.Time
	sent  int64
}

// refill adds an act whose cell its caller refills.
func (t *trip) refill(l *Layer, c *cell, a *weir.Act) {
	s := l.shard(c.hash)
	s.mu.Lock()
	k := &refill{cell: c, first: a, act: a, need: a.Charges[0].Cost, sent: c.asked}
	returned := l.empty(c, k.sent)
	if returned == nil && c.left > 0 {
		k.old, k.oldAt = c.left, c.at
		k.need -= c.left
		c.left = 0
	}
	k.extra = l.size(c, k.sent)
	c.waiting = 0
	s.mu.Unlock()

	if returned != nil {
		t.acts = append(t.acts, returned)
	}
	if k.extra > 0 || k.old > 0 {
		k.act = k.own()
	}
	t.refills = append(t.refills, k)
	t.acts = append(t.acts, k.act)
}

// own returns an act that takes the missing units, and the extra ones as far as they fit.
func (k *refill) own() *weir.Act {
	a := &weir.Act{Immediate: k.first.Immediate, Charges: make([]weir.Charge, len(k.first.Charges)), Decisions: make([]weir.Decision, len(k.first.Charges))}
	copy(a.Charges, k.first.Charges)
	for i := range a.Charges {
		a.Charges[i].Cost = k.need
		if k.extra > 0 {
			a.Charges[i].UpTo = min(k.need+k.extra, weir.MaxCost)
		}
	}
	return a
}

// size returns how many units to lease: by demand, and fewer where little is left. They count
// in the total.
func (l *Layer) size(c *cell, now int64) int64 {
	most := float64(weir.MaxCost)
	for i := range c.charges {
		if !c.at.IsZero() {
			most = min(most, float64(c.granted[i].Remaining)/4)
		}
	}
	if c.short {
		most = 0
	}
	// Callers that wait will spend at once, however little is left.
	return l.total.reserve(c, max(int64(min(c.next(now, l.ahead), most)), c.waiting), l.Part)
}

// send calls the store, and ends the claims in any case.
func (t *trip) send(ctx context.Context, l *Layer) {
	settled := 0
	defer func() {
		for _, k := range t.refills[settled:] {
			k.act.Err = weir.ErrAmbiguous
			l.settle(k)
		}
	}()
	l.next.Take(ctx, t.acts)
	for _, k := range t.refills {
		settled++
		l.settle(k)
	}
}

// settle stores the leased units and answers the caller.
func (l *Layer) settle(k *refill) {
	s := l.shard(k.cell.hash)
	s.mu.Lock()
	returned := l.file(k)
	close(k.cell.ready)
	k.cell.ready = nil
	s.mu.Unlock()
	k.answer()
	if returned != nil {
		l.next.Take(context.Background(), []*weir.Act{returned})
	}
}

// file puts the leased units into their cell. It returns an act that returns them to the
// store if the layer was stopped.
func (l *Layer) file(k *refill) *weir.Act {
	c := k.cell
	if k.act.Err != nil || !k.act.Allowed() {
		c.left += k.old // they still expire in time
		l.total.count(c, c.left)
		c.short = true
		return nil
	}
	granted := k.act.Decisions[0].Granted
	copy(c.granted, k.act.Decisions)
	c.left, c.at = granted-k.need, c.granted[0].At
	c.taken, c.spent = k.sent, c.spent+k.need+k.old
	c.short = granted < k.need+k.extra
	c.end = k.sent + l.ahead
	for i := range c.charges {
		c.end = min(c.end, c.windowEnd(i, k.sent))
	}
	c.window = true
	for i := range c.charges {
		c.window = c.window && c.windowEnd(i, k.sent) <= c.end
	}
	if c.left > 0 {
		l.counts.leases.Add(1)
	}
	if c.removed {
		c.left = 0 // the charge may have been reset since
	}
	l.total.count(c, c.left)
	if !l.returner.stopped.Load() {
		return nil
	}
	return l.empty(c, c.end)
}

// windowEnd returns the end of the i-th charge's window; forever if it has none. The store
// decided after the act was sent, so the window ends no earlier.
func (c *cell) windowEnd(i int, sent int64) int64 {
	if !algo.TraitsOf(c.charges[i].Limit.Algorithm).Windows {
		return forever
	}
	return sent + c.granted[i].ResetAfter.Nanoseconds()
}

// answer copies the decisions of our own act to the caller's.
func (k *refill) answer() {
	if k.act == k.first {
		return
	}
	k.first.Err = k.act.Err
	cost := k.first.Charges[0].Cost
	for i := range k.act.Decisions {
		d := k.act.Decisions[i]
		if d.Outcome == weir.Granted {
			d.Remaining += d.Granted - k.need
			d.Granted = cost
			if k.old > 0 && k.oldAt.Before(d.At) {
				// A refund at the earlier instant returns no more than still counts.
				d.At = k.oldAt
			}
		} else {
			d.Remaining += k.old
		}
		k.first.Decisions[i] = d
	}
}

// empty removes expired units and returns the act that returns them to the store; nil if
// there are none, or their window has ended.
func (l *Layer) empty(c *cell, now int64) *weir.Act {
	if c.left == 0 || now < c.end && now >= c.taken {
		return nil
	}
	left := c.left
	c.left = 0
	l.total.count(c, 0)
	if c.window {
		return nil
	}
	l.counts.returned.Add(uint64(left))
	a := &weir.Act{Kind: acts.KindRefund, Charges: make([]weir.Charge, len(c.charges)), Decisions: make([]weir.Decision, len(c.charges))}
	copy(a.Charges, c.charges)
	for i := range a.Charges {
		a.Charges[i].Cost, a.Charges[i].At = left, c.granted[i].At.UnixMicro()
	}
	return a
}

// since subtracts elapsed time from a wait.
func since(wait time.Duration, elapsed int64) time.Duration {
	if wait == weir.Never {
		return wait
	}
	return max(0, wait-time.Duration(elapsed).Truncate(time.Microsecond))
}
