package meter

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// settleFor is how long a settlement may take to be delivered.
	settleFor   = 10 * time.Minute
	loggedAgain = time.Minute
	// holdFor is how long a hold that got no decision is repeated, by the same IDs, and holdPause
	// the pause between two attempts. An outage is declared by then, and decided by policy.
	holdFor   = 2 * time.Second
	holdPause = 20 * time.Millisecond
)

// A holder holds and settles what requests cost.
type holder struct {
	*Options
	logged  logs.Seldom
	open    openHolds
	line    line
	budgets budgets
	stop    <-chan struct{} // closed when nobody may wait any more
}

// held is what one request holds.
type held struct {
	h     *holder
	ctx   context.Context // of the request, without its end
	id    string
	key   string // of the caller
	model string
	acts  []weir.Act // granted, as they were taken
	rules map[*weir.Limit]bool
	e     *estimate
	open  []openCharge // until it is settled
	keys  []string     // that it charges
	once  sync.Once

	// What the ledger is to record: when the request was held, for whom, and in which windows, by
	// the key.
	at      time.Time
	labels  []callers.Label
	windows map[string]ledger.Charge
	// held is what the request held of dollars, and failure says that the hold stays charged.
	heldUSD int64
	failure bool

	mu    sync.Mutex // guards the fields below
	renew *time.Timer
	done  bool
}

// meters are all of them with a number each, to find the rules of a request.
var meters = func() map[string]int64 {
	all := map[string]int64{}
	for _, name := range config.Meters() {
		all[name] = 0
	}
	return all
}()

// A subject is who makes a request, and of what.
type subject struct {
	key    string // the caller's name, or the digest of its credential
	labels []callers.Label
	// endUser is whom the client says that it works for; empty: nobody. It may be invented, so
	// that it only narrows what the key may do.
	endUser string
	model   string // empty: none
}

// The keys of the entries that a request has besides its caller's labels.
const (
	entryKey     = "key"
	entryModel   = "model"
	entryEndUser = "end_user"
)

// descriptors returns the descriptors of a request: what is known of it, each alone and with its
// model.
func (s *subject) descriptors() [][]rules.Entry {
	key, model := rules.Entry{Key: entryKey, Value: s.key}, rules.Entry{Key: entryModel, Value: s.model}
	all := [][]rules.Entry{{key}}
	for _, l := range s.labels {
		all = append(all, []rules.Entry{{Key: l.Key, Value: l.Value}})
	}
	if s.model != "" {
		for _, alone := range all {
			all = append(all, []rules.Entry{alone[0], model})
		}
		all = append(all, []rules.Entry{model})
	}
	if s.endUser != "" {
		all = append(all, []rules.Entry{key, {Key: entryEndUser, Value: s.endUser}})
	}
	return all
}

// ask returns the request to the rules about a subject.
func (h *holder) ask(s *subject) *rules.Request {
	// A request may last for the whole timeout, and its settlement be repeated after that.
	life := min(h.UpstreamTimeout+settleFor, weir.MaxWait)
	return &rules.Request{
		Domain: h.Domain, Descriptors: s.descriptors(),
		Hold: life.Truncate(time.Millisecond), Costs: meters, Immediate: true,
	}
}

// hold estimates a request and holds all of it, or nothing. Describe is called with the plan
// that was decided. A request that has no room yet waits for it, at most so long. If a limit
// refuses it that names a cheaper model, that model is tried, once. The error is a [*refusal].
func (h *holder) hold(ctx context.Context, r *request, by *subject, most time.Duration, describe func(*rules.Plan)) (*held, error) {
	own, err := h.holdAny(ctx, r, by, time.Now().Add(most), describe)
	if why := new(refusal); h.Ledger != nil && errors.As(err, &why) && why.limit != "" && why.status < http.StatusInternalServerError {
		user, team := personOf(by.key, by.labels)
		h.Ledger.CountRefused(why.at, user, team, why.row)
	}
	return own, err
}

// holdAny is hold without counting.
func (h *holder) holdAny(ctx context.Context, r *request, by *subject, until time.Time, describe func(*rules.Plan)) (*held, error) {
	own, err := h.holdModel(ctx, r, by, until, describe)
	why := new(refusal)
	if !errors.As(err, &why) || why.instead == "" {
		return own, err
	}
	own, err = h.holdModel(ctx, r.with(why.instead), by, until, describe)
	other := new(refusal)
	switch {
	case err == nil:
		row := "" // of the model that was asked for
		if p := config.PriceOf(h.Rules().Models(h.Domain), r.model); p != nil {
			row = p.Name.String()
		}
		h.Observer.Replaced(why.insteadBy, row, why.instead)
	case !errors.As(err, &other) || other.limit == "":
		return nil, why // What keeps the other model out is not for who did not ask for it.
	}
	return own, err
}

