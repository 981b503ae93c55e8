// Package denycache remembers refusals. A refusal says how long nothing of its
// cost will fit; until then the same question is refused here, and costs the
// store nothing. It wraps any [weir.Taker].
package denycache

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// What the fields of [Options] are if they are zero.
const (
	// DefaultEntries is how many refusals are remembered.
	DefaultEntries = 1 << 16
	// DefaultMaxAge is how long one is believed.
	DefaultMaxAge = time.Second
)

// maxKeyBytes is the length of the longest key that is remembered, so that a
// number of entries is a bound of memory.
const maxKeyBytes = 1 << 10

const maxEntries = 1 << 26

// Options are the settings of a [Cache]. The zero value is a good one.
type Options struct {
	// Entries bounds how many refusals are remembered; it is rounded up to a
	// power of two. One takes about 200 bytes and its key, at most 1 KiB. Zero:
	// [DefaultEntries]; at most 2²⁶.
	Entries int
	// MaxAge is how long a refusal is believed before the store is asked again,
	// and so how long another process's refund or reset may go unnoticed where
	// nobody calls Forget. Zero: [DefaultMaxAge].
	MaxAge time.Duration
	// Returned, if not nil, is called with the keys that a refund, a settling, a
	// release or a reset has given units back to, for the caches of other
	// processes to Forget them. It is called by the caller of Take, after the
	// store has answered, and must not wait.
	Returned func(keys []string)
	// Now is the clock by which refusals end. Nil: the machine's, whose steps do
	// not count.
	Now func() time.Time
}

// A Cache is a [weir.Taker] that asks another one, except for takes that it knows
// would be refused. It is safe for concurrent use and starts nothing. Create it
// with Wrap.
//
// What it refuses, the store would refuse: without a charge, with the source
// [weir.SourceDenyCache], and with the RetryAfter and ResetAfter that the store
// would tell, as far as this process knows: where charges of a smaller cost are
// granted to other processes meanwhile, the wait has become longer. Remaining is
// what there was when the store refused; where the cost is above one it may have
// grown since. Where a larger cost than the refused one is asked of gcra or
// leaky_bucket, RetryAfter may be one unit of the limit's resolution too long.
// The other charges of the act are [weir.NotEvaluated].
//
// Acts with an id, a hold or a MaxWait and looks go to the store, as do
// concurrency limits, whose places come back at any time, and those of
// ChargeRefused but fixed_window.
type Cache struct {
	next     weir.Taker
	table    table
	maxAge   int64 // ns
	returned func([]string)
	now      func() int64 // ns
	counters counters
}

// Wrap returns a Cache that asks next.
func Wrap(next weir.Taker, o Options) *Cache {
	if o.Entries <= 0 {
		o.Entries = DefaultEntries
	}
	if o.MaxAge <= 0 {
		o.MaxAge = DefaultMaxAge
	}
	c := &Cache{next: next, table: newTable(min(o.Entries, maxEntries)), maxAge: o.MaxAge.Nanoseconds(), returned: o.Returned, now: monotonic()}
	if o.Now != nil {
		c.now = func() int64 { return o.Now().UnixNano() }
	}
	return c
}

// monotonic begins above zero, the instant at which nothing was forgotten yet.
func monotonic() func() int64 {
	start := time.Now()
	return func() int64 { return time.Since(start).Nanoseconds() + 1 }
}

// Take refuses what it knows to be refused and asks the wrapped Taker for the
// rest, in one call.
func (c *Cache) Take(ctx context.Context, acts []*weir.Act) {
	if !plain(acts) {
		c.next.Take(ctx, acts)
		c.forgetChanged(acts)
		return
	}
	before := c.now()
	left := c.refuse(acts, before)
	if len(left) == 0 {
		return
	}
	c.next.Take(ctx, left)
	for _, a := range left {
		if a.Allowed() {
			c.prolonged(a)
		} else if a.Err == nil {
			c.learn(a, before)
		}
	}
}

// prolonged ends the refusals of the keys that an act was granted units of: they
// last longer now than they said.
func (c *Cache) prolonged(a *weir.Act) {
	for i := range a.Charges {
		if a.Decisions[i].Granted > 0 {
			c.table.drop(a.Charges[i].Key)
		}
	}
}

