package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// An action changes the limits of a key.
type action func(a *api, ctx context.Context, req *request, targets []target) (*changeAnswer, error)

var actions = map[string]action{
	"reset": (*api).reset,
	"clear": (*api).clear,
	"block": func(a *api, ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
		none := weir.PerSecond(0)
		return a.override(ctx, req, targets, &none)
	},
	"allow": func(a *api, ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
		return a.override(ctx, req, targets, nil)
	},
	"override": (*api).limit,
	"raise":    (*api).raise,
	"move":     (*api).move,
}

// changeAnswer is the body of the answer to a change.
type changeAnswer struct {
	Action string       `json:"action"`
	Domain string       `json:"domain"`
	Keys   []changedKey `json:"keys"`
	// Spread says where the change holds: "store" (a reset is in the store), "process"
	// (there are no other instances), "all" or "pending" (here now, elsewhere once
	// SpreadError is over).
	Spread      string `json:"spread"`
	SpreadError string `json:"spread_error,omitempty"`
}

type changedKey struct {
	Name string `json:"name"` // of the limit; of a block or allowance of a whole rule, the rule's path
	Key  string `json:"key"`
	// Alternative is the place of the limit's alternative, from 1 on: the others stay as
	// they are. 0 if the rule has none, or if the change is for all of them.
	Alternative int `json:"alternative,omitempty"`
	// Changed is false if there was nothing to clear.
	Changed  bool            `json:"changed"`
	Override *overrideAnswer `json:"override,omitempty"`
	Raise    *raiseAnswer    `json:"raise,omitempty"`
}

// change carries out an action and writes the audit log.
func (a *api) change(name string, do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := readChange(w, r, name, a.Now())
		if err == nil {
			err = req.allow(name)
		}
		if err == nil {
			err = callers.FromContext(r.Context()).May(callers.AdminChange, req.domain)
		}
		if err != nil {
			fail(w, r, err)
			return
		}
		targets, err := a.find(req)
		if err == nil {
			targets, err = affected(name, req, targets)
		}
		var answer *changeAnswer
		if err == nil {
			ctx, cancel := a.bounded(r)
			defer cancel()
			answer, err = do(a, ctx, req, targets)
		}
		a.audit(r, &outcome{name, req, answer, err})
		if err != nil {
			fail(w, r, err)
			return
		}
		answer.Action, answer.Domain = name, req.domain
		jsonbody.WriteIndented(w, answer)
	}
}

// allow refuses parameters that the action would ignore.
func (r *request) allow(action string) error {
	if r.text == "" && action == "override" {
		return problem.Invalid("limit", "missing", `what holds instead, such as "100/min burst 20"`)
	}
	if r.text != "" && action != "override" {
		return problem.Invalid("limit", "given", "none: "+action+" has none")
	}
	switch {
	case (r.by != "") != (action == "raise"):
		return problem.Invalid("by", stated(r.by), `what a raise adds, such as "$50" or "500", and none for other actions`)
	case r.note != "" && action != "raise":
		return problem.Invalid("note", "given", "none: "+action+" has none")
	case r.raise != "" && action != "clear":
		return problem.Invalid("raise", "given", "none: only clear ends a raise")
	case action == "raise" && !r.timed:
		return problem.Invalid("until", "missing", `the end of the raise, such as "month-end"`)
	}
	if (len(r.to) > 0) != (action == "move") {
		return problem.Invalid("to", "given", "the entries of another key for move, and none for other actions")
	}
	if r.timed && (action == "reset" || action == "clear" || action == "move") {
		return problem.Invalid("for", "given", "none: "+action+" takes effect once")
	}
	return nil
}

// reset makes the keys as if they were never used.
func (a *api) reset(ctx context.Context, _ *request, targets []target) (*changeAnswer, error) {
	answer := &changeAnswer{Spread: "store"}
	all := make([]*weir.Act, len(targets))
	for i, t := range targets {
		all[i] = newAct(acts.KindReset, weir.Charge{Key: t.key, HashTag: t.slot, Limit: t.limit})
		answer.Keys = append(answer.Keys, changedKey{Name: t.name(), Key: t.key, Changed: true})
	}
	a.Taker.Take(ctx, all)
	for _, act := range all {
		if act.Err != nil {
			return nil, act.Err
		}
	}
	return answer, nil
}

// limit replaces one limit by another.
func (a *api) limit(ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
	if len(targets) > 1 {
		return nil, severalLimits(targets)
	}
	limit, err := parseOverride(req.text, targets[0].limit)
	if err != nil {
		return nil, err
	}
	return a.override(ctx, req, targets, limit)
}