// replaces reports whether a limit has a cheaper model for a request, of which it has not been
// taken yet.
func replaces(l *rules.Limit, r *request, table []config.Model) bool {
	if l.Instead == "" || r.instead || len(r.endpoint.bounds()) == 0 || !config.SameForm(r.model, l.Instead) {
		return false
	}
	asked, instead := config.PriceOf(table, r.model), config.PriceOf(table, l.Instead)
	return asked != nil && instead != nil && asked.Dearer(instead)
}

// insteadOf returns the model that the first refusal of a plan puts in place of a request's, and
// the name of that limit; empty if there is none.
func insteadOf(plan *rules.Plan, r *request, table []config.Model) (model, limit string) {
	for i := range plan.Applied {
		if a := &plan.Applied[i]; a.Act != nil && refuses(a) && replaces(a.Of, r, table) {
			return a.Of.Instead, a.Limit.Name
		}
	}
	return "", ""
}

// holdModel is hold for one model. The request waits until then.
func (h *holder) holdModel(ctx context.Context, r *request, by *subject, until time.Time, describe func(*rules.Plan)) (*held, error) {
	set, ask := h.Rules(), h.ask(&subject{by.key, by.labels, r.endUser, r.model})
	ask.LeavesPart = func(l *rules.Limit) bool { return replaces(l, r, set.Models(h.Domain)) }
	if err := mayAsk(ctx, ask); err != nil {
		return nil, err
	}
	plan, err := set.Plan(ask)
	if err != nil {
		return nil, h.unplanned(err)
	}
	if plan.Unmatched != "" && h.Unmatched != nil && h.Unmatched(ask, plan.Unmatched) {
		return nil, misunderstood(http.StatusForbidden, "unmatched", "permission_error", "no "+string(plan.Unmatched)+" of the rules is for this request")
	}
	m := mannerOf(plan)
	plan.Free()
	e, err := estimateOf(r, m, set.Models(h.Domain))
	if err != nil {
		return nil, err
	}
	waits := time.Now().Before(until)
	w := &waiter{caller: by.key}
	turn := "" // the key whose turn the request has had
	defer func() {
		if turn != "" {
			h.line.wake(turn)
		}
	}()
	for cuts := 0; cuts < len(meters); {
		ended := h.line.ended.Load()
		if w.number > 0 {
			// Rules and rights may have changed while the request waited.
			if set = h.Rules(); !callers.FromContext(ctx).Still(callers.Take, h.Domain) {
				return nil, misunderstood(http.StatusForbidden, "forbidden", "permission_error", "the caller lost its rights while the request waited")
			}
		}
		ask.Costs, ask.Least = e.costs, e.least
		if plan, err = set.Plan(ask); err != nil {
			if e.price == nil && errors.Is(err, weir.ErrInvalid) {
				return nil, misunderstood(http.StatusBadRequest, "unknown_model", invalidRequest, "no price is known for the model "+shorten(r.model))
			}
			return nil, h.unplanned(err)
		}
		if busy := h.line.busy(keysOf(plan.Acts)); waits && w.number == 0 && busy != "" {
			// Who comes later does not overtake.
			plan.Free()
			h.Observer.Waiting(1)
			again := h.line.wait(ctx, h.stop, busy, w, 0, 0, until)
			h.Observer.Waiting(-1)
			switch turn = busy; {
			case again:
				continue
			case ctx.Err() != nil, h.stopped():
				return nil, undecided()
			}
			return nil, lineFull()
		}
		own, refused, open, err := h.decide(ctx, plan, ask, e, waits)
		own.ctx, own.key, own.model, own.labels = context.WithoutCancel(ctx), by.key, r.model, by.labels
		if err != nil {
			own.release()
			return nil, h.unplanned(err)
		}
		if refused == nil {
			describe(plan)
			own.renewSlots()
			h.budgets.note(own.acts)
			own.opened()
			h.line.wake(own.keys...)
			turn = ""
			return own, nil
		}
		// What was granted beside the refusal is not needed.
		own.release()
		if e.cut(refused) {
			cuts++
			continue
		}
		d := refused.Decision()
		if at, after := refused.Act.Charges[refused.Charge].Key, h.after(refused, &d, open); waits && after > 0 && time.Now().Add(after).Before(until) {
			if turn != "" && turn != at {
				h.line.wake(turn)
			}
			turn, w.tried = at, true
			h.Observer.Waiting(1)
			waits = h.line.wait(ctx, h.stop, at, w, ended, after, until)
			h.Observer.Waiting(-1)
			if waits {
				continue
			}
			turn = "" // The line has woken the next one.
		}
		describe(plan)
		if open == 0 {
			h.refused(plan, ask)
		}
		why := refusedBy(refused, d, open)
		why.at, why.row = decidedAt(plan), e.row()
		why.instead, why.insteadBy = insteadOf(plan, r, set.Models(h.Domain))
		return nil, why
	}
	return nil, undecided()
}

