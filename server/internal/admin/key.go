package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
)

// get answers with the state of a key.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	answer, err := a.inspect(r)
	if err != nil {
		fail(w, r, err)
		return
	}
	jsonbody.WriteIndented(w, answer)
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
	answer := &keyAnswer{Domain: req.domain, Cost: req.cost}
	for i := range targets {
		l, err := a.inspectLimit(ctx, &targets[i], req.cost)
		if err != nil {
			return nil, err
		}
		answer.Limits = append(answer.Limits, *l)
	}
	answer.judge()
	return answer, nil
}

// judge says whether the cost passes: whether every limit of one alternative grants it. A
// rule without alternatives is one. Limits on trial have no say, nor shadow rules.
func (k *keyAnswer) judge() {
	limits := slices.DeleteFunc(slices.Clone(k.Limits), func(l limitAnswer) bool { return l.Trial })
	granted, soonest := len(limits) == 0, int64(math.MaxInt64)
	for i := 0; i < len(limits) && !granted; {
		alternative, wait := limits[i].Alternative, int64(0)
		for ; i < len(limits) && limits[i].Alternative == alternative; i++ {
			wait = max(wait, limits[i].State.wait())
		}
		granted = wait == 0
		if wait < soonest {
			soonest, k.Alternative = wait, alternative
		}
	}
	k.Passes = granted || limits[0].Shadow
}

// wait returns for how many milliseconds the cost is refused, to be compared with others:
// when a holder leaves is unknown, but it is sooner than never.
func (s *stateAnswer) wait() int64 {
	switch {
	case s == nil || s.Passes:
		return 0
	case s.RetryAfterMS == nil:
		return math.MaxInt64 - 1
	case *s.RetryAfterMS < 0:
		return math.MaxInt64
	default:
		return max(1, *s.RetryAfterMS)
	}
}

// inspectLimit returns the state of a key under one limit.
func (a *api) inspectLimit(ctx context.Context, t *target, cost int64) (*limitAnswer, error) {
	answer := &limitAnswer{Key: t.key}
	if t.rule != nil {
		answer.Rule, answer.At, answer.Shadow, answer.Trial = t.rule.Path, t.rule.At.String(), t.rule.Shadow, t.rule.OnTrial
		answer.Enforce = t.rule.Enforce()
	}
	if t.limit == nil {
		answer.Unlimited = true
		answer.Explanation = fmt.Sprintf("%s (%s): unlimited; nothing is counted", answer.Rule, answer.At)
		return answer, nil
	}
	answer.Name, answer.Algorithm, answer.Count = t.limit.Name, t.limit.Algorithm.String(), t.limit.Meter
	answer.Budget, answer.Keep, answer.Alternative = t.budget.String(), t.keep, t.alternative
	if o, found := a.overrideOf(t); found {
		answer.Override = overrideOf(o, t.limit.Meter, a.Now())
	}
	if override.Raisable(t.limit) {
		for _, o := range a.Overrides.RaisesOf(t.key) {
			answer.Raises = append(answer.Raises, raiseOf(o, a.Now()))
		}
	}
	if t.rule == nil {
		answer.Explanation = explainUnknown(t, answer)
		return answer, nil
	}
	answer.Limit, answer.OnStoreFailure = config.LimitText(t.limit), t.failure.String()
	state, err := a.ask(ctx, t, cost)
	if err != nil {
		return nil, err
	}
	answer.State = state
	answer.Explanation = explain(t, answer, cost)
	return answer, nil
}

// overrideOf returns the override in force of a limit: of all that its rule charges, or else
// its own.
func (a *api) overrideOf(t *target) (override.Override, bool) {
	if t.owner != "" {
		if o, found := a.Overrides.Get(t.owner); found {
			return o, true
		}
	}
	return a.Overrides.Get(t.key)
}

// ask asks the store for the state of a key, and for its decision about a cost.
func (a *api) ask(ctx context.Context, t *target, cost int64) (*stateAnswer, error) {
	peek := newAct(acts.KindTake, weir.Charge{Key: t.key, HashTag: t.slot, Owner: t.owner, Limit: wide(t)})
	probe := a.probe(t, cost)
	acts := []*weir.Act{peek}
	if probe != nil {
		acts = append(acts, probe)
	}
	a.Taker.Take(ctx, acts)
	for _, act := range acts {
		if act.Err != nil {
			return nil, act.Err
		}
	}
	limit, d := t.limit, peek.Decisions[0]
	if held := peek.LimitOf(0); held != wide(t) {
		limit = held
	}
	used := peek.LimitOf(0).Capacity() - d.Remaining
	state := &stateAnswer{
		Limit: config.LimitText(limit), Used: max(0, used), Remaining: max(0, limit.Capacity()-used),
		ResetAfterMS: jsonbody.Millis(d.ResetAfter), AtUS: jsonbody.Micros(d.At),
	}
	addProbe(state, probe, cost, t.keep)
	if o, found := a.overrideOf(t); found {
		a.addOverride(state, o)
	} else if t.guaranteed {
		state.Passes, state.RetryAfterMS = true, new(int64)
	}
	return state, nil
}