// parseOverride reads the text of a limit in place of own, whose algorithm and calendar stay. For
// a limit of dollars, amounts are dollars: $7000/month. The error is a [*weir.InvalidError].
func parseOverride(text string, own *weir.Limit) (*weir.Limit, error) {
	wrong := func(want string) error { return problem.Invalid("limit", strconv.Quote(text), want) }
	words, names, usd := strings.Fields(text), false, rules.MeterOf(own) == config.MeterUSD
	for i, word := range words {
		algorithm, err := weir.ParseAlgorithm(word)
		switch {
		case err == nil && algorithm != own.Algorithm:
			return nil, wrong("none but " + own.Algorithm.String() + ", or no algorithm: an override keeps the rule's")
		case err == nil:
			names = true
		case word == "burst" && own.Burst == 0 && own.Count > 0:
			return nil, wrong("no burst: " + own.Algorithm.String() + " grants at most its count at once")
		}
		if i > 0 && words[i-1] != "burst" {
			continue
		}
		amount, period, _ := strings.Cut(word, "/")
		amount, dollars := strings.CutPrefix(amount, "$")
		switch micros, ok := config.ParseDollars(amount); {
		case usd && !dollars:
			return nil, wrong("dollars, such as $5/month: the limit counts them")
		case dollars && !usd:
			return nil, wrong("a number, such as 5/min: the limit does not count dollars")
		case dollars && !ok:
			return nil, wrong("dollars, 0 … " + config.DollarsText(algo.MaxWindow) + ", with at most 6 decimals, such as $2.5/month")
		case dollars && i == 0:
			words[i] = strconv.FormatInt(micros, 10) + "/" + period
		case dollars:
			words[i] = strconv.FormatInt(micros, 10)
		}
	}
	if !names && len(words) > 0 {
		words = append(words, own.Algorithm.String())
	}
	limit, err := weir.ParseLimit(strings.Join(words, " "))
	if invalid := new(weir.InvalidError); usd && errors.As(err, &invalid) && invalid.Field == "count" {
		return nil, wrong("fewer dollars: " + own.Algorithm.String() + " counts to " + config.DollarsText(mostOf(own)))
	}
	if err != nil {
		return nil, err
	}
	return &limit, nil
}

// mostOf returns the largest count of limits of one algorithm.
func mostOf(l *weir.Limit) int64 {
	if l.Algorithm == weir.FixedWindow {
		return algo.MaxWindow
	}
	return weir.MaxCost
}

// stated says whether a parameter was given.
func stated(text string) string {
	if text == "" {
		return "missing"
	}
	return "given"
}

// override sets an override of each key: another limit, or none.
func (a *api) override(ctx context.Context, req *request, targets []target, limit *weir.Limit) (*changeAnswer, error) {
	answer := &changeAnswer{}
	changes := make([]override.Change, len(targets))
	for i, t := range targets {
		if err := a.effective(&t, limit); err != nil {
			return nil, err
		}
		changes[i] = override.Change{Override: override.Override{Key: t.key, Until: req.until}}
		if limit != nil {
			fitted, err := override.Fit(limit, t.limit)
			if err != nil {
				return nil, err
			}
			changes[i].Limit = fitted
		}
	}
	if err := a.room(ctx, changes); err != nil {
		return nil, err
	}
	for i, c := range changes {
		if err := a.Overrides.Set(c.Override); err != nil {
			return nil, err
		}
		answer.Keys = append(answer.Keys, changedKey{
			Name: targets[i].name(), Alternative: targets[i].alternative, Key: c.Key, Changed: true, Override: overrideOf(c.Override, targets[i].limit.Meter, a.Now()),
		})
	}
	return answer, a.announce(ctx, answer, changes)
}

// effective returns an error if an override of one limit would change nothing because one of
// the whole rule is in force, or would be at the cost of what others are guaranteed.
func (a *api) effective(t *target, limit *weir.Limit) error {
	if o, found := a.Overrides.Get(t.owner); found && t.owner != "" {
		return &problem.Document{
			Status: http.StatusConflict, Code: "covered",
			Detail: fmt.Sprintf("until %s, all that the rule %s charges for this key is blocked or without a limit, whatever single limits say: clear that first", o.Until.UTC().Format(time.RFC3339), t.rule.Path),
		}
	}
	if limit == nil && override.Guaranteed(t.limit) {
		return guaranteed("it cannot be without a limit, at the cost of what others are guaranteed: name no limit to grant all requests of the key")
	}
	return nil
}

func guaranteed(detail string) *problem.Document {
	return &problem.Document{Status: http.StatusConflict, Code: "guaranteed", Field: "limit", Detail: "the limit is a guarantee: " + detail}
}

// room checks that there is room for all keys before the first one is changed.
func (a *api) room(ctx context.Context, changes []override.Change) error {
	added := slices.DeleteFunc(slices.Clone(changes), func(c override.Change) bool {
		_, replaces := a.Overrides.Get(c.Key)
		return replaces && c.Raise == nil
	})
	if err := a.roomOf(callers.FromContext(ctx), len(added)); err != nil {
		return err
	}
	return a.Overrides.Room(len(added))
}

