package meter

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// meEvery is how often a caller may ask what it has left, and maxAsking how many callers are
	// remembered who did so lately.
	meEvery   = time.Second
	maxAsking = 4096
	// userLabel is the label of a person, whose own limits are shown without being asked to.
	userLabel = "user"
)

// askers are the callers who asked lately what they have left. The zero value has none.
type askers struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// may reports whether a caller may ask, and remembers that it did. Callers for whom there is no
// room may not.
func (a *askers) may(key string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[string]time.Time{}
	}
	if len(a.until) >= maxAsking {
		for other, until := range a.until {
			if !now.Before(until) {
				delete(a.until, other)
			}
		}
	}
	if now.Before(a.until[key]) || len(a.until) >= maxAsking {
		return false
	}
	a.until[key] = now.Add(meEvery)
	return true
}

// meAnswer is the body of GET /v1/me.
type meAnswer struct {
	Key    string            `json:"key"`
	Labels map[string]string `json:"labels,omitempty"`
	Limits []meLimit         `json:"limits"`
}

// meLimit is the state of one limit for the caller. Numbers of dollars are texts with decimals.
type meLimit struct {
	Name string `json:"name"`
	// Descriptor is what the limit is about, such as user=ann.
	Descriptor string `json:"descriptor"`
	Count      string `json:"count"`
	Limit      any    `json:"limit"`
	Period     string `json:"period,omitempty"`
	// Used is what is settled, and Held what open requests hold: those of all instances, if a ledger
	// knows what is settled, and else those of this one, while Used contains the others.
	Used      any `json:"used"`
	Held      any `json:"held"`
	Remaining any `json:"remaining"`
	// ResetsAt is when all of the limit is free again; empty if it is now, or unknown.
	ResetsAt string `json:"resets_at,omitempty"`
}

// answerMe answers what the caller has left. It charges nothing. The error is a [*refusal].
func (p *Proxy) answerMe(ctx context.Context, w http.ResponseWriter, s *subject) error {
	ask := p.ask(s)
	if err := mayAsk(ctx, ask); err != nil {
		return err
	}
	if !p.asking.may(s.key, time.Now()) {
		busy := failed(http.StatusTooManyRequests, "rate_limit_exceeded", "ask at most once a second; retry in 1 s")
		busy.kind, busy.other, busy.retry = "requests", "rate_limit_error", 1
		return busy
	}
	ask.Costs, ask.Hold = meters, 0
	plan, err := p.Rules().Plan(ask)
	if err != nil {
		return p.unplanned(err)
	}
	for _, act := range plan.Acts {
		for i := range act.Charges {
			act.Charges[i].Cost, act.Charges[i].Keep = 0, 0 // What a rule keeps free for others is not used.
		}
	}
	if err := p.take(ctx, plan); err != nil {
		return p.unplanned(err)
	}
	answer := meAnswer{Key: s.key, Limits: []meLimit{}}
	for _, l := range s.labels {
		if answer.Labels == nil {
			answer.Labels = map[string]string{}
		}
		answer.Labels[l.Key] = l.Value
	}
	for _, s := range p.settled(ctx, plan, ask) {
		answer.Limits = append(answer.Limits, p.limitOf(s, ask.Descriptors[s.Descriptor]))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Weir-Source", "weir")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(&answer)
	return nil
}

// shown reports whether the caller may see a limit: its own, and those whose rule says so.
func shown(a *rules.Applied) bool {
	if a.Act == nil || a.Rule.Shadow || len(a.Rule.Entries) == 0 {
		return false
	}
	first := a.Rule.Entries[0]
	return a.Of.Show || first.Key == entryKey || first.Key == userLabel
}

// A shownLimit is one that the caller may see, with what is settled of it; -1: nobody knows.
type shownLimit struct {
	*rules.Applied
	settled int64
}

// settled returns the limits of a plan that the caller may see.
func (p *Proxy) settled(ctx context.Context, plan *rules.Plan, ask *rules.Request) []shownLimit {
	var all []shownLimit
	var charges []ledger.Charge
	var of []int // the place of each charge in all
	at := decidedAt(plan)
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if !shown(a) {
			continue
		}
		if c, counts := windowOf(a, ask.Descriptors[a.Descriptor], at); counts {
			charges, of = append(charges, c), append(of, len(all))
		}
		all = append(all, shownLimit{a, -1})
	}
	if p.Ledger == nil || len(charges) == 0 {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	used, err := p.Ledger.Used(ctx, charges)
	if err != nil {
		p.seldom("the ledger does not say what is settled", "error", err)
	}
	for i, n := range used {
		all[of[i]].settled = n
	}
	return all
}

// limitOf describes a limit, whose charge was a peek that kept nothing free.
func (p *Proxy) limitOf(a shownLimit, entries []rules.Entry) meLimit {
	d, meter := a.Decision(), meterOf(a.Applied)
	number := func(n int64) any {
		if meter == config.MeterUSD {
			return config.DollarsText(n)
		}
		return n
	}
	charged := max(0, a.Limit.Capacity()-d.Remaining)
	held := min(charged, p.open.of(a.Act.Charges[a.Charge].Key).units)
	if a.settled >= 0 {
		held = charged - min(charged, a.settled)
	}
	slots := algo.TraitsOf(a.Limit.Algorithm).HoldsSlots
	if slots {
		held = charged
	}
	l := meLimit{Name: a.Limit.Name, Descriptor: aboutOf(entries), Count: meter, Limit: number(a.Limit.Count), Used: number(charged - held), Held: number(held), Remaining: number(max(0, d.Remaining-a.Of.Keep))}
	if slots {
		return l
	}
	l.Period = periodOf(a.Limit)
	if d.ResetAfter > 0 {
		l.ResetsAt = time.Now().Add(d.ResetAfter).UTC().Format(time.RFC3339)
	}
	return l
}