// addOverride adds what no store knows: that there is no limit, or when a block ends.
func (a *api) addOverride(state *stateAnswer, o override.Override) {
	switch {
	case o.Limit == nil:
		state.Limit = ""
	case o.Limit.Count == 0:
		ends := jsonbody.Millis(o.Until.Sub(a.Now()))
		state.RetryAfterMS, state.ResetAfterMS = &ends, 0
	}
}

// addProbe adds the decision of the probe; without a probe, whether enough remains.
func addProbe(state *stateAnswer, probe *weir.Act, cost, keep int64) {
	if probe == nil {
		state.Passes = min(cost, 1)+keep <= state.Remaining
		if state.Passes {
			state.RetryAfterMS = new(int64)
		}
		return
	}
	d := probe.Decisions[0]
	if state.Passes, state.Blocked = d.Outcome != weir.Refused, d.Blocked; d.Blocked {
		state.Remaining, state.ResetAfterMS = 0, max(state.ResetAfterMS, jsonbody.Millis(d.ResetAfter))
	}
	retry := jsonbody.Millis(d.RetryAfter)
	state.RetryAfterMS = &retry
}

// wide returns the limit that reveals everything that was counted: rules without an
// algorithm count beyond their limit, and a blocked key has no room.
func wide(t *target) *weir.Limit {
	if counter := t.rule.Counter(); counter != nil {
		return counter
	}
	return t.limit.WithoutBlock()
}

// never refuses two charges at once, and with them the whole act: the other charges are
// evaluated and not made.
var never = weir.PerDay(1).MustCompile()