// maxOfCaller is how many overrides the domains of one caller may have, unless it may change every
// domain: the others keep room for theirs.
const maxOfCaller = override.DefaultMax / 2

// roomOf checks that the domains of a caller have room for so many more overrides.
func (a *api) roomOf(who *callers.Identity, added int) error {
	if added == 0 || who.Still(callers.AdminChange, callers.AllDomains) {
		return nil
	}
	own, n := map[string]bool{}, added
	for _, o := range append(a.Overrides.List(), a.Overrides.Raises()...) {
		escaped, _, _ := strings.Cut(o.Key, "/")
		its, known := own[escaped]
		if !known {
			domain, err := url.PathUnescape(escaped)
			its = err == nil && who.Still(callers.AdminChange, domain)
			own[escaped] = its
		}
		if its {
			n++
		}
	}
	if n > maxOfCaller {
		return problem.Invalid("overrides", strconv.Itoa(n), fmt.Sprintf("at most %d at a time in the domains of one caller", maxOfCaller))
	}
	return nil
}

// clear ends the overrides of the keys, or one raise.
func (a *api) clear(ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
	if req.raise != "" {
		return a.endRaise(ctx, req, targets)
	}
	answer := &changeAnswer{}
	changes := make([]override.Change, len(targets))
	for i, t := range targets {
		changes[i] = override.Change{Override: override.Override{Key: t.key}, Ended: true}
		answer.Keys = append(answer.Keys, changedKey{Name: t.name(), Key: t.key, Changed: a.Overrides.Delete(t.key)})
	}
	return answer, a.announce(ctx, answer, changes)
}

// announce publishes changes to the other instances. A failure is part of the answer,
// because the change holds here; only a change that no instance has room for is undone.
func (a *api) announce(ctx context.Context, answer *changeAnswer, changes []override.Change) error {
	answer.Spread = "process"
	if a.Announcer == nil {
		return nil
	}
	answer.Spread = "all"
	for _, c := range changes {
		err := a.Announcer.Announce(ctx, c)
		if errors.Is(err, override.ErrFull) {
			a.Overrides.End(c.Override)
			return full("on all instances together")
		}
		if err != nil {
			answer.Spread, answer.SpreadError = "pending", err.Error()
		}
	}
	return nil
}

// list answers with all overrides.
func (a *api) list(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Overrides []*overrideAnswer `json:"overrides"`
		Raises    []*raiseAnswer    `json:"raises"`
	}{[]*overrideAnswer{}, []*raiseAnswer{}}
	now := a.Now()
	for _, o := range a.Overrides.List() {
		answer.Overrides = append(answer.Overrides, overrideOf(o, meterOf(o), now))
	}
	for _, o := range a.Overrides.Raises() {
		answer.Raises = append(answer.Raises, raiseOf(o, now))
	}
	jsonbody.WriteIndented(w, &answer)
}

// meterOf returns what the limit of an override counts; empty for an override without one.
func meterOf(o override.Override) string {
	if o.Limit == nil {
		return ""
	}
	return o.Limit.Meter
}

// outcome is the result of a change.
type outcome struct {
	action string
	req    *request
	answer *changeAnswer
	err    error
}

// audit logs a change: who made it, to which keys, until when, and the result. Keys may
// contain people's names, so the log has digests of them.
func (a *api) audit(r *http.Request, o *outcome) {
	attrs := []any{
		"audit", "key " + o.action, "by", a.caller(r), "remote", r.RemoteAddr, "domain", problem.Shorten(o.req.domain),
	}
	if o.answer != nil {
		attrs = append(attrs, "keys", digests(o.answer.Keys), "spread", o.answer.Spread)
	}
	if o.action != "reset" && o.action != "clear" && o.action != "move" {
		attrs = append(attrs, "until", o.req.until.UTC().Format(time.RFC3339))
	}
	for _, said := range [][2]string{{"limit", o.req.text}, {"adds", o.req.by}, {"raise", o.req.raise}, {"note", o.req.note}} {
		if said[1] != "" {
			attrs = append(attrs, said[0], problem.Shorten(said[1]))
		}
	}
	if o.err != nil {
		attrs = append(attrs, "result", "failed", "error", problemOf(o.err).Detail)
	} else {
		attrs = append(attrs, "result", "done")
	}
	a.Logger.InfoContext(r.Context(), "an administrator changed a key", attrs...)
}

// digestBytes is the length of a digest in the log.
const digestBytes = 8

func digests(keys []changedKey) []string {
	texts := make([]string, len(keys))
	for i, k := range keys {
		sum := sha256.Sum256([]byte(k.Key))
		texts[i] = hex.EncodeToString(sum[:digestBytes])
	}
	return texts
}
