package httpapi

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// few is the number of limits that most requests have at most.
const few = 4

// A verdict is the decision about a request, before it becomes a response. It must not
// be copied: it points into itself.
type verdict struct {
	request *rules.Request
	plan    *rules.Plan
	id      string // the request's or a generated one; empty: none
	allowed bool
	granted int64
	limits  []ruling
	// enforced are the indexes, in limits, of those that may refuse: clients do not
	// see shadow limits in headers.
	enforced []int
	// alternatives are those that were granted, or else would be soonest, one for each
	// descriptor whose rule has some.
	alternatives []alternative
	// strictest is the enforced limit that the headers describe; it has no limit without one.
	strictest ruling

	// Memory for most requests.
	fewLimits   [few]ruling
	fewEnforced [few]int
	fewHeaders  [few]*weir.Limit
}

// An alternative is one of those of a descriptor's rule, from 1 on.
type alternative struct{ descriptor, number int }

// A ruling is the decision of one limit.
type ruling struct {
	applied  *rules.Applied
	decision weir.Decision
}

// read reads the decisions of a plan that was taken.
func (v *verdict) read(req *rules.Request, plan *rules.Plan) {
	v.request, v.id, v.allowed, v.plan = req, plan.ID, true, plan
	v.limits, v.enforced = v.fewLimits[:0], v.fewEnforced[:0]
	decisive := plan.Decisive((*rules.Applied).Enforced)
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Limit == nil {
			continue
		}
		d := a.Decision()
		v.limits = append(v.limits, ruling{applied: a, decision: d})
		if a.Rule.Shadow {
			continue
		}
		v.enforced = append(v.enforced, len(v.limits)-1)
		if a == decisive {
			v.strictest = ruling{applied: a, decision: d}
		}
		v.allowed = v.allowed && (req.Kind != acts.KindTake || a.Act.Allowed())
		if a.Of.Alternative > 0 && a.Chosen() && (len(v.alternatives) == 0 || v.alternatives[len(v.alternatives)-1].descriptor != a.Descriptor) {
			v.alternatives = append(v.alternatives, alternative{a.Descriptor, a.Of.Alternative})
		}
	}
	if v.allowed {
		v.granted = v.least()
	}
}

// least returns how many units all enforced limits granted; of several costs the requests. Slots are not units; they
// count only where no limit counts units.
func (v *verdict) least() int64 {
	if v.request.Dry {
		return 0
	}
	if v.request.Costs != nil {
		if n, given := v.request.Costs[config.MeterRequests]; given {
			return n
		}
		return 1
	}
	units, slots := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, i := range v.enforced {
		switch r := &v.limits[i]; {
		case r.decision.Outcome == weir.NotEvaluated:
		case algo.TraitsOf(r.applied.Limit.Algorithm).HoldsSlots:
			slots = min(slots, r.decision.Granted)
		default:
			units = min(units, r.decision.Granted)
		}
	}
	switch {
	case units < math.MaxInt64:
		return units
	case slots < math.MaxInt64 && v.request.Kind != acts.KindTake && v.request.Kind != acts.KindSettle:
		return slots
	}
	if len(v.request.Calls) > 0 {
		return max(v.request.Calls[0].Cost, v.request.UpTo)
	}
	return max(v.request.Cost, v.request.UpTo)
}

// writeHeaders writes the verdict into the headers of a response.
func (a *api) writeHeaders(h http.Header, v *verdict) {
	h["Cache-Control"] = noStore
	if v.id != "" && strings.IndexFunc(v.id, func(c rune) bool { return c <= ' ' || c > '~' }) < 0 {
		h["Weir-Id"] = []string{v.id}
	}
	if v.plan.Unmatched != "" {
		h["Weir-Unmatched"] = []string{string(v.plan.Unmatched)}
	}
	if len(v.alternatives) > 0 {
		numbers := make([]string, len(v.alternatives))
		for i, a := range v.alternatives {
			numbers[i] = strconv.Itoa(a.number)
		}
		h["Weir-Alternative"] = []string{strings.Join(numbers, ", ")}
	}
	if v.strictest.applied == nil {
		return
	}
	answer := ratelimitheader.Answer{Limits: v.fewHeaders[:0], Decision: v.strictest.decision}
	answer.Decision.Limit = v.strictest.applied.Limit
	for _, i := range v.enforced {
		if !v.limits[i].applied.Chosen() {
			continue
		}
		answer.Limits = append(answer.Limits, v.limits[i].applied.Limit)
	}
	answer.Write(h, a.Headers)
}

// refusal returns the problem of a refused request. It describes the limits only where
// the headers do.
func (a *api) refusal(v *verdict, status int) *problem.Document {
	if why := v.plan.Unmatched; why != "" {
		return &problem.Document{Status: status, Code: "unmatched", Detail: "no " + string(why) + " of the rules is for this request"}
	}
	p := &problem.Document{Type: problem.QuotaExceeded, Title: "Quota exceeded", Status: status, Detail: "too many requests"}
	if a.Headers != ratelimitheader.None {
		p.Detail, p.Violated = v.strictest.explain(), v.violated()
	}
	return p
}

