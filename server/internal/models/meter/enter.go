package meter

import (
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/rules"
)

// teamLabel is the label of a person's team in the ledger.
const teamLabel = "team"

// windowOf returns what the ledger records of an applied limit that was decided; false if it does
// not. Keys that clients invent are not recorded.
func windowOf(a *rules.Applied, entries []rules.Entry, at time.Time) (ledger.Charge, bool) {
	if a.Act == nil || a.Rule.Shadow || a.Of.MaxKeys > 0 {
		return ledger.Charge{}, false
	}
	window, counts := ledger.WindowOf(a.Limit, at)
	c := &a.Act.Charges[a.Charge]
	return ledger.Charge{
		Key: c.Key, HashTag: c.HashTag, Limit: a.Limit, Window: window, Count: a.Limit.Count, Alerts: a.Of.Alerts,
		About: ledger.About{Name: a.Limit.Name, Descriptor: aboutOf(entries), Meter: meterOf(a), Period: periodOf(a.Limit)},
	}, counts
}

// aboutOf writes what a limit is about, such as user=ann.
func aboutOf(entries []rules.Entry) string {
	var about []string
	for _, e := range entries {
		about = append(about, e.Key+"="+e.Value)
	}
	return strings.Join(about, ",")
}

// periodOf returns the period of a limit for people, such as month.
func periodOf(l *weir.Limit) string {
	_, period, _ := strings.Cut(l.String(), "/")
	period, _, _ = strings.Cut(period, " ")
	return period
}

// decidedAt returns when a store decided a plan, by its clock.
func decidedAt(plan *rules.Plan) time.Time {
	for _, act := range plan.Acts {
		for i := range act.Decisions {
			if at := act.Decisions[i].At; act.Err == nil && !at.IsZero() {
				return at
			}
		}
	}
	return time.Now()
}

// note notes what the ledger is to record of a request that was granted.
func (own *held) note(plan *rules.Plan, ask *rules.Request) {
	if own.h.Ledger == nil {
		return
	}
	own.at, own.heldUSD = decidedAt(plan), own.e.costs[config.MeterUSD]
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Decision().Outcome != weir.Granted {
			continue
		}
		if c, counts := windowOf(a, ask.Descriptors[a.Descriptor], own.at); counts {
			if own.windows == nil {
				own.windows = map[string]ledger.Charge{}
			}
			own.windows[c.Key] = c
		}
	}
}

// personOf returns the person and the team of a caller.
func personOf(key string, labels []callers.Label) (user, team string) {
	user = key
	for _, l := range labels {
		switch l.Key {
		case userLabel:
			user = l.Value
		case teamLabel:
			team = l.Value
		}
	}
	return user, team
}

// settlement returns what is known of the request when it is held.
func (own *held) settlement() *ledger.Settlement {
	s := &ledger.Settlement{ID: own.id, At: own.at, Model: own.model, Labels: map[string]string{entryKey: own.key}, Price: own.e.price, HeldUSD: own.heldUSD}
	s.User, s.Team = personOf(own.key, own.labels)
	for _, l := range own.labels {
		s.Labels[l.Key] = l.Value
	}
	return s
}

// opened has the journal note that the request is held.
func (own *held) opened() {
	if own.h.Ledger != nil {
		own.h.Ledger.Held(own.settlement())
	}
}

// dropped has the journal note that the request counts for nothing, unless the limits count it all
// the same.
func (own *held) dropped() {
	if own.h.Ledger == nil {
		return
	}
	s := own.settlement()
	if s.Used.Unsettled = own.heldUSD; own.failure && s.Used.Unsettled != 0 {
		own.h.Ledger.Settled(s)
		return
	}
	own.h.Ledger.Dropped(s)
}

// enter has the ledger record what a request has used, once it is settled.
func (own *held) enter(u usage, free bool) {
	if own.h.Ledger == nil {
		return
	}
	s := own.settlement()
	used := func(meter string) int64 { return own.of(meter, u, 0) }
	s.Used = ledger.Numbers{Requests: 1}
	if free {
		// Clients can invent names of models, so that unpaid requests count for the row of the price table.
		s.Model = own.e.row()
	} else {
		s.Used.Input, s.Used.Cached, s.Used.Output, s.Used.USD = used(config.MeterInput), used(config.MeterCached), used(config.MeterOutput), used(config.MeterUSD)
		s.Written = own.e.complete(u).written
	}
	if own.failure {
		s.Used.Unsettled = own.heldUSD - s.Used.USD
	}
	for i := range own.acts {
		act := &own.acts[i]
		for j := range act.Charges {
			c, recorded := own.windows[act.Charges[j].Key]
			if !recorded || act.Charges[j].Cost == 0 {
				continue
			}
			if c.Units = act.Charges[j].Cost; act.Err == nil {
				c.Count = act.LimitOf(j).Count // A raise or an override may have come or ended.
			}
			s.Charges = append(s.Charges, c)
		}
	}
	own.h.Ledger.Settled(s)
}

// refused notes limits that refused a request because of what was used.
func (h *holder) refused(plan *rules.Plan, ask *rules.Request) {
	if h.Ledger == nil {
		return
	}
	at := decidedAt(plan)
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act == nil || len(a.Of.Alerts) == 0 || !refuses(a) || a.Decision().Source == acts.SourceFailClosed {
			continue
		}
		if c, counts := windowOf(a, ask.Descriptors[a.Descriptor], at); counts {
			charge := &a.Act.Charges[a.Charge]
			h.Ledger.Refused(c, charge.Cost+charge.Keep)
		}
	}
}
