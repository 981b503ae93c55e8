package rlqs

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/server/internal/rules"
)

// A lease is what one assignment lets an Envoy spend.
type lease struct {
	id    string // of the take; empty if nothing was charged
	units int64
	rest  int64 // what the Envoy may not have spent, at worst
	ttl   time.Duration
	// asked is the bucket's entries and its rule's, as they were charged.
	asked        []rules.Entry
	sent         time.Time
	acknowledged time.Time // zero: Envoy may not have it
}

// A bucket is a bucket of one Envoy. The service's mu guards it.
type bucket struct {
	stream  *stream
	budget  *budget
	entries []rules.Entry // the id, by key
	size    int64         // in the memory budget

	reported  time.Time // when the last report came
	requested time.Time // when the last request was reported
	demand    float64   // requests a second
	known     bool      // demand is: one report has come after the first

	set    *rules.Set // the rules that the fields below follow from
	rule   *rules.Rule
	asked  []rules.Entry // the entries in the order of the rule
	refuse bool          // there is no rule, and requests are refused

	answered time.Time // when Envoy was last told to allow or to refuse everything
	leases   []*lease  // oldest first; the last one is in force, or on its way
	want     int64     // units of a lease that is being charged
}

// lease returns the last lease; nil for none.
func (b *bucket) lease() *lease {
	if len(b.leases) == 0 {
		return nil
	}
	return b.leases[len(b.leases)-1]
}

// replaced returns when Envoy was known to have a later lease than the i-th; zero if it is not.
func (b *bucket) replaced(i int) (at time.Time) {
	for _, later := range b.leases[i+1:] {
		if !later.acknowledged.IsZero() {
			return later.acknowledged
		}
	}
	return at
}

// outstanding returns the units that Envoy may still spend.
func (b *bucket) outstanding(now time.Time) (units int64) {
	for i, l := range b.leases {
		if b.replaced(i).IsZero() && !l.ended(now) {
			units += l.rest
		}
	}
	return units
}

// ended reports whether Envoy has thrown the lease away.
func (l *lease) ended(now time.Time) bool {
	return !l.acknowledged.IsZero() && now.Sub(l.acknowledged) > l.ttl
}

// young reports whether the lease need not be replaced yet.
func (l *lease) young(now time.Time) bool { return now.Sub(l.sent) < l.ttl/2 }

// stays reports whether a lease, or none, stays for lack of units for another one: Envoy goes on
// with its rest, and with refusing everything.
func (l *lease) stays(now time.Time) bool {
	switch {
	case l == nil:
		return false
	case l.units == 0:
		return l.young(now)
	default:
		return !l.ended(now)
	}
}

// left estimates what Envoy has left of a lease. As long as the demand is not known, it spends a
// lease at the pace at which leases come.
func (b *bucket) left(now time.Time) float64 {
	l := b.lease()
	if l == nil {
		return 0
	}
	demand := b.demand
	if !b.known {
		demand = float64(l.units) / pace.Seconds()
	}
	return float64(l.units) - demand*now.Sub(l.sent).Seconds()
}

// report takes note of a report, and returns how many of the allowed requests no lease covers.
func (b *bucket) report(now time.Time, allowed, denied int64) (unleased int64) {
	first := b.reported.IsZero()
	unleased = allowed
	for _, l := range b.leases {
		spent := min(unleased, l.rest)
		l.rest -= spent
		unleased -= spent
	}
	if allowed+denied > 0 || first {
		b.requested = now
	}
	// Envoy reports the first request at once, and everything else every five seconds.
	switch passed := now.Sub(b.reported); {
	case first:
	case passed > pace/2:
		b.demand, b.known = float64(allowed+denied)/passed.Seconds(), true
	default:
		b.demand = max(b.demand, float64(allowed+denied)/pace.Seconds())
	}
	b.reported = now
	return unleased
}

// settle removes the leases that Envoy cannot spend any more, when a report has come that shows
// what was spent of them. It returns those that have something left.
func (b *bucket) settle(now time.Time) (unspent []*lease) {
	for len(b.leases) > 0 {
		l, at := b.leases[0], b.replaced(0)
		if at.IsZero() && l.ended(now) {
			at = l.acknowledged.Add(l.ttl)
		}
		if at.IsZero() || now.Sub(at) < settled {
			break
		}
		if l.rest > 0 {
			unspent = append(unspent, l)
		}
		b.leases = slices.Delete(b.leases, 0, 1)
	}
	return unspent
}

// live reports whether the Envoy reads and reports.
func (b *bucket) live(now time.Time) bool { return now.Sub(b.reported) < silence && b.stream.live(now) }

// A budget is what all Envoys divide that report the same bucket id. The service's mu guards it.
type budget struct {
	id      string // the domain and the bucket's id
	holders map[*bucket]struct{}
	set     *rules.Set // of the numbers below
	rate    float64    // units a second
	burst   float64
	free    float64 // as the last take said
	// spent are the leases of streams that have ended, which their Envoys may still spend.
	spent []ended
}

type ended struct {
	units int64
	until time.Time
}

// outstanding returns the units that all Envoys may still spend, and those that are being charged.
func (g *budget) outstanding(now time.Time) (units int64) {
	g.spent = slices.DeleteFunc(g.spent, func(e ended) bool { return now.After(e.until) })
	for _, e := range g.spent {
		units += e.units
	}
	for b := range g.holders {
		units += b.outstanding(now) + b.want
	}
	return units
}

// reserved returns the units that are being charged.
func (g *budget) reserved() (units int64) {
	for b := range g.holders {
		units += b.want
	}
	return units
}

// room is what all leases of one pace have together.
func (g *budget) room() float64 { return max(g.rate*pace.Seconds(), g.free/4) }

// most is the most that Envoys may ever be able to spend: two leases each.
func (g *budget) most() int64 {
	return int64(max(2, math.Ceil(2*max(g.rate*pace.Seconds(), g.burst/4))))
}

// portion returns how many units the next lease of a bucket should have. Small demands are met, and
// the others get one level. What nobody wants is lent evenly.
func (g *budget) portion(own *bucket, now time.Time) float64 {
	if own.idle(now) {
		return 1
	}
	var wants []float64
	others, room := 0.0, g.room()
	for b := range g.holders {
		switch {
		case b != own && !b.live(now):
		case b.idle(now):
			others++
		case b.known:
			wants = append(wants, margin*b.demand*pace.Seconds())
		default:
			wants = append(wants, math.Inf(1)) // as much as any other one
		}
	}
	want := math.Inf(1)
	if own.known {
		want = margin * own.demand * pace.Seconds()
	}
	part := divide(max(1, room-others), wants, want)
	if l := own.lease(); l != nil && part < want {
		// A lease that comes late makes up for it: the limit has drained in the meantime.
		part = min(want, part*min(max(1, now.Sub(l.sent).Seconds()/pace.Seconds()), 2))
	}
	return part
}

// divide returns the part of the room that one of the wants gets.
func divide(room float64, wants []float64, own float64) float64 {
	slices.Sort(wants)
	left := room
	for i, want := range wants {
		level := left / float64(len(wants)-i)
		if want >= level {
			return min(own, level)
		}
		left -= want
	}
	return own + left/float64(len(wants))
}

// idle reports whether no request has come for long.
func (b *bucket) idle(now time.Time) bool { return now.Sub(b.requested) > idle }