// explain says which limit refused, and until when.
func (r *ruling) explain() string {
	b := strconv.AppendQuote(append(make([]byte, 0, 96), "limit "...), r.applied.Limit.Name)
	if r.blocked() {
		return string(b) + " is blocked until " + time.Now().Add(r.decision.RetryAfter).UTC().Format(time.RFC3339)
	}
	b = append(append(append(b, " ("...), config.LimitText(r.applied.Limit)...), ')')
	keep := r.applied.Act.Charges[r.applied.Charge].Keep
	switch {
	case r.decision.Source == acts.SourceFailClosed:
		b = append(b, " refuses everything while the store is unreachable"...)
	case r.decision.RetryAfter == weir.Never && keep > 0:
		b = append(append(append(b, " can never grant this cost and keep "...), r.kept(keep)...), " free"...)
	case r.decision.RetryAfter == weir.Never:
		b = append(b, " can never grant this cost"...)
	case r.decision.Blocked:
		b = append(b, " has blocked the key, which it refused before"...)
		b = append(strconv.AppendInt(append(b, "; retry in "...), max(1, ratelimitheader.Seconds(r.decision.RetryAfter)), 10), " s"...)
	default:
		b = append(b, " is used up"...)
		if keep > 0 {
			b = append(append(append(b, " except for "...), r.kept(keep)...), " kept free"...)
		}
		seconds := max(1, ratelimitheader.Seconds(r.decision.RetryAfter))
		b = append(strconv.AppendInt(append(b, "; retry in "...), seconds, 10), " s"...)
	}
	return string(b)
}

// kept is the number of units that a charge keeps free, for people.
func (r *ruling) kept(n int64) string {
	meter := rules.MeterOf(r.applied.Act.Charges[r.applied.Charge].Limit)
	if meter == config.MeterUSD {
		return config.AmountText(meter, n)
	}
	return strconv.FormatInt(n, 10) + " units"
}

// blocked reports whether an administrator blocks the key for a while: a limit of nothing
// refuses for ever.
func (r *ruling) blocked() bool {
	return r.decision.Source == acts.SourceLimit && r.decision.RetryAfter != weir.Never
}

// violated returns the names, as in the headers, of the limits that refused.
func (v *verdict) violated() []string {
	var names []string
	for i := range v.limits {
		r := &v.limits[i]
		if r.decision.Outcome != weir.Refused || !r.applied.Chosen() {
			continue
		}
		if name := ratelimitheader.PolicyName(r.applied.Limit); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// actAnswer is the body of an answer to a POST.
type actAnswer struct {
	Allowed bool          `json:"allowed"`
	Granted int64         `json:"granted"`
	ID      string        `json:"id"`
	Limits  []limitAnswer `json:"limits"`
}

type limitAnswer struct {
	Name         string `json:"name"`
	Key          string `json:"key"`
	Algorithm    string `json:"algorithm"`
	Limit        int64  `json:"limit"`
	Granted      int64  `json:"granted"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	DelayMS      int64  `json:"delay_ms"`
	AtUS         int64  `json:"at_us"`
	Source       string `json:"source"`
	// Blocked says that the limit has blocked the key, which it has refused.
	Blocked bool `json:"blocked,omitempty"`
	// Count is what the limit counts, unless it is requests.
	Count string `json:"count,omitempty"`
	// Budget is the label of the budget that the limit charges, Keep how many units it
	// leaves to others.
	Budget string `json:"budget,omitempty"`
	Keep   int64  `json:"keep,omitempty"`
	// Alternative is the limit's place among the alternatives of its rule, and Chosen says
	// that they were granted, or else would be soonest.
	Alternative int  `json:"alternative,omitempty"`
	Chosen      bool `json:"chosen,omitempty"`
	// Shadow limits never refuse; Trial limits are shadow limits beside another one.
	Shadow bool `json:"shadow,omitempty"`
	Trial  bool `json:"trial,omitempty"`
}

func (v *verdict) limitAnswer(i int) limitAnswer {
	a, d := v.limits[i].applied, &v.limits[i].decision
	return limitAnswer{
		Name:         a.Limit.Name,
		Key:          v.keyOf(a),
		Algorithm:    a.Limit.Algorithm.String(),
		Limit:        a.Limit.Count,
		Granted:      d.Granted,
		Remaining:    d.Remaining,
		RetryAfterMS: jsonbody.Millis(d.RetryAfter),
		ResetAfterMS: jsonbody.Millis(d.ResetAfter),
		DelayMS:      jsonbody.Millis(d.Delay),
		AtUS:         jsonbody.Micros(d.At),
		Source:       d.Source.String(),
		Blocked:      d.Blocked,
		Count:        a.Limit.Meter,
		Budget:       a.Of.Budget.String(),
		Keep:         a.Act.Charges[a.Charge].Keep,
		Alternative:  a.Of.Alternative,
		Chosen:       a.Of.Alternative > 0 && a.Chosen(),
		Shadow:       a.Rule.Shadow,
		Trial:        a.Rule.OnTrial,
	}
}

// keyOf names what the limit was for.
func (v *verdict) keyOf(a *rules.Applied) string {
	if a.Call != nil {
		return a.Call.Key
	}
	return keysOf(v.request.Descriptors[a.Descriptor])
}

// keysOf names a descriptor by the keys of its entries; the caller knows the values.
func keysOf(descriptor []rules.Entry) string {
	if len(descriptor) == 1 {
		return descriptor[0].Key
	}
	keys := make([]string, len(descriptor))
	for i, e := range descriptor {
		keys[i] = e.Key
	}
	return strings.Join(keys, ",")
}
