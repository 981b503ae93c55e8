package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
)

// get tells how a key is doing.
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

// keyAnswer is the body of GET /v1/key.
type keyAnswer struct {
	Domain string        `json:"domain"`
	Cost   int64         `json:"cost"`
	Passes bool          `json:"passes"`
	Limits []limitAnswer `json:"limits"`
}

// limitAnswer is how a key does under one limit. The state is missing where nothing
// is counted, and where nobody knows the limit before a request comes.
type limitAnswer struct {
	Name           string          `json:"name,omitempty"`
	Rule           string          `json:"rule,omitempty"`
	At             string          `json:"at,omitempty"`
	Key            string          `json:"key,omitempty"`
	Algorithm      string          `json:"algorithm,omitempty"`
	Limit          string          `json:"limit,omitempty"` // the rule's
	Unlimited      bool            `json:"unlimited,omitempty"`
	Shadow         bool            `json:"shadow,omitempty"` // never refuses this key
	Trial          bool            `json:"trial,omitempty"`
	Enforce        string          `json:"enforce,omitempty"` // the part of the keys; empty: all
	OnStoreFailure string          `json:"on_store_failure,omitempty"`
	Override       *overrideAnswer `json:"override,omitempty"`
	State          *stateAnswer    `json:"state,omitempty"`
	Explanation    string          `json:"explanation"`
}

// stateAnswer is what the store knows of a key, and what that means for a cost.
type stateAnswer struct {
	Limit     string `json:"limit"` // that is in force
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Passes    bool   `json:"passes"`
	// RetryAfterMS is rounded up, -1 for never, and null where a holder has to
	// leave first.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	AtUS         int64  `json:"at_us"`
}

// overrideAnswer is one override.
type overrideAnswer struct {
	Key string `json:"key"`
	// Limit is what holds instead; empty: no limit.
	Limit   string `json:"limit"`
	Blocked bool   `json:"blocked"`
	Until   string `json:"until"`
	ForMS   int64  `json:"for_ms"`
}

func overrideOf(o override.Override, now time.Time) *overrideAnswer {
	answer := &overrideAnswer{Key: o.Key, Until: o.Until.UTC().Format(time.RFC3339), ForMS: millis(o.Until.Sub(now))}
	if o.Limit != nil {
		answer.Limit, answer.Blocked = o.Limit.String(), o.Limit.Count == 0
	}
	return answer
}

// millis returns d in milliseconds, rounded up, -1 for [weir.Never].
func millis(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// words explains how a key does under a limit.
func words(t *target, answer *limitAnswer, cost int64) string {
	s := answer.State
	var b strings.Builder
	b.WriteString(answer.Rule)
	if len(t.rule.Limits) > 1 {
		b.WriteString(" " + answer.Name)
	}
	fmt.Fprintf(&b, " (%s): ", answer.At)
	switch o := answer.Override; {
	case o == nil:
		b.WriteString(answer.Limit)
	case o.Blocked:
		fmt.Fprintf(&b, "blocked for another %s, until %s, instead of %s", inWords(o.ForMS), o.Until, answer.Limit)
	case o.Limit == "":
		fmt.Fprintf(&b, "no limit for another %s, until %s, instead of %s", inWords(o.ForMS), o.Until, answer.Limit)
	default:
		fmt.Fprintf(&b, "%s for another %s, until %s, instead of %s", s.Limit, inWords(o.ForMS), o.Until, answer.Limit)
	}
	if o := answer.Override; o != nil && o.Blocked {
		b.WriteString("; nothing passes until then")
	} else {
		b.WriteString(counts(t, s) + "; " + passing(s, cost))
	}
	b.WriteString(watching(answer))
	return b.String()
}

// watching says that the limit never refuses the key, and why.
func watching(answer *limitAnswer) string {
	switch {
	case answer.Trial:
		return "; on trial: it never refuses"
	case answer.Enforce != "" && answer.Shadow:
		return "; only watched (enforce: " + answer.Enforce + " of the keys, not this one): it never refuses"
	case answer.Enforce != "":
		return "; enforced (enforce: " + answer.Enforce + " of the keys, this one too)"
	case answer.Shadow:
		return "; only watched (shadow_mode): it never refuses"
	}
	return ""
}

// counts says what was counted.
func counts(t *target, s *stateAnswer) string {
	unit := "used"
	if t.limit.Algorithm == weir.Concurrency {
		unit = "held"
	}
	text := fmt.Sprintf("; %d %s", s.Used, unit)
	if s.Limit != "" {
		text += fmt.Sprintf(", %d remain", s.Remaining)
	}
	if s.ResetAfterMS > 0 {
		text += ", as new in " + inWords(s.ResetAfterMS)
	}
	return text
}

// passing says when the cost passes.
func passing(s *stateAnswer, cost int64) string {
	switch {
	case s.Passes:
		return fmt.Sprintf("a cost of %d passes now", cost)
	case s.RetryAfterMS == nil:
		return "the next one passes when a holder leaves or its lease ends"
	case *s.RetryAfterMS < 0:
		return fmt.Sprintf("a cost of %d can never pass", cost)
	}
	return fmt.Sprintf("a cost of %d passes in %s", cost, inWords(*s.RetryAfterMS))
}

func unlimitedWords(t *target) string {
	return fmt.Sprintf("%s (%s): unlimited; nothing is counted", t.rule.Path, place(t.rule))
}

// throttleWords explains a key of CL.THROTTLE, whose limits come with the commands.
func throttleWords(answer *limitAnswer) string {
	text := "CL.THROTTLE: the limit comes with each command"
	switch o := answer.Override; {
	case o == nil:
		return text + "; no override"
	case o.Blocked:
		return fmt.Sprintf("%s; blocked for another %s, until %s", text, inWords(o.ForMS), o.Until)
	case o.Limit == "":
		return fmt.Sprintf("%s; no limit for another %s, until %s", text, inWords(o.ForMS), o.Until)
	default:
		return fmt.Sprintf("%s; %s for another %s, until %s", text, o.Limit, inWords(o.ForMS), o.Until)
	}
}

// inWords is a number of milliseconds as a duration that is read at a glance.
func inWords(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		// Rounded up, as whoever waits that long must not be early.
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