// decide has a plan decided and notes what it holds, or says what refused it, see refusing.
func (h *holder) decide(ctx context.Context, plan *rules.Plan, ask *rules.Request, e *estimate, waits bool) (own *held, refused *rules.Applied, open int, err error) {
	asked := h.open.ask(keysOf(plan.Acts))
	defer asked.leave()
	if err = h.take(ctx, plan); err == nil {
		refused, open = h.refusing(ctx, plan, asked)
	}
	if own = h.granted(plan, ask, e); err == nil && refused == nil {
		own.open, own.keys = h.open.add(own.acts), asked.keys
	}
	asked.known()
	if waits && refused != nil && open == 0 {
		// A hold may have been granted whose answer was still on its way.
		asked.awaitAnswers(ctx)
		refused, open = h.refusing(ctx, plan, asked)
	}
	return own, refused, open, err
}

// after returns when a refused request may be tried again by itself; 0 if it need not wait for it.
// Slots and what open requests hold come back at any time, other units when the limit says so.
func (h *holder) after(a *rules.Applied, d *weir.Decision, open int) time.Duration {
	switch {
	case d.RetryAfter == weir.Never, d.Source == acts.SourceFailClosed, a.Limit.Count == 0:
		return 0
	case open > 0, algo.TraitsOf(a.Limit.Algorithm).HoldsSlots:
		return soonAgain()
	}
	return d.RetryAfter
}

// stopped reports whether nobody may wait any more.
func (h *holder) stopped() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// keysOf returns the keys that acts charge.
func keysOf(list []*weir.Act) (keys []string) {
	for _, act := range list {
		for i := range act.Charges {
			keys = append(keys, act.Charges[i].Key)
		}
	}
	return keys
}

// mayAsk checks the rights of a caller. The error is a [*refusal].
func mayAsk(ctx context.Context, ask *rules.Request) error {
	if err := callers.MayAsk(ctx, ask); err != nil {
		return misunderstood(http.StatusForbidden, "forbidden", "permission_error", err.Error())
	}
	return nil
}

// take has a plan decided. A take that got no decision is repeated by its ID, so that its caller
// need not repeat the request.
func (h *holder) take(ctx context.Context, plan *rules.Plan) error {
	for until := time.Now().Add(holdFor); ; {
		if len(plan.Acts) > 0 {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Timeout)
			plan.TakeActs(within, h.Taker, plan.Acts)
			cancel()
		}
		err := plan.Err()
		if err == nil || errors.Is(err, weir.ErrInvalid) || !time.Now().Before(until) || deadline.Sleep(ctx, holdPause) != nil {
			return err
		}
	}
}

// unplanned is the answer of a request that got no decision.
func (h *holder) unplanned(err error) error {
	if invalid := new(weir.InvalidError); errors.As(err, &invalid) {
		return invalidBody(problem.Detail(invalid))
	}
	h.seldom("the store reached no decision", "error", err)
	return undecided()
}

// refusing returns the limit that refused a request, the strictest of several; nil if none
// did. If only open holds keep the request out of all that refused it, it also returns how many
// requests they are of, and the request may be tried again soon.
func (h *holder) refusing(ctx context.Context, plan *rules.Plan, asked *asking) (refused *rules.Applied, open int) {
	if refused = plan.Decisive(refuses); refused == nil {
		return nil, 0
	}
	byHolds := map[*rules.Applied]int{}
	spent := plan.Decisive(func(a *rules.Applied) bool {
		if !refuses(a) {
			return false
		}
		byHolds[a] = h.heldOut(ctx, a, asked)
		return byHolds[a] == 0
	})
	if spent != nil {
		return spent, 0
	}
	for a := range byHolds {
		a.Act.Decisions[a.Charge].RetryAfter = soon
	}
	return refused, byHolds[refused]
}

