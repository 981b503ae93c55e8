package remote

import (
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A budget is a key under an algorithm.
type budget struct {
	key       string
	algorithm weir.Algorithm
}

func budgetOf(c *weir.Charge) budget { return budget{c.Key, c.Limit.Algorithm} }

// A balance is what is owed about one budget. There is one, of 0 units, for each budget that
// has a local share.
type balance struct {
	delivery
	name    budget
	hashTag string
	limit   *weir.Limit
	units   int64
	until   int64 // µs; all units have drained by then
	// The units of a log, ring or counter were granted since an instant, and the older ones
	// in the period before it.
	since, older int64
	paying       int64 // units in flight
	// blocked is when a block of the key ends that began here, in µs; 0: there is none that the
	// store may not have recorded.
	blocked   int64
	refunds   []*weir.Act
	refunding int
	begun     bool        // local decisions have begun with it
	local     *weir.Limit // the limit that holds here, if it is not the local share
}

func (d *balance) bytes() int {
	return 2*int(unsafe.Sizeof(*d)) + len(d.name.key) + len(d.hashTag)
}

// balance returns the balance of a budget: a new one if there is none, and nil if there is no
// room.
func (l *ledger) balance(c *weir.Charge) *balance {
	d := l.budgets[budgetOf(c)]
	if d == nil && l.room(len(l.budgets)) {
		d = &balance{name: budget{strings.Clone(c.Key), c.Limit.Algorithm}, hashTag: strings.Clone(c.HashTag), limit: c.Limit}
		l.budgets[d.name] = d
		l.charge(d.bytes())
		l.add(1)
	}
	return d
}

// tidy drops a balance of which nothing is left.
func (l *ledger) tidy(d *balance) {
	if d.units+d.older+d.blocked == 0 && d.busy == nil && len(d.refunds)+d.refunding == 0 && l.budgets[d.name] == d {
		delete(l.budgets, d.name)
		l.charge(-d.bytes())
		l.add(-1)
	}
}

// begin returns the limit of a budget that holds here, nil for its local share. Its balance
// begins with the one that first returns, which gets the units that the store may not have
// recorded.
func (l *ledger) begin(c *weir.Charge, now int64, first func(unrecorded int64) *weir.Limit) *weir.Limit {
	d := l.balance(c)
	switch {
	case d == nil:
		return nil
	case !d.begun:
		d.age(now)
		unrecorded := d.units + d.older + d.paying
		for e := range l.byKey[c.Key] {
			for i := range e.take.Charges {
				if now < e.until && budgetOf(&e.take.Charges[i]) == d.name {
					unrecorded += localGrant(e.take, i)
				}
			}
		}
		d.begun, d.local = true, first(unrecorded)
	}
	return d.local
}

// debit adds units that drain by until. Refunds that are owed become less instead. It returns
// false without room.
func (l *ledger) debit(c *weir.Charge, units, now, until int64) bool {
	d := l.balance(c)
	if d == nil {
		return false
	}
	for len(d.refunds) > 0 && units > 0 {
		own := &d.refunds[0].Charges[0]
		n := min(own.Cost, units)
		if own.Cost, units = own.Cost-n, units-n; own.Cost == 0 {
			l.charge(-actBytes(d.refunds[0]))
			d.refunds = slices.Delete(d.refunds, 0, 1)
			l.refunds--
		}
	}
	d.limit = c.Limit
	d.age(now)
	d.units += units
	d.until = max(d.until, until)
	return true
}

// refund owes units of a charge back, less those that the store has not recorded yet. It returns
// false without room.
func (l *ledger) refund(a *weir.Act) bool {
	c := &a.Charges[0]
	d := l.balance(c)
	if d == nil || !l.room(l.refunds) {
		return false
	}
	n := min(d.units, c.Cost)
	if d.units, c.Cost = d.units-n, c.Cost-n; c.Cost > 0 {
		d.refunds = append(d.refunds, a)
		l.charge(actBytes(a))
		l.refunds++
	}
	return true
}

// noteBlocks notes the blocks that local decisions about an act have begun, or that were known here
// already.
func (r *Remote) noteBlocks(at *location, a *weir.Act) {
	for i := range a.Charges {
		d := &a.Decisions[i]
		if !d.Blocked || d.Source != acts.SourceFallback || a.Dry || a.Err != nil {
			continue
		}
		if b := at.ledger(i).balance(&a.Charges[i]); b != nil {
			b.limit = a.Charges[i].Limit
			b.blocked = max(b.blocked, d.At.Add(d.RetryAfter).UnixMicro())
		}
	}
}

// stays reports whether each unit counts for a period, and then less or no more.
func (d *balance) stays() bool {
	traits := algo.TraitsOf(d.limit.Algorithm)
	return traits.KeepsLog || traits.Buckets || d.limit.Algorithm == weir.SlidingCounter
}

// age forgets units that have drained.
func (d *balance) age(now int64) {
	if now >= d.blocked {
		d.blocked = 0
	}
	if now >= d.until || d.units+d.older == 0 {
		d.units, d.older, d.since = 0, 0, now
	}
	for period := d.limit.Period.Microseconds(); d.stays() && now-d.since >= period && d.units+d.older > 0; {
		d.units, d.older, d.since = 0, d.units, d.since+period
	}
}

// due returns the units that the store lacks. It will count those of a log or ring for a whole
// period from now on, so that a unit of which a half is over counts as half a unit.
func (d *balance) due(now int64) int64 {
	if d.age(now); !d.stays() {
		return d.units
	}
	left := 1 - float64(now-d.since)/float64(d.limit.Period.Microseconds())
	return int64(math.Ceil((float64(d.units)*(1+left) + float64(d.older)*left*left) / 2))
}

// isDue reports whether the store lacks units, or a block.
func (d *balance) isDue(now int64) bool { return d.due(now) > 0 || d.blocked > 0 }

// payUnits takes out the units of a balance, so that the next local decision begins anew; nil
// if there are none.
func (r *Remote) payUnits(l *ledger, d *balance) *payment {
	now := r.now()
	due, block := d.due(now), time.Duration(0)
	if d.blocked > 0 {
		if block = min(time.Duration(d.blocked-now)*time.Microsecond, d.limit.Block); block == 0 {
			d.blocked = 0 // the limit has no blocks any more
		}
	}
	units, anonymous := min(due, d.limit.Capacity()), algo.TraitsOf(d.limit.Algorithm).HoldsSlots
	if anonymous {
		units = min(units, algo.MaxSlots)
	}
	was := *d
	d.units, d.older, d.begun, d.local = 0, 0, false, nil
	if due == 0 && block == 0 {
		l.tidy(d)
		return nil
	}
	d.paying = was.units + was.older
	return &payment{ledger: l, flight: d.send(), acts: []*weir.Act{{
		Kind: acts.KindRecord, Anonymous: anonymous,
		Charges:   []weir.Charge{{Key: d.name.key, HashTag: d.hashTag, Limit: d.limit, Cost: units, Block: block, At: d.until}},
		Decisions: make([]weir.Decision, 1),
	}}, paid: func(outcomes []*weir.Act) {
		d.landed(r.now(), outcomes[0].Err)
		d.paying = 0
		switch err := outcomes[0].Err; {
		case err == nil:
			r.counts.recorded.Add(units)
			if d.blocked == was.blocked {
				d.blocked = 0
			}
		case notApplied(err):
			if d.units+d.older == 0 {
				d.since = was.since
			}
			d.units, d.older, d.since = d.units+was.units, d.older+was.older, min(d.since, was.since)
		default:
			r.counts.doubtful.Add(units)
		}
		l.tidy(d)
	}}
}

// payRefunds takes out some refunds of a balance.
func (r *Remote) payRefunds(l *ledger, d *balance, most int) *payment {
	sent := slices.Clone(d.refunds[:min(most, len(d.refunds))])
	d.refunds, d.refunding = d.refunds[len(sent):], len(sent)
	return &payment{ledger: l, acts: sent, paid: func(outcomes []*weir.Act) {
		d.refunding = 0
		for _, a := range outcomes {
			l.refunds--
			l.charge(-actBytes(a))
			switch {
			case a.Err == nil:
				r.counts.refunded.Add(a.Decisions[0].Granted)
			case notApplied(a.Err) && l.refund(a):
			default:
				r.counts.doubtful.Add(a.Charges[0].Cost)
			}
		}
		l.tidy(d)
	}}
}