// probe returns an act that finds out when a cost would pass, and charges nothing. There
// is none for slots, whose takes need an id that is remembered.
func (a *api) probe(t *target, cost int64) *weir.Act {
	if algo.TraitsOf(t.limit.Algorithm).HoldsSlots {
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
	// A deny cache would remember the refusal of a single charge, and then answer without
	// evaluating the others.
	twice := weir.Charge{Key: t.key + ";probe", HashTag: slot, Limit: never, Cost: 1}
	act := newAct(acts.KindTake, weir.Charge{Key: t.key, HashTag: slot, Owner: t.owner, Limit: quiet, Cost: cost, Keep: t.keep}, twice, twice)
	act.Immediate, act.Dry = true, true // a refusal must not block the key
	return act
}

func newAct(kind weir.Kind, charges ...weir.Charge) *weir.Act {
	return &weir.Act{Kind: kind, Charges: charges, Decisions: make([]weir.Decision, len(charges))}
}

// keyAnswer is the body of GET /v1/key.
type keyAnswer struct {
	Domain string `json:"domain"`
	Cost   int64  `json:"cost"`
	Passes bool   `json:"passes"`
	// Alternative is the place of the one that grants the cost, from 1 on, or else of the
	// one that would be soonest; 0 if none ever would, or the rule has no alternatives.
	Alternative int           `json:"alternative,omitempty"`
	Limits      []limitAnswer `json:"limits"`
}

// limitAnswer is the state of a key under one limit. State is nil if nothing is counted,
// or if the limit comes with the requests.
type limitAnswer struct {
	Name        string `json:"name,omitempty"`
	Rule        string `json:"rule,omitempty"`
	At          string `json:"at,omitempty"`
	Key         string `json:"key,omitempty"`
	Algorithm   string `json:"algorithm,omitempty"`
	Budget      string `json:"budget,omitempty"` // that the limit charges; empty: one of its own
	Keep        int64  `json:"keep,omitempty"`   // units that it leaves to others
	Alternative int    `json:"alternative,omitempty"`
	// Count is what the limit counts; empty: requests. All numbers of usd are millionths of a
	// dollar, and texts are in dollars.
	Count          string          `json:"count,omitempty"`
	Limit          string          `json:"limit,omitempty"` // the rule's
	Unlimited      bool            `json:"unlimited,omitempty"`
	Shadow         bool            `json:"shadow,omitempty"` // it never refuses this key
	Trial          bool            `json:"trial,omitempty"`
	Enforce        string          `json:"enforce,omitempty"` // the part of the keys; empty: all
	OnStoreFailure string          `json:"on_store_failure,omitempty"`
	Override       *overrideAnswer `json:"override,omitempty"`
	Raises         []*raiseAnswer  `json:"raises,omitempty"`
	State          *stateAnswer    `json:"state,omitempty"`
	Explanation    string          `json:"explanation"`
}

// stateAnswer is the store's state of a key, and the decision about a cost.
type stateAnswer struct {
	Limit     string `json:"limit"` // the one in force
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Passes    bool   `json:"passes"`
	// RetryAfterMS is rounded up, -1 for never, and null if a holder must leave first.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	AtUS         int64  `json:"at_us"`
	// Blocked says that the limit has blocked the key, which it has refused.
	Blocked bool `json:"blocked,omitempty"`
}

// overrideAnswer is one override.
type overrideAnswer struct {
	Key string `json:"key"`
	// Limit replaces the rule's limit; empty: no limit.
	Limit   string `json:"limit"`
	Blocked bool   `json:"blocked"`
	Until   string `json:"until"`
	ForMS   int64  `json:"for_ms"`
}

// overrideOf describes an override of a limit that counts a meter.
func overrideOf(o override.Override, meter string, now time.Time) *overrideAnswer {
	answer := &overrideAnswer{Key: o.Key, Until: o.Until.UTC().Format(time.RFC3339), ForMS: jsonbody.Millis(o.Until.Sub(now))}
	if o.Limit != nil {
		limit := *o.Limit
		limit.Meter = meter
		answer.Limit, answer.Blocked = config.LimitText(&limit), o.Limit.Count == 0
	}
	return answer
}

// explain describes the state of a key under a limit.
func explain(t *target, answer *limitAnswer, cost int64) string {
	s := answer.State
	var b strings.Builder
	b.WriteString(answer.Rule)
	if len(t.rule.Limits) > 1 {
		b.WriteString(" " + answer.Name)
	}
	if t.alternative > 0 {
		fmt.Fprintf(&b, ", alternative %d", t.alternative)
	}
	fmt.Fprintf(&b, " (%s): ", answer.At)
	if t.budget != nil {
		b.WriteString("budget " + answer.Budget + ", ")
	}
	o := answer.Override
	switch {
	case len(answer.Raises) > 0:
		b.WriteString(explainRaises(answer) + ", instead of ")
	case o != nil:
		b.WriteString(o.explain(s.Limit) + ", instead of ")
	}
	b.WriteString(LimitText(t.limit))
	if o != nil && o.Blocked {
		b.WriteString("; nothing passes until then")
	} else {
		b.WriteString(counts(t, s))
		if t.keep > 0 {
			fmt.Fprintf(&b, ", of which it keeps %s free for others", config.AmountText(t.limit.Meter, t.keep))
		}
		b.WriteString("; " + passing(s, config.AmountText(t.limit.Meter, cost)))
	}
	b.WriteString(whyShadow(answer))
	return b.String()
}

// LimitText describes a limit to people. Slots have no rate: their limit's period is that of
// a lease.
func LimitText(l *weir.Limit) string {
	if algo.TraitsOf(l.Algorithm).HoldsSlots {
		return fmt.Sprintf("%d at once", l.Count)
	}
	return config.LimitText(l)
}

// explain describes an override, whose limit, if it has one, is in force as stated.
func (o *overrideAnswer) explain(inForce string) string {
	switch {
	case o.Blocked:
		inForce = "blocked"
	case o.Limit == "":
		inForce = "no limit"
	}
	return fmt.Sprintf("%s for another %s, until %s", inForce, readable(o.ForMS), o.Until)
}

// whyShadow says why the limit never refuses the key.
func whyShadow(answer *limitAnswer) string {
	switch {
	case answer.Trial:
		return "; on trial: it never refuses"
	case answer.Enforce != "" && answer.Shadow:
		return "; shadowed (enforce: " + answer.Enforce + " of the keys, not this one): it never refuses"
	case answer.Enforce != "":
		return "; enforced (enforce: " + answer.Enforce + " of the keys, this one too)"
	case answer.Shadow:
		return "; shadow_mode: it never refuses"
	}
	return ""
}

// counts describes what was counted.
func counts(t *target, s *stateAnswer) string {
	unit := "used"
	if algo.TraitsOf(t.limit.Algorithm).HoldsSlots {
		unit = "held"
	}
	meter := t.limit.Meter
	text := "; " + config.AmountText(meter, s.Used) + " " + unit
	if s.Limit != "" {
		text += ", " + config.AmountText(meter, s.Remaining) + " " + remain(meter)
	}
	if s.ResetAfterMS > 0 {
		text += ", all free in " + readable(s.ResetAfterMS)
	}
	return text
}

// remain is the verb of what is left: an amount of dollars is one thing.
func remain(meter string) string {
	if meter == config.MeterUSD {
		return "remains"
	}
	return "remain"
}

// passing says when the cost passes.
func passing(s *stateAnswer, cost string) string {
	switch {
	case s.Passes:
		return fmt.Sprintf("a cost of %s fits now", cost)
	case s.RetryAfterMS == nil:
		return "the next one fits when a holder leaves or its lease ends"
	case *s.RetryAfterMS < 0:
		return fmt.Sprintf("a cost of %s never fits", cost)
	}
	if s.Blocked {
		return fmt.Sprintf("the limit has blocked the key, and a cost of %s fits in %s", cost, readable(*s.RetryAfterMS))
	}
	return fmt.Sprintf("a cost of %s fits in %s", cost, readable(*s.RetryAfterMS))
}

// explainUnknown describes a key whose limit comes with the calls.
func explainUnknown(t *target, answer *limitAnswer) string {
	text := "CL.THROTTLE: the limit comes with each command"
	if t.limit != throttled {
		text = "a limit in calls: its numbers come with each call"
	}
	if o := answer.Override; o != nil {
		return text + "; " + o.explain(o.Limit)
	}
	return text + "; no override"
}

// readable formats a number of milliseconds for people.
func readable(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		// Rounded up: a caller that waits this long must not come too early.
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