// speaks reports whether clients see the limit: it may refuse, and no other alternative was
// chosen.
func speaks(a *rules.Applied) bool { return a.Enforced() && a.Chosen() }

func refuses(a *rules.Applied) bool { return speaks(a) && a.Decision().Outcome == weir.Refused }

// cut makes a guess fit the limit of its own that a key has, and reports whether it did.
func (e *estimate) cut(refused *rules.Applied) bool {
	meter := meterOf(refused)
	if !refused.Overridden || e.least == nil || refused.Decision().RetryAfter != weir.Never {
		return false
	}
	fits := max(e.least[meter], refused.Limit.Capacity()-refused.Act.Charges[refused.Charge].Keep)
	if fits >= e.costs[meter] || refused.Limit.Capacity() < fits {
		return false
	}
	e.costs[meter] = fits
	return true
}

// granted returns what a plan was granted. Rules without algorithm count refused requests,
// so that the acts of those stay.
func (h *holder) granted(plan *rules.Plan, ask *rules.Request, e *estimate) *held {
	own := &held{h: h, id: plan.ID, e: e, rules: map[*weir.Limit]bool{}}
	for _, act := range plan.Acts {
		if act.Err != nil || !act.Allowed() {
			continue
		}
		own.acts = append(own.acts, weir.Act{ID: act.ID, Scope: act.Scope, Charges: slices.Clone(act.Charges), Decisions: make([]weir.Decision, len(act.Charges))})
	}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; a.Act != nil && !a.Rule.Shadow {
			own.rules[a.Act.Charges[a.Charge].Limit] = true
		}
	}
	own.note(plan, ask)
	return own
}

// with returns a part of what is held, or another one.
func (own *held) with(acts []weir.Act) *held {
	return &held{h: own.h, ctx: own.ctx, rules: own.rules, e: own.e, acts: acts}
}

// release refunds everything, for a request that was refused.
func (own *held) release() { _ = own.do(acts.KindRelease) }

// do has all acts decided as another kind, and returns the first error.
func (own *held) do(kind weir.Kind) error {
	ctx, cancel := context.WithTimeout(own.ctx, own.h.Timeout)
	defer cancel()
	acts := make([]*weir.Act, len(own.acts))
	for i := range own.acts {
		own.acts[i].Kind, own.acts[i].Err = kind, nil
		acts[i] = &own.acts[i]
	}
	if len(acts) == 0 {
		return nil
	}
	own.h.Taker.Take(ctx, acts)
	for _, a := range acts {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

// renewSlots renews the slots, each time that half their lease is over, until the request
// is settled.
func (own *held) renewSlots() {
	lease := time.Duration(0)
	var slots []weir.Act
	for i := range own.acts {
		has := false
		for _, c := range own.acts[i].Charges {
			if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
				has = true
				if lease == 0 || c.Limit.Period < lease {
					lease = c.Limit.Period
				}
			}
		}
		if has {
			a := own.acts[i]
			a.Charges, a.Decisions = slices.Clone(a.Charges), make([]weir.Decision, len(a.Charges))
			for j := range a.Charges {
				a.Charges[j].Cost = 0
			}
			slots = append(slots, a)
		}
	}
	if lease == 0 {
		return
	}
	own.renewAfter(lease/2, own.with(slots))
}

// renewAfter renews slots after a pause, and again and again, unless the request is settled.
func (own *held) renewAfter(pause time.Duration, slots *held) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.done {
		return
	}
	own.renew = time.AfterFunc(pause, func() {
		if err := slots.do(acts.KindRenew); err != nil {
			own.h.seldom("a slot was not renewed", "error", err)
		}
		own.renewAfter(pause, slots)
	})
}

// end ends the renewal of slots.
func (own *held) end() {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.done = true
	if own.renew != nil {
		own.renew.Stop()
	}
}

// refund settles a request that surely cost nothing. The request itself counts.
func (own *held) refund() { own.settle(nothing, true) }

// settle settles the request, once. A settlement that the store did not decide is delivered later.
func (own *held) settle(u usage, free bool) {
	own.once.Do(func() {
		own.end()
		own.charge(u)
		own.count(u, free)
		own.deliver()
		own.enter(u, free)
		own.h.open.remove(own.open)
		own.h.line.endedAt(own.keys)
	})
}

