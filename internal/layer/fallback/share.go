package fallback

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// localLimit returns the limit that holds for a charge here: its local share. The first
// charge of a key since everything was reconciled seeds the share from the last known state.
func (l *Layer) localLimit(c *weir.Charge) *weir.Limit {
	if c.Cost == 0 && c.Limit.ChargeRefused && c.Limit.Algorithm.Traits().Windows {
		// A peek at such a counter asks for the whole count.
		return c.Limit
	}
	n := max(1, l.instances())
	share := l.localShares.of(c.Limit, n)
	own := l.outstanding.begin(c, func() *weir.Limit {
		left := l.left(c, n)
		if c.Limit.Algorithm.Traits().HoldsSlots {
			return freeSlots(share, left)
		}
		l.seedFromLastKnown(c, share, left)
		return nil
	})
	if own != nil {
		return own
	}
	return share
}

// left is this instance's part of the units that are left of a key's limit by the last
// known state, less those that waiting callers ask for.
func (l *Layer) left(c *weir.Charge, instances int) int64 {
	left := l.lastKnown.remaining(c, l.now())
	if l.remote != nil {
		left = max(0, left-l.remote.InFlight(c.Key, c.Limit.Algorithm))
	}
	return max(left/int64(instances), min(1, left))
}

// seedFromLastKnown charges the share with what the store had already spent when it last
// answered.
func (l *Layer) seedFromLastKnown(c *weir.Charge, share *weir.Limit, left int64) {
	a := weir.Act{Charges: []weir.Charge{{Key: c.Key, HashTag: c.HashTag, Limit: share}}, Decisions: make([]weir.Decision, 1)}
	l.local.Take(context.Background(), []*weir.Act{&a})
	if spent := a.Decisions[0].Remaining - min(left, share.Capacity()); a.Err == nil && spent > 0 {
		a.Kind, a.Charges[0].Cost = weir.KindRecord, spent
		l.local.Take(context.Background(), []*weir.Act{&a})
	}
}

// freeSlots returns a concurrency limit of the slots that are left.
func freeSlots(share *weir.Limit, left int64) *weir.Limit {
	if left >= share.Count {
		return share
	}
	part := *share
	part.Count = left
	return part.MustCompile()
}

// maxLocalShares is how many limits' shares are kept before all are dropped: more than a server
// has rules, and a bound on the memory of limits that come with requests.
const maxLocalShares = 4096

// localShares are the local shares of limits. At the begin of an outage all may be needed at once.
type localShares struct {
	all  sync.Map // of localShare by *weir.Limit
	size atomic.Int64
}

// A localShare is a limit divided by a number of instances.
type localShare struct {
	limit     *weir.Limit
	instances int
}

// of returns the share of one of n instances.
func (s *localShares) of(limit *weir.Limit, n int) *weir.Limit {
	found, known := s.all.Load(limit)
	if known && found.(localShare).instances == n {
		return found.(localShare).limit
	}
	part := divide(limit, n)
	if !known && s.size.Add(1) > maxLocalShares {
		s.all.Clear()
		s.size.Store(1)
	}
	s.all.Store(limit, localShare{part, n})
	return part
}

// divide divides a limit by n, to no less than 1.
func divide(limit *weir.Limit, n int) *weir.Limit {
	part := *limit
	part.Count = max(1, part.Count/int64(n))
	if part.Burst > 0 {
		part.Burst = max(1, part.Burst/int64(n))
	}
	for {
		compiled, err := part.Compile()
		if err == nil {
			return compiled
		}
		if part.Count == 1 && part.Burst <= 1 {
			panic("fallback: no part of a compiled limit is valid: " + err.Error())
		}
		// The period has no exact resolution for these numbers.
		part.Count, part.Burst = max(1, part.Count/2), max(min(1, part.Burst), part.Burst/2)
	}
}
