package calls

import (
	"context"

	"github.com/weirlimit/weir"
)

// maxCompared is how many charges a call may have to be split: each is compared
// with each.
const maxCompared = 64

// sameLane reports whether all acts have the lane of the first.
func (c *Lanes) sameLane(l *lane, acts []*weir.Act) bool {
	for _, a := range acts[1:] {
		if c.lane(a) != l {
			return false
		}
	}
	return true
}

// shared returns the lane for acts that have to be in one batch although their lanes
// differ: they have keys in common, so that their order counts, or are too many to
// compare. It returns nil if each can use its own lane: acts of one charge with a key in
// common have the same lane anyway.
func (c *Lanes) shared(acts []*weir.Act) *lane {
	charges, most, n := 0, 0, c.lane(acts[0]).node
	for _, a := range acts {
		charges += len(a.Charges)
		most = max(most, len(a.Charges))
		if c.lane(a).node != n {
			n = nil
		}
	}
	if most <= 1 || charges <= maxCompared && !c.meet(acts) {
		return nil
	}
	if n == nil {
		return &c.node(several).lanes[0]
	}
	return c.lane(acts[0])
}

// meet reports whether acts of different lanes have a key in common.
func (c *Lanes) meet(acts []*weir.Act) bool {
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

// split boards acts of several lanes. Each lane sends its acts as soon as it can.
func (c *Lanes) split(ctx context.Context, outages int64, acts []*weir.Act) (tickets []*ticket) {
	for len(acts) > 0 {
		var same []*weir.Act
		l := c.lane(acts[0])
		same, acts = c.apart(l, acts)
		if t := c.ticket(ctx, outages, l, same); t.board() {
			tickets = append(tickets, t)
		}
	}
	return tickets
}

// apart divides acts into those of a lane and the others.
func (c *Lanes) apart(l *lane, acts []*weir.Act) (same, others []*weir.Act) {
	for _, a := range acts {
		if c.lane(a) == l {
			same = append(same, a)
		} else {
			others = append(others, a)
		}
	}
	return same, others
}
