package rls

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/rules"
)

// An Answer is the answer to Envoy.
type Answer struct {
	Over     bool     // the request is over its limits
	Statuses []Status // one for each descriptor, in their order
	Headers  []Header // to add to the response
	// Metadata is nil unless the mode asks for it.
	Metadata map[string]any
}

// A Header is the name and value of a response header.
type Header struct{ Name, Value string }

// A Status is the result of one descriptor.
type Status struct {
	Over bool
	// Limit is nil if no limit applied.
	Limit     *CurrentLimit
	Remaining uint32
	// Reset is the time until the window ends, in whole seconds; for rules with an
	// algorithm, until the request could pass, or else until the limit is full again, and
	// [ratelimitheader.Never] if the request can never pass. It is 0 without a Limit.
	Reset time.Duration
}

// A CurrentLimit is a limit as answers describe it: Requests per Multiplier units.
type CurrentLimit struct {
	Name       string
	Requests   uint32
	Unit       Unit
	Multiplier uint32
}

// judgement is an answer under construction.
type judgement struct {
	*Answer
	*call
	// chosen are the limits of the alternatives that were granted, or else would be
	// soonest.
	chosen []*rules.Applied
}

// quota says how a descriptor contributes to the overall result.
type quota uint8

const (
	always   quota = iota // it refuses by itself
	together              // it refuses if all of its kind do
	never                 // it never refuses
)

// judge puts the decisions of the call's plan into its answer.
func (s *Service) judge(req *Request, c *call) {
	j, plan := judgement{Answer: &c.answer, call: c}, c.plan
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Rule.OnTrial || !a.Chosen() {
			continue
		}
		d := a.Descriptor
		if a.Of.Alternative > 0 && !a.Rule.Shadow {
			j.chosen = append(j.chosen, a)
		}
		r := s.rule(a, c.asked.Each[d].Cost)
		if j.rules[d] == nil || r.stricterThan(&j.rulings[d]) {
			j.rulings[d] = r
			r.write(a, &j.Statuses[d], &j.limits[d])
		}
		j.rules[d] = a.Rule
	}
	for i := range j.Statuses {
		j.over[i] = j.Statuses[i].Over
	}
	unmatched := plan.Unmatched
	if unmatched != "" && s.options.Unmatched != nil && s.options.Unmatched(c.asked, unmatched) {
		for i := range j.Statuses {
			j.Statuses[i].Over, j.over[i] = true, true
		}
	}
	j.Over = j.refused() && !s.options.Shadow
	if s.options.Headers != nil {
		j.Headers = j.headers(s.options.Headers)
		if len(j.chosen) > 0 {
			j.Headers = append(j.Headers, Header{"weir-alternative", j.alternatives()})
		}
		if unmatched != "" {
			j.Headers = append(j.Headers, Header{"weir-unmatched", string(unmatched)})
		}
	}
	if s.options.Metadata {
		j.Metadata = j.metadata(req)
	}
}

// quotaOf returns how a descriptor of a rule contributes; nil is no rule.
func (o *Options) quotaOf(r *rules.Rule) quota {
	switch {
	case r != nil && r.Unlimited:
		return never
	case o.Quota || r != nil && r.Quota:
		return together
	}
	return always
}

// refused reports whether the descriptors refuse the whole request: one that is over its
// limits and refuses alone, or all that refuse together.
func (c *call) refused() bool {
	refused, asked := 0, 0
	for i, q := range c.quota {
		switch {
		case q == together:
			asked++
			if c.over[i] {
				refused++
			}
		case c.over[i]:
			return true
		}
	}
	return asked > 0 && refused == asked
}

// A ruling is the result of one limit for a descriptor.
type ruling struct {
	over      bool
	remaining int64
	wait      time.Duration // until the cost would be granted, or the window ends
	count     int64         // of the limit; 1 where units are compared one by one
}

