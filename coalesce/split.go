package coalesce

import (
	"context"

	"github.com/weirlimit/weir"
)

// maxCompared is how many charges a call may have to be split: each is compared
// with each.
const maxCompared = 64

// together reports whether the acts of a call leave in one batch: because all of
// them have the lane of the first, or because they have keys in common and have
// to be decided in their order.
func (c *Coalescer) together(l *lane, acts []*weir.Act) bool {
	one, charges := true, 0
	for _, a := range acts {
		one = one && c.lane(a) == l
		charges += len(a.Charges)
	}
	return one || charges > maxCompared || c.shared(acts)
}

// shared reports whether acts of different lanes have a key in common.
func (c *Coalescer) shared(acts []*weir.Act) bool {
	for i, a := range acts {
		for _, b := range acts[i+1:] {
			if meet(a, b) && c.lane(a) != c.lane(b) {
				return true
			}
		}
	}
	return false
}

func meet(a, b *weir.Act) bool {
	for i := range a.Charges {
		for j := range b.Charges {
			if a.Charges[i].Key == b.Charges[j].Key {
				return true
			}
		}
	}
	return false
}

// split decides acts of several lanes: all leave as soon as their lanes let them,
// and the call returns when all are decided.
func (c *Coalescer) split(ctx context.Context, acts []*weir.Act) {
	var tickets []ticket
	defer func() {
		for i := range tickets {
			tickets[i].await(ctx)
		}
	}()
	for {
		l := c.lane(acts[0])
		var same, others []*weir.Act
		for _, a := range acts {
			if c.lane(a) == l {
				same = append(same, a)
			} else {
				others = append(others, a)
			}
		}
		if len(others) == 0 {
			c.take(ctx, l, same)
			return
		}
		if t := c.send(ctx, l, same); t.batch != nil {
			tickets = append(tickets, t)
		}
		acts = others
	}
}

// send takes a place for the acts and does not wait: if the lane is idle, they
// leave at once, as a batch.
func (c *Coalescer) send(ctx context.Context, l *lane, acts []*weir.Act) ticket {
	t := c.board(ctx, l, acts, false)
	if t.claimed {
		t = c.board(ctx, l, acts, false)
		go c.run(l)
	}
	return t
}