// plain reports whether all acts are takes of which a refusal can be told in
// advance. If any is not, what comes after it must not be answered before it.
func plain(acts []*weir.Act) bool {
	for _, a := range acts {
		if a.Kind != weir.KindTake || a.ID != "" || a.MaxWait != 0 || a.Hold != 0 {
			return false
		}
	}
	return true
}

// refuse answers the acts that are known to be refused and returns the others.
// Those before a refused one can only take, so that it would be refused after
// them as well.
func (c *Cache) refuse(acts []*weir.Act, now int64) []*weir.Act {
	if len(acts) == 1 {
		if c.refused(acts[0], now) {
			return nil
		}
		return acts
	}
	var left []*weir.Act
	for i, a := range acts {
		switch {
		case c.refused(a, now):
			if left == nil {
				left = append(make([]*weir.Act, 0, len(acts)), acts[:i]...)
			}
		case left != nil:
			left = append(left, a)
		}
	}
	if left == nil {
		return acts
	}
	return left
}

// refused answers an act if one of its charges is known to be refused.
func (c *Cache) refused(a *weir.Act, now int64) bool {
	known := false
	for i := range a.Charges {
		ch := &a.Charges[i]
		if !cacheable(ch) {
			continue
		}
		e, set := c.table.find(ch, a.Immediate, now)
		if e == nil {
			continue
		}
		if !known {
			known = true
			if len(a.Decisions) != len(a.Charges) || a.Prepare() {
				// It is for the store to say what is wrong.
				return false
			}
			clear(a.Decisions)
		}
		set.touch(e)
		e.answer(ch, now, &a.Decisions[i])
	}
	if known {
		c.counters.hit()
	}
	return known
}

// cacheable reports whether a refusal of the charge can be told in advance.
func cacheable(ch *weir.Charge) bool {
	l := ch.Limit
	return l != nil && ch.Cost > 0 && len(ch.Key) <= maxKeyBytes && l.Algorithm != weir.Concurrency &&
		(!l.ChargeRefused || l.Algorithm == weir.FixedWindow)
}

// learn remembers the refusals of an act that was sent at an instant.
func (c *Cache) learn(a *weir.Act, sent int64) {
	answered := c.now()
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Outcome != weir.Refused || d.Source != weir.SourceStore || !cacheable(&a.Charges[i]) || again(a.Charges, i) {
			continue
		}
		e := newEntry(&a.Charges[i], d, a.Immediate)
		e.answered, e.until = answered, sent+min(c.maxAge, d.RetryAfter.Nanoseconds())
		c.table.add(e, sent)
		c.counters.learned.Add(1)
	}
}

// again reports whether an earlier charge of the act has the key of the i-th one,
// which then was refused after something else was taken from it.
func again(charges []weir.Charge, i int) bool {
	for j := range i {
		if charges[j].Key == charges[i].Key {
			return true
		}
	}
	return false
}

// forgetChanged ends the refusals of all keys whose state acts may have changed,
// and tells of those that they may have given back to.
func (c *Cache) forgetChanged(acts []*weir.Act) {
	var returned []string
	for _, a := range acts {
		for i := range a.Charges {
			key := a.Charges[i].Key
			switch a.Kind {
			case weir.KindRefund, weir.KindSettle, weir.KindRelease, weir.KindReset, weir.KindAmend:
				c.table.forget(key, c.now())
				returned = append(returned, key)
			default:
				c.table.drop(key)
			}
		}
	}
	if len(returned) > 0 && c.returned != nil {
		c.returned(returned)
	}
}

// Forget ends the refusals of keys, whatever their limits: to be called when
// units were given back elsewhere.
func (c *Cache) Forget(keys ...string) {
	for _, key := range keys {
		c.table.forget(key, c.now())
	}
	c.counters.forgotten.Add(uint64(len(keys)))
}

// Flush ends all refusals: to be called when Forget may have been missed.
func (c *Cache) Flush() { c.table.flush(c.now()) }