// rule reads a decision. The cost may be more than what was charged.
func (s *Service) rule(a *rules.Applied, cost int64) ruling {
	if a.Act == nil {
		return ruling{remaining: math.MaxUint32, count: math.MaxUint32}
	}
	d := &a.Act.Decisions[a.Charge]
	r := ruling{remaining: room(a, d), wait: d.ResetAfter, count: a.Limit.Count, over: d.Outcome == weir.Refused}
	if a.Of.Alternative > 0 {
		r.count = 1 // what remains is what one charge could take
	}
	if r.over && d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		r.wait = d.RetryAfter
	}
	if counted(a) {
		r.wait = s.untilWindowEnds(a.Limit, d.At)
	}
	if peeks(a) {
		r.over = refuses(&r, a, cost)
	}
	if r.over {
		r.remaining = 0
	}
	r.remaining = max(0, r.remaining)
	if r.over = r.over && !a.Rule.Shadow; r.over && !counted(a) && neverFits(a, d, cost) {
		r.wait = weir.Never
	}
	return r
}

// neverFits reports whether no wait turns a refusal into a grant. An override of a key ends.
func neverFits(a *rules.Applied, d *weir.Decision, cost int64) bool {
	if peeks(a) {
		return !a.Overridden && max(1, cost) > a.Limit.Capacity()-a.Act.Charges[a.Charge].Keep
	}
	return d.RetryAfter == weir.Never
}

// counted reports whether a limit counts like envoyproxy/ratelimit, beyond its limit.
// Overrides of single keys do not.
func counted(a *rules.Applied) bool { return a.Rule.Counter() != nil && !a.Overridden }

// room returns how many units would be granted now; where it is known, a limit that is
// exceeded has negative room.
func room(a *rules.Applied, d *weir.Decision) int64 {
	switch {
	case algo.TraitsOf(a.Limit.Algorithm).Delays && d.ResetAfter > 0:
		// A unit would have to wait until the bucket has drained.
		return 0
	case peeks(a) && counted(a):
		return a.Limit.Count - (a.Rule.Counter().Count - d.Remaining)
	}
	return d.Remaining
}

// refuses reports whether a peek finds the limit exceeded: the cost, or one unit, would
// be refused. Rules without an algorithm refuse only once they are exceeded.
func refuses(r *ruling, a *rules.Applied, cost int64) bool {
	if counted(a) {
		return r.remaining < 0 || cost > mostHits(a.Limit)
	}
	return max(1, cost) > r.remaining
}

// untilWindowEnds returns the time until the window ends, in whole seconds, from the
// store's second or, if no store decided, from this machine's.
func (s *Service) untilWindowEnds(l *weir.Limit, at time.Time) time.Duration {
	if at.IsZero() {
		at = s.options.Now()
	}
	window := int64(l.Period / time.Second)
	return time.Duration(window-at.Unix()%window) * time.Second
}

// stricterThan reports whether a limit, rather than another one of its descriptor,
// determines the status.
func (r *ruling) stricterThan(other *ruling) bool {
	both := weir.Act{
		Charges:   []weir.Charge{{Limit: &weir.Limit{Count: other.count}}, {Limit: &weir.Limit{Count: r.count}}},
		Decisions: []weir.Decision{other.decision(), r.decision()},
	}
	i, _ := both.Verdict()
	return i == 1
}

// decision returns the ruling as a decision that [weir.Act.Verdict] compares.
func (r *ruling) decision() weir.Decision {
	d := weir.Decision{Outcome: weir.Granted, Remaining: r.remaining}
	if r.over {
		d.Outcome, d.RetryAfter = weir.Refused, r.wait
	}
	return d
}

// write writes the ruling into a status. current is the memory for its limit.
func (r *ruling) write(a *rules.Applied, s *Status, current *CurrentLimit) {
	*s = Status{Over: r.over, Remaining: uint32(min(r.remaining, math.MaxUint32))}
	if a.Limit == nil {
		return
	}
	*current = currentLimit(a)
	// Rounded up: a client that waits this long must not come too early.
	s.Limit, s.Reset = current, time.Duration(ratelimitheader.Seconds(r.wait))*time.Second
}

var lengths = [...]struct {
	unit   Unit
	length time.Duration
}{
	{Year, 365 * 24 * time.Hour},
	{Month, 30 * 24 * time.Hour},
	{Week, 7 * 24 * time.Hour},
	{Day, 24 * time.Hour},
	{Hour, time.Hour},
	{Minute, time.Minute},
	{Second, time.Second},
}