// drop settles a request that counts for nothing.
func (own *held) drop() {
	own.once.Do(func() {
		own.end()
		for i := range own.acts {
			for j := range own.acts[i].Charges {
				own.acts[i].Charges[j].Cost = 0
			}
		}
		own.deliver()
		own.dropped()
		own.h.open.remove(own.open)
		own.h.line.endedAt(own.keys)
	})
}

// deliver settles the acts with the costs that they have.
func (own *held) deliver() {
	_ = own.do(acts.KindSettle)
	var failed error
	var settled, lost []weir.Act
	for _, a := range own.acts {
		switch {
		case a.Err == nil:
			settled = append(settled, a)
		case errors.Is(a.Err, weir.ErrUnknownID) && !a.Alternatives():
			lost = append(lost, recorded(a)...)
		case !acts.Kept(a.Err):
			failed = a.Err
		}
	}
	own.with(settled).settled()
	own.with(lost).record()
	own.failure = failed != nil
	if failed != nil {
		own.failed(failed)
	}
}

// recorded returns the act that charges what was used without a hold; none if it is about
// slots only.
func recorded(a weir.Act) []weir.Act {
	a.ID, a.Scope = "", algo.Scope{}
	a.Charges = slices.DeleteFunc(a.Charges, func(c weir.Charge) bool { return algo.TraitsOf(c.Limit.Algorithm).HoldsSlots })
	if a.Decisions = a.Decisions[:len(a.Charges)]; len(a.Charges) == 0 {
		return nil
	}
	for i := range a.Charges {
		a.Charges[i].Keep = 0
	}
	return []weir.Act{a}
}

// record charges acts whose hold the store has lost. It does so once, because a store does
// not know a repeat.
func (own *held) record() {
	switch err := own.do(acts.KindRecord); {
	case err != nil:
		own.failed(err)
	case len(own.acts) > 0:
		own.settled()
		own.h.seldom("the store has lost the hold of a request: its use is charged without it")
	}
}

// failed counts a request that could not be settled.
func (own *held) failed(err error) {
	own.h.Observer.SettleFailed()
	own.h.seldom("a request was not settled: its hold stays charged", "error", err)
}

// charge sets the costs of the charges, and counts what goes beyond the hold.
func (own *held) charge(u usage) {
	for i := range own.acts {
		charges := own.acts[i].Charges
		for j := range charges {
			c := &charges[j]
			if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
				c.Cost = 0
				continue
			}
			before := c.Cost
			c.Cost = own.of(rules.MeterOf(c.Limit), u, before)
			if own.rules[c.Limit] && c.Cost > before {
				own.h.Observer.Underestimated(c.Limit.Name, c.Cost-before)
			}
		}
	}
}

// of returns what a meter that holds so much is charged.
func (own *held) of(meter string, u usage, hold int64) int64 {
	if _, known := own.e.costs[meter]; !known {
		return hold
	}
	return actual(meter, own.e.complete(u), own.e.price)
}

// count counts what the request has used.
func (own *held) count(u usage, free bool) {
	used := map[string]int64{}
	for meter, hold := range own.e.costs {
		if used[meter] = own.of(meter, u, hold); free && meter != config.MeterRequests {
			used[meter] = 0
		}
	}
	own.h.Observer.Settled(own.key, own.model, own.e.row(), used)
}

// settled counts what a settlement charged, and the part that a limit could not record,
// because it records at most one full drain beyond its count.
func (own *held) settled() {
	for i := range own.acts {
		a := &own.acts[i]
		for j := range a.Charges {
			c, d := &a.Charges[j], &a.Decisions[j]
			if !own.rules[c.Limit] || d.Outcome != weir.Granted || c.Cost == 0 {
				continue
			}
			own.h.Observer.Charged(c.Limit.Name, own.e.row(), rules.MeterOf(c.Limit), c.Cost)
			if d.Granted < c.Cost {
				own.h.Observer.Unrecorded(c.Limit.Name, c.Cost-d.Granted)
			}
		}
	}
}

// seldom logs a warning, at most one a minute.
func (h *holder) seldom(message string, attrs ...any) {
	if _, due := h.logged.Due(); due {
		h.Logger.Log(context.Background(), slog.LevelWarn, message, attrs...)
	}
}
