package admin

import (
	"context"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
)

// get tells how a key is doing.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	answer, err := a.inspect(r)
	if err != nil {
		fail(w, r, err)
		return
	}
	respond(w, answer)
}

func (a *api) inspect(r *http.Request) (*keyAnswer, error) {
	req, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := callers.FromContext(r.Context()).May(callers.AdminRead, req.domain); err != nil {
		return nil, err
	}
	targets, err := a.find(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.bounded(r)
	defer cancel()
	answer := &keyAnswer{Domain: req.domain, Cost: req.cost, Passes: true}
	for i := range targets {
		l, err := a.look(ctx, &targets[i], req.cost)
		if err != nil {
			return nil, err
		}
		if l.State != nil && !l.State.Passes && !l.Shadow {
			answer.Passes = false
		}
		answer.Limits = append(answer.Limits, *l)
	}
	return answer, nil
}

// look asks how a key does under one limit.
func (a *api) look(ctx context.Context, t *target, cost int64) (*limitAnswer, error) {
	answer := &limitAnswer{Key: t.key}
	if t.rule != nil {
		answer.Rule, answer.At, answer.Shadow, answer.Trial = t.rule.Path, place(t.rule), t.rule.Shadow, t.rule.OnTrial
		if t.rule.Unenforced > 0 {
			answer.Enforce = (config.Whole - t.rule.Unenforced).String()
		}
	}
	if t.limit == nil {
		answer.Unlimited = true
		answer.Explanation = unlimitedWords(t)
		return answer, nil
	}
	answer.Name, answer.Algorithm = t.limit.Name, t.limit.Algorithm.String()
	if o, found := a.Overrides.Get(t.key); found {
		answer.Override = overrideOf(o, a.Now())
	}
	if t.rule == nil {
		answer.Explanation = throttleWords(answer)
		return answer, nil
	}
	answer.Limit, answer.OnStoreFailure = t.limit.String(), t.failure.String()
	state, err := a.ask(ctx, t, cost)
	if err != nil {
		return nil, err
	}
	answer.State = state
	answer.Explanation = words(t, answer, cost)
	return answer, nil
}

// ask asks the store what it knows of a key, and what it would say to a cost.
func (a *api) ask(ctx context.Context, t *target, cost int64) (*stateAnswer, error) {
	look := newAct(weir.KindTake, weir.Charge{Key: t.key, HashTag: t.slot, Limit: wide(t)})
	probe := a.probe(t, cost)
	acts := []*weir.Act{look}
	if probe != nil {
		acts = append(acts, probe)
	}
	a.Taker.Take(ctx, acts)
	for _, act := range acts {
		if act.Err != nil {
			return nil, act.Err
		}
	}
	limit, d := t.limit, look.Decisions[0]
	if held := look.Charges[0].Limit; held != wide(t) {
		limit = held
	}
	used := look.Charges[0].Limit.Capacity() - d.Remaining
	state := &stateAnswer{
		Limit: limit.String(), Used: max(0, used), Remaining: max(0, limit.Capacity()-used),
		ResetAfterMS: millis(d.ResetAfter), AtUS: d.At,
	}
	tell(state, probe, cost)
	if o, found := a.Overrides.Get(t.key); found {
		a.tellOverride(state, o)
	}
	return state, nil
}

// tellOverride says what no store knows: that there is no limit, and when a block
// ends.
func (a *api) tellOverride(state *stateAnswer, o override.Override) {
	switch {
	case o.Limit == nil:
		state.Limit = ""
	case o.Limit.Count == 0:
		ends := millis(o.Until.Sub(a.Now()))
		state.RetryAfterMS, state.ResetAfterMS = &ends, 0
	}
}

// tell says what the probe was told, or without one what remains for.
func tell(state *stateAnswer, probe *weir.Act, cost int64) {
	if probe == nil {
		state.Passes = min(cost, 1) <= state.Remaining
		if state.Passes {
			state.RetryAfterMS = new(int64)
		}
		return
	}
	d := probe.Decisions[0]
	state.Passes = d.Outcome != weir.Refused
	retry := millis(d.RetryAfter)
	state.RetryAfterMS = &retry
}

// wide is the limit through which all that was counted can be seen: rules that name
// no algorithm count beyond their limit.
func wide(t *target) *weir.Limit {
	if counter := t.rule.Counter(); counter != nil {
		return counter
	}
	return t.limit
}

// never refuses what is charged twice at once: what comes with it is decided, told and
// not made.
var never = weir.PerDay(1).MustCompile()

// probe is an act that is told when a cost would pass, and never made. There is none
// for places, where being told takes an id that is remembered.
func (a *api) probe(t *target, cost int64) *weir.Act {
	if t.limit.Algorithm == weir.Concurrency {
		return nil
	}
	limit := *t.limit
	// A refusal must not count.
	limit.ChargeRefused = false
	quiet, err := limit.Compile()
	if err != nil {
		return nil
	}
	slot := t.slot
	if slot == "" {
		slot = t.key
	}
	// A refusal of one charge would be remembered by a deny cache, which then answers
	// for the store and does not evaluate the others.
	twice := weir.Charge{Key: t.key + ";probe", HashTag: slot, Limit: never, Cost: 1}
	act := newAct(weir.KindTake, weir.Charge{Key: t.key, HashTag: slot, Limit: quiet, Cost: cost}, twice, twice)
	act.Immediate = true
	return act
}

func newAct(kind weir.Kind, charges ...weir.Charge) *weir.Act {
	return &weir.Act{Kind: kind, Charges: charges, Decisions: make([]weir.Decision, len(charges))}
}