// currentLimit returns a limit in the units of answers. A period that is not a whole
// number of seconds becomes the count of the next whole second.
func currentLimit(a *rules.Applied) CurrentLimit {
	current := CurrentLimit{Name: a.Rule.Name}
	if a.Rule.Grouped {
		current.Name = a.Limit.Name
	}
	count, seconds := ratelimitheader.QuotaOf(a.Limit)
	period := time.Duration(seconds) * time.Second
	current.Requests = uint32(min(count, math.MaxUint32))
	for _, l := range lengths {
		if period%l.length == 0 {
			current.Unit, current.Multiplier = l.unit, uint32(period/l.length)
			break
		}
	}
	return current
}

// headers describes the limit with the least remaining, the first of several; if
// descriptors that refuse alone are over their limits, the last of those. This is what
// envoyproxy/ratelimit does.
func (j *judgement) headers(names *HeaderNames) []Header {
	var strictest *Status
	refused := false
	for i := range j.Statuses {
		s := &j.Statuses[i]
		switch {
		case s.Limit == nil:
		case s.Over && j.quota[i] == always:
			strictest, refused = s, true
		case !refused && (strictest == nil || s.Remaining < strictest.Remaining):
			strictest = s
		}
	}
	if strictest == nil {
		return nil
	}
	return []Header{
		{names.Limit, strconv.FormatUint(uint64(strictest.Limit.Requests), 10)},
		{names.Remaining, strconv.FormatUint(uint64(strictest.Remaining), 10)},
		{names.Reset, strconv.FormatInt(int64(strictest.Reset/time.Second), 10)},
	}
}

// alternatives returns the numbers of the alternatives, one for each descriptor whose rule
// has some.
func (j *judgement) alternatives() string {
	var numbers []string
	for i, a := range j.chosen {
		if i == 0 || j.chosen[i-1].Descriptor != a.Descriptor {
			numbers = append(numbers, strconv.Itoa(a.Of.Alternative))
		}
	}
	return strings.Join(numbers, ", ")
}

// metadata returns the request, and the metadata of the rules that let it pass.
func (j *judgement) metadata(req *Request) map[string]any {
	descriptors := make([]any, len(req.Descriptors))
	for i := range req.Descriptors {
		descriptors[i] = describe(&req.Descriptors[i])
	}
	m := map[string]any{"domain": req.Domain, "descriptors": descriptors}
	if req.HitsAddend > 0 {
		m["hitsAddend"] = int64(req.HitsAddend)
	}
	if len(j.chosen) > 0 {
		chosen := make([]any, len(j.chosen))
		for i, a := range j.chosen {
			chosen[i] = map[string]any{"descriptor": int64(a.Descriptor), "alternative": int64(a.Of.Alternative), "limit": a.Limit.Name}
		}
		m["alternatives"] = chosen
	}
	merged := map[string]any{}
	for i, r := range j.rules {
		if r != nil && !j.Statuses[i].Over {
			merge(merged, r.Metadata)
		}
	}
	if len(merged) > 0 {
		m["metadata"] = merged
	}
	return m
}

func describe(d *Descriptor) map[string]any {
	entries := make([]any, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = e.Key + "=" + strings.ToValidUTF8(e.Value, "\uFFFD")
	}
	m := map[string]any{"entries": entries}
	if l := d.Limit; l != nil {
		text := fmt.Sprintf("requests_per_unit:%d unit:%s", l.Requests, strings.ToUpper(unitNames[l.Unit]))
		if l.Multiplier != 1 {
			text += fmt.Sprintf(" unit_multiplier:{value:%d}", l.Multiplier)
		}
		m["limit"] = text
	}
	if d.HitsAddend != nil {
		m["hitsAddend"] = *d.HitsAddend
	}
	return m
}

// merge adds what is missing. It never writes to the maps of the rules.
func merge(to, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		known, taken := to[key]
		switch knownMap, both := known.(map[string]any); {
		case taken && isMap && both:
			knownMap = maps.Clone(knownMap)
			merge(knownMap, inner)
			to[key] = knownMap
		case !taken:
			to[key] = value
		}
	}
}
