package lease

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// A trip is what one Take sends to the store.
type trip struct {
	down []*weir.Act
	asks []*ask
}

// An ask is an act that takes a share along.
type ask struct {
	cell  *cell
	first *weir.Act // the caller's
	act   *weir.Act // what is sent: the caller's, or one of our own
	need  int64     // of the act's cost, what is asked of the store
	share int64     // beyond that
	old   int64     // what is paid from the last share
	oldAt int64
	sent  int64
}

// ask adds an act whose cell its caller refills.
func (t *trip) ask(l *Leaser, c *cell, a *weir.Act) {
	s := l.shard(c.charges[0].Key)
	s.mu.Lock()
	k := &ask{cell: c, first: a, act: a, need: a.Charges[0].Cost, sent: c.asked}
	returned := l.empty(c, k.sent)
	if returned == nil && c.left > 0 {
		k.old, k.oldAt = c.left, c.at
		k.need -= c.left
		c.left = 0
	}
	k.share = l.share(c, k.sent)
	c.waiting = 0
	s.mu.Unlock()

	if returned != nil {
		t.down = append(t.down, returned)
	}
	if k.share > 0 || k.old > 0 {
		k.act = k.own()
	}
	t.asks = append(t.asks, k)
	t.down = append(t.down, k.act)
}

// own makes an act that takes what is missing and the share, as far as that fits.
func (k *ask) own() *weir.Act {
	a := &weir.Act{Immediate: k.first.Immediate, Charges: make([]weir.Charge, len(k.first.Charges)), Decisions: make([]weir.Decision, len(k.first.Charges))}
	copy(a.Charges, k.first.Charges)
	for i := range a.Charges {
		a.Charges[i].Cost = k.need
		if k.share > 0 {
			a.Charges[i].UpTo = min(k.need+k.share, weir.MaxCost)
		}
	}
	return a
}

// share says how much to take ahead: what demand suggests, and less where little is
// left.
func (l *Leaser) share(c *cell, now int64) int64 {
	part, most := float64(weir.MaxCost), float64(weir.MaxCost)
	for i := range c.charges {
		limit := c.charges[i].Limit
		part = min(part, l.part*float64(limit.Count), float64(limit.Capacity()))
		if most = min(part, most); c.at > 0 {
			most = min(most, float64(c.said[i].Remaining)/4)
		}
	}
	if c.short {
		most = 0
	}
	// Who waits already will spend at once, however little is left.
	return max(int64(min(c.next(now, l.ahead), most)), min(c.waiting, int64(part)))
}

// send asks the store, and ends the claims whatever happens there.
func (t *trip) send(ctx context.Context, l *Leaser) {
	settled := 0
	defer func() {
		for _, k := range t.asks[settled:] {
			k.act.Err = weir.ErrAmbiguous
			l.settle(k)
		}
	}()
	l.next.Take(ctx, t.down)
	for _, k := range t.asks {
		settled++
		l.settle(k)
	}
}

// settle files what the store has given and answers the caller.
func (l *Leaser) settle(k *ask) {
	s := l.shard(k.cell.charges[0].Key)
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

// file puts the share into its cell. It returns what nobody is there for any more.
func (l *Leaser) file(k *ask) *weir.Act {
	c := k.cell
	if k.act.Err != nil || !k.act.Allowed() {
		c.left += k.old // which its end still bounds
		c.short = true
		return nil
	}
	granted := k.act.Decisions[0].Granted
	copy(c.said, k.act.Decisions)
	c.left, c.at = granted-k.need, c.said[0].At
	c.taken, c.spent = k.sent, c.spent+k.need+k.old
	c.short = granted < k.need+k.share
	c.end, c.window = k.sent+l.ahead, false
	for i := range c.charges {
		// The store decided after the question was sent, so that its window ends no
		// earlier than this.
		if c.charges[i].Limit.Algorithm == weir.FixedWindow && k.sent+c.said[i].ResetAfter.Nanoseconds() <= c.end {
			c.end, c.window = k.sent+c.said[i].ResetAfter.Nanoseconds(), true
		}
	}
	if c.left > 0 {
		l.counts.shares.Add(1)
	}
	if c.gone {
		c.left = 0 // what was charged may have been forgotten since
	}
	if !l.keeping.stopped.Load() {
		return nil
	}
	return l.empty(c, c.end)
}

// answer tells the caller what the store has said to the act of our own.
func (k *ask) answer() {
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
			if k.old > 0 {
				// A refund at the earlier instant gives back no more than counts.
				d.At = min(d.At, k.oldAt)
			}
		} else {
			d.Remaining += k.old
		}
		k.first.Decisions[i] = d
	}
}

// empty takes what is left of a share whose time is over, and returns the act that
// gives it back; nil if there is nothing, or it is worth nothing.
func (l *Leaser) empty(c *cell, now int64) *weir.Act {
	if c.left == 0 || now < c.end && now >= c.taken {
		return nil
	}
	left := c.left
	c.left = 0
	if c.window {
		return nil
	}
	l.counts.returned.Add(uint64(left))
	a := &weir.Act{Kind: weir.KindRefund, Charges: make([]weir.Charge, len(c.charges)), Decisions: make([]weir.Decision, len(c.charges))}
	copy(a.Charges, c.charges)
	for i := range a.Charges {
		a.Charges[i].Cost, a.Charges[i].At = left, c.said[i].At
	}
	return a
}

// since takes the time that has passed off a wait.
func since(wait time.Duration, elapsed int64) time.Duration {
	if wait == weir.Never {
		return wait
	}
	return max(0, wait-time.Duration(elapsed).Truncate(time.Microsecond))
}
