package remote

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// localCharge returns the i-th charge of an act as it is made here: under the local share of
// its limit. The first charge of a key since the last call to the store, or since everything
// was reconciled, seeds the share from the last known state, if that is new.
// Without a location, the share is as it is.
func (r *Remote) localCharge(at *location, a *weir.Act, i int) weir.Charge {
	c := a.Charges[i]
	if c.Cost == 0 && c.Limit.ChargeRefused && algo.TraitsOf(c.Limit.Algorithm).Windows {
		// A peek at such a counter asks for the whole count.
		return c
	}
	n := max(1, r.Instances())
	shares, class := c.Limit.Shares()
	own := c
	own.Key = localKey(a, i, shares, class)
	if own.Limit, own.Keep = r.localShares.of(&c, shares, class, n); r.localShares.shares(shares, n) == nil {
		own.Guaranteed = false // the local share is too small to guarantee anything
	}
	if at == nil {
		return own
	}
	limit := at.ledger(i).begin(&c, r.now(), func(unrecorded int64) *weir.Limit {
		if own.Limit.Block > 0 {
			r.seedBlock(&c, &own, n, unrecorded)
		}
		left, news := r.left(&c, n)
		if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			return freeSlots(own.Limit, left) // which counts those that are taken here
		}
		if news {
			r.seed(&own, max(0, left-unrecorded))
		}
		return nil
	})
	if limit != nil {
		own.Limit = limit
	}
	return own
}

// localKey returns the key of the i-th charge of an act in the local store. That of a class
// is made from its budget's, so that all classes of a budget can be found, see fitClasses.
func localKey(a *weir.Act, i int, shares *weir.Shares, class string) string {
	if class != "" && i+1 < len(a.Charges) && a.Charges[i+1].Group == a.Charges[i].Group && a.Charges[i+1].Alt == a.Charges[i].Alt {
		if of, other := a.Charges[i+1].Limit.Shares(); of == shares && other == "" {
			return classKey(a.Charges[i+1].Key, class)
		}
	}
	return a.Charges[i].Key
}

func classKey(pool, class string) string { return pool + "\x00" + class }

// left is this instance's part of the units that are left of a key's limit by the last
// known state. news reports whether the local share does not have that state yet.
func (r *Remote) left(c *weir.Charge, instances int) (left int64, news bool) {
	left, news = r.lastKnown.remaining(c, instances, r.now())
	return max(left/int64(instances), min(1, left)), news
}

// seed charges a local share with the units that are not left.
func (r *Remote) seed(c *weir.Charge, left int64) {
	a := r.decideOne(acts.KindTake, c.Key, c.Limit, 0)
	spent := a.Decisions[0].Remaining - min(left, c.Limit.Capacity())
	if a.Err != nil || spent <= 0 {
		return
	}
	r.decideOne(acts.KindRecord, c.Key, c.Limit, spent)
	if own, class := c.Limit.Shares(); own != nil && class == "" {
		r.fitClasses(c.Key, own, left)
	}
}

// seedBlock blocks a key here if the store has, for as long, and ends a block that the store has
// ended.
func (r *Remote) seedBlock(c, own *weir.Charge, instances int, unrecorded int64) {
	switch left, news := r.lastKnown.block(c, instances, r.now()); {
	case left > 0:
		block := &weir.Act{Kind: acts.KindRecord, Charges: []weir.Charge{{Key: own.Key, Limit: own.Limit, Block: min(left, own.Limit.Block)}}, Decisions: make([]weir.Decision, 1)}
		r.local.Take(context.Background(), []*weir.Act{block})
	case news && unrecorded == 0:
		r.decideOne(acts.KindReset, own.Key, own.Limit, 0)
	}
}

// fitClasses reduces classes to the rest of their budget, if it cannot grant all of them
// at once: each keeps its part of the remaining units.
func (r *Remote) fitClasses(pool string, own *weir.Shares, left int64) {
	bursts := int64(0)
	for class := range own.Guarantees {
		bursts += own.Class(class).Burst
	}
	left = max(0, left-(own.Keep()-bursts)) // the difference allows for different resolutions
	if left >= bursts {
		return
	}
	for class := range own.Guarantees {
		key, limit := classKey(pool, class), own.Class(class)
		most := limit.Burst * left / bursts
		if r.decideOne(acts.KindTake, key, limit, 0).Decisions[0].Remaining >= most {
			r.decideOne(acts.KindReset, key, limit, 0) // also of a part of a unit
			r.decideOne(acts.KindRecord, key, limit, limit.Burst-most)
		}
	}
}

// decideOne has the local store decide an act with one charge.
func (r *Remote) decideOne(kind weir.Kind, key string, limit *weir.Limit, cost int64) *weir.Act {
	a := &weir.Act{Kind: kind, Charges: []weir.Charge{{Key: key, Limit: limit, Cost: cost}}, Decisions: make([]weir.Decision, 1)}
	r.local.Take(context.Background(), []*weir.Act{a})
	return a
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
	all  sync.Map // of localShare by *weir.Limit and *weir.Shares
	size atomic.Int64
}

// A localShare is a limit, or weir.Shares, divided by a number of instances.
type localShare struct {
	of        any
	instances int
}

// of returns the limit of a charge at one of n instances, and how many units it keeps free there.
func (s *localShares) of(c *weir.Charge, shares *weir.Shares, class string, n int) (limit *weir.Limit, keep int64) {
	own := s.shares(shares, n)
	switch {
	case shares == nil || c.Keep != shares.Keep():
		keep = (c.Keep + int64(n) - 1) / int64(n)
	case own != nil:
		keep = own.Keep()
	}
	switch {
	case own == nil:
		limit = localShareOf(s, c.Limit, n, divide)
	case class == "":
		limit = own.Pool()
	default:
		limit = own.Class(class)
	}
	return limit, keep
}

// shares returns the part of one of n instances; nil without shares, or if they are too small.
func (s *localShares) shares(shares *weir.Shares, n int) *weir.Shares {
	if shares == nil {
		return nil
	}
	return localShareOf(s, shares, n, (*weir.Shares).Divide)
}

func localShareOf[T any](s *localShares, whole T, n int, divide func(T, int) T) T {
	found, known := s.all.Load(whole)
	if known && found.(localShare).instances == n {
		return found.(localShare).of.(T)
	}
	part := divide(whole, n)
	if !known && s.size.Add(1) > maxLocalShares {
		s.all.Clear()
		s.size.Store(1)
	}
	s.all.Store(whole, localShare{part, n})
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
			panic("remote: no part of a compiled limit is valid: " + err.Error())
		}
		// The period has no exact resolution for these numbers.
		part.Count, part.Burst = max(1, part.Count/2), max(min(1, part.Burst), part.Burst/2)
	}
}
