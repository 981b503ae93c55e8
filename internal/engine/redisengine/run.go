package redisengine

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A run is consecutive takes that charge the same to one key, and nothing else. The script
// returns how much it granted and the state that it found, from which the steps derive
// the decision of each take.
type run struct {
	rule      *algo.Rule
	key       int32
	times     int32
	cost      int64
	upTo      int64
	keep      int64
	immediate bool
	// The script's answer, brought forward from act to act.
	granted int64
	fresh   int64 // if the step cannot derive it
	wait    int64
	at      int64
	state   algo.State
	outside bool // the calendar windows did not reach the store's time
}

// runs reports whether an act can be part of a run.
func runs(a *weir.Act) bool {
	return a.Kind == acts.KindTake && a.ID == "" && a.MaxWait == 0 && !a.Dry && len(a.Charges) == 1 && !algo.TraitsOf(a.Charges[0].Limit.Algorithm).HoldsSlots && a.Charges[0].Limit.Block == 0
}

func newRun(a *weir.Act, rule *algo.Rule) run {
	c := &a.Charges[0]
	return run{rule: rule, times: 1, cost: c.Cost, upTo: c.UpTo, keep: c.Keep, immediate: a.Immediate}
}

// joins reports whether the act makes the same charges as the run's takes.
func (r *run) joins(a *weir.Act) bool {
	c := &a.Charges[0]
	return r.cost == c.Cost && r.keep == c.Keep && r.immediate == a.Immediate && r.upTo == 0 && c.UpTo == 0 &&
		(!r.rule.ChargeRefused || !keepsMore(r.rule))
}

// keepsMore reports whether an algorithm keeps more than numbers, so that only the script
// knows how long to wait.
func keepsMore(r *algo.Rule) bool { return r.Step().State >= algo.RingText }

// read takes the script's answer.
func (r *run) read(p *reader, at int64) {
	r.at, r.granted = at, p.number(7)
	first := p.number(7)
	r.state = algo.State{Used: p.number(7)}
	second := p.number(7)
	switch {
	case keepsMore(r.rule):
		r.fresh, r.wait = first, second
	case r.rule.Step().State == algo.Counters:
		r.state.Base, r.state.Rem = first, second
	default:
		r.state.At, r.state.Rem = first, second
	}
}

// answer sets the decision of the next take of the run.
func (r *run) answer(d *weir.Decision) {
	*d = weir.Decision{Outcome: weir.Granted, Source: acts.SourceStore, At: time.UnixMicro(r.at)}
	switch {
	case r.cost == 0:
	case r.granted >= r.cost:
		d.Granted = r.cost
		if r.upTo > 0 {
			d.Granted = r.granted
		}
		if r.rule.Delays() {
			d.Delay = algo.Duration(r.queued())
		}
		r.granted -= d.Granted
		r.state.Used += d.Granted
	default:
		r.refuse(d)
	}
	d.Remaining = max(0, r.rule.Burst-r.state.Used-r.keep)
	if r.immediate && r.rule.Delays() && r.state.Used > 0 {
		d.Remaining = 0
	}
	fresh := r.fresh
	if !keepsMore(r.rule) {
		fresh = r.rule.Fresh(&r.state, r.at)
	}
	d.ResetAfter = algo.Duration(fresh)
}

func (r *run) refuse(d *weir.Decision) {
	d.Outcome = weir.Refused
	if r.rule.ChargeRefused {
		r.state.Used = max(r.state.Used, min(r.state.Used+r.cost, r.rule.Debt))
	}
	wait, need := int64(0), r.cost+r.keep
	switch {
	case need > r.rule.Burst:
		wait = int64(algo.Never)
	case keepsMore(r.rule):
		wait = r.wait
	case r.state.Used+need > r.rule.Burst:
		wait = r.rule.Wait(&r.state, r.at, need)
	}
	if r.immediate && r.rule.Delays() {
		wait = max(wait, r.queued())
	}
	d.RetryAfter = algo.Duration(wait)
}

// queued returns how long the next charge of a leaky bucket has to wait.
func (r *run) queued() int64 {
	later := r.state
	later.Used = min(later.Used, r.rule.Cap)
	return r.rule.Fresh(&later, r.at)
}
