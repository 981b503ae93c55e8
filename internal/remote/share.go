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
func (l *Remote) localCharge(a *weir.Act, i int) weir.Charge {
	c := a.Charges[i]
	if c.Cost == 0 && c.Limit.ChargeRefused && algo.TraitsOf(c.Limit.Algorithm).Windows {
		// A peek at such a counter asks for the whole count.
		return c
	}
	n := max(1, l.Instances())
	own := c
	own.Key, own.Limit, own.Keep = localKey(a, i), l.localShares.limit(c.Limit, n), l.localShares.keep(&c, n)
	if shares, _ := own.Limit.Shares(); shares == nil {
		own.Guaranteed = false // the local share is too small to guarantee anything
	}
	limit, begun := l.outstanding.begun(&c)
	if !begun {
		// The remaining units depend on the calls in flight.
		l.boarding.wait(l.outstanding.shard(c.Key))
		limit = l.outstanding.begin(&c, l.now(), func(unrecorded int64) *weir.Limit {
			left, news := l.left(&c, n)
			if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
				return freeSlots(own.Limit, left) // which counts those that are taken here
			}
			if news {
				unrecorded += l.ids.unrecorded(&c, l.now()) + l.awaited.unrecorded(&c)
				l.seed(&own, max(0, left-unrecorded))
			}
			return nil
		})
	}
	if limit != nil {
		own.Limit = limit
	}
	return own
}

// localKey returns the key of the i-th charge of an act in the local store. That of a class
// is made from its budget's, so that all classes of a budget can be found, see fitClasses.
func localKey(a *weir.Act, i int) string {
	c := &a.Charges[i]
	shares, class := c.Limit.Shares()
	if class == "" || i+1 == acts.AltEnd(a, i) {
		return c.Key
	}
	pool := &a.Charges[i+1]
	if of, other := pool.Limit.Shares(); of != shares || other != "" {
		return c.Key
	}
	return classKey(pool.Key, class)
}

func classKey(pool, class string) string { return pool + "\x00" + class }

// left is this instance's part of the units that are left of a key's limit by the last
// known state, less those that waiting callers ask for. news reports whether the local share
// does not have that state yet.
func (l *Remote) left(c *weir.Charge, instances int) (left int64, news bool) {
	var known int64
	left = l.calls.Left(c.Key, c.Limit.Algorithm, func() int64 {
		known, news = l.lastKnown.remaining(c, instances, l.now())
		return known
	})
	if left < known {
		news = true
	}
	return max(left/int64(instances), min(1, left)), news
}

// seed charges a local share with the units that are not left.
func (l *Remote) seed(c *weir.Charge, left int64) {
	a := l.decideOne(acts.KindTake, c.Key, c.Limit, 0)
	spent := a.Decisions[0].Remaining - min(left, c.Limit.Capacity())
	if a.Err != nil || spent <= 0 {
		return
	}
	l.decideOne(acts.KindRecord, c.Key, c.Limit, spent)
	if own, class := c.Limit.Shares(); own != nil && class == "" {
		l.fitClasses(c.Key, own, left)
	}
}

// fitClasses reduces classes to the rest of their budget, if it cannot grant all of them
// at once: each keeps its part of the remaining units.
func (l *Remote) fitClasses(pool string, own *weir.Shares, left int64) {
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
		if l.decideOne(acts.KindTake, key, limit, 0).Decisions[0].Remaining >= most {
			l.decideOne(acts.KindReset, key, limit, 0) // also of a part of a unit
			l.decideOne(acts.KindRecord, key, limit, limit.Burst-most)
		}
	}
}

// decideOne has the local store decide an act with one charge.
func (l *Remote) decideOne(kind weir.Kind, key string, limit *weir.Limit, cost int64) *weir.Act {
	a := &weir.Act{Kind: kind, Charges: []weir.Charge{{Key: key, Limit: limit, Cost: cost}}, Decisions: make([]weir.Decision, 1)}
	l.local.Take(context.Background(), []*weir.Act{a})
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

// limit returns the share of one of n instances.
func (s *localShares) limit(limit *weir.Limit, n int) *weir.Limit {
	if shares, class := limit.Shares(); shares != nil {
		switch own := s.shares(shares, n); {
		case own == nil:
		case class == "":
			return own.Pool()
		default:
			return own.Class(class)
		}
	}
	return localShareOf(s, limit, n, divide)
}

// keep returns how many units a charge keeps free at one of n instances.
func (s *localShares) keep(c *weir.Charge, n int) int64 {
	if shares, _ := c.Limit.Shares(); shares != nil && c.Keep == shares.Keep() {
		if own := s.shares(shares, n); own != nil {
			return own.Keep()
		}
		return 0
	}
	return (c.Keep + int64(n) - 1) / int64(n)
}

func (s *localShares) shares(shares *weir.Shares, n int) *weir.Shares {
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
