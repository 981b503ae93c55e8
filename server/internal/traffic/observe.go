package traffic

import (
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/observe"
)

// Observe counts the outcomes of a call. It counts takes that charge, including those
// that got an error, and the units of settlements. Peeks and other corrections of a take
// decide nothing.
func (r *Recorder) Observe(c *observe.Call) { r.observe(c, true) }

// ObserveUnenforced is Observe for a call of a front end that refuses nothing.
func (r *Recorder) ObserveUnenforced(c *observe.Call) { r.observe(c, false) }

func (r *Recorder) observe(c *observe.Call, enforced bool) {
	bucket := bucketOf(c.Took)
	r.latency[bucket].Add(1)
	t := r.table.Load()
	asked := c.Limits
	for _, a := range c.Acts {
		switch a.Kind {
		case acts.KindTake:
			r.act(t, a, asked, bucket, enforced)
		case acts.KindSettle, acts.KindRecord:
			r.settled(t, a, asked)
		}
		asked = asked[len(a.Charges):]
	}
}

// act counts the charges of a take, and the duration of the call even if it reached no
// decision. An invalid take is its caller's mistake, not a failure.
func (r *Recorder) act(t *table, a *weir.Act, asked []*weir.Limit, bucket int, enforced bool) {
	for i := range a.Charges {
		if a.Charges[i].Cost == 0 || a.Dry {
			continue
		}
		p := r.find(t, asked[i], &a.Charges[i])
		p.shadow = p.shadow || !enforced
		p.took(bucket)
		switch {
		case a.Err == nil:
			r.count(p, &a.Charges[i], &a.Decisions[i], a.Hold > 0)
		case !errors.Is(a.Err, weir.ErrInvalid):
			p.counts[Failed][acts.SourceStore].Add(1)
		}
	}
}

// settled counts the units that a settlement charged in place of its hold.
func (r *Recorder) settled(t *table, a *weir.Act, asked []*weir.Limit) {
	for i := range a.Charges {
		d := &a.Decisions[i]
		if p := r.find(t, asked[i], &a.Charges[i]); a.Err == nil && a.Charges[i].Cost > 0 && p.decisionOf(d) == Granted && !p.trial {
			r.used.add(p.tally, a.Charges[i].Key, p.spend(d.Granted))
		}
	}
}

// spend counts units that were used.
func (p *counted) spend(granted int64) uint64 {
	units := uint64(granted)
	p.units.Add(units)
	if p.part != nil {
		p.part.units.Add(units)
	}
	return units
}

// hold counts units that are settled later.
func (p *counted) hold(granted int64) {
	p.held.Add(uint64(granted))
	if p.part != nil {
		p.part.held.Add(uint64(granted))
	}
}

// count counts one charge. Slots are used although they are held.
func (r *Recorder) count(p counted, c *weir.Charge, d *weir.Decision, holds bool) {
	decision, source := p.decisionOf(d), d.Source
	if decision == decisions || source >= sources {
		return
	}
	p.counts[decision][source].Add(1)
	switch {
	case decision == Granted && !p.trial:
		if holds && !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			p.hold(d.Granted)
		} else {
			r.used.add(p.tally, c.Key, p.spend(d.Granted))
		}
		if d.Remaining < p.near {
			p.nearLimit.Add(1)
		}
	case decision == Refused || decision == ShadowRefused:
		r.refusal(p, c, d, p.trial || decision == ShadowRefused)
	}
}

// decisionOf returns the decision on a charge; decisions if there is nothing to count.
func (p *counted) decisionOf(d *weir.Decision) Decision {
	switch {
	case d.Outcome == weir.Granted && d.Source != acts.SourceShadow:
		return Granted
	case d.Outcome == weir.NotCharged:
		return NotCharged
	case d.Outcome == weir.Refused && p.shadow && !p.trial || d.Source == acts.SourceShadow:
		return ShadowRefused
	case d.Outcome == weir.Refused:
		return Refused
	}
	return decisions
}

// refusal records a refused charge, or one that would have been if its limit were enforced.
func (r *Recorder) refusal(p counted, c *weir.Charge, d *weir.Decision, shadow bool) {
	if !p.trial {
		r.refused.add(p.tally, c.Key, 1)
	}
	if sample := p.sampleOf(shadow); r.logger != nil && sample.Load() == nil {
		key := c.Key
		sample.Store(&key)
	}
	if r.tail.watched() {
		r.tail.publish(&Refusal{
			At: time.Now(), Domain: p.domain, Rule: p.rule, Budget: p.budget, Key: shown(c.Key), Cost: c.Cost,
			Source: d.Source, RetryAfter: d.RetryAfter, Shadow: shadow, Trial: p.trial,
		})
	}
}

// A Refusal is one charge that was refused, or would have been if its limit were
// enforced.
type Refusal struct {
	At time.Time
	// Domain and Rule name the limit, and Budget the budget that it charges, if it has
	// none of its own. Key is the charged key, shortened if it is long.
	Domain, Rule, Budget, Key string
	Cost                      int64
	Source                    weir.Source
	// RetryAfter is the shortest useful wait; [weir.Never] if waiting does not help.
	RetryAfter time.Duration
	// Shadow refusals were not enforced. Trial refusals are those of a limit on trial.
	Shadow, Trial bool
}
