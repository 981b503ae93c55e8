package httpapi

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A verdict is the answer to a request, before it is put into words. It is not
// copied: it points into itself.
type verdict struct {
	request *rules.Request
	id      string // of the request, or made for it; empty if it has none
	allowed bool
	granted int64
	limits  []ruling
	// speaker is the limit that speaks for the request in the headers, nil if
	// none does.
	speaker *ruling

	plan *rules.Plan
	// few is where the limits of most requests find room, and live that of the
	// answer's.
	few  [4]ruling
	live [4]*weir.Limit
}

// A ruling is what one limit said.
type ruling struct {
	applied  *rules.Applied
	decision weir.Decision
}

// judge reads the decisions of a plan that was taken.
func (v *verdict) judge(req *rules.Request, plan *rules.Plan) {
	v.request, v.id, v.allowed, v.plan = req, plan.ID, true, plan
	v.limits = v.few[:0]
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Limit == nil {
			continue
		}
		r := ruling{applied: a, decision: a.Decision()}
		v.limits = append(v.limits, r)
		if req.Kind == weir.KindTake && !a.Rule.Shadow {
			v.allowed = v.allowed && r.decision.Allowed()
		}
	}
	if v.allowed {
		v.granted = v.least()
	}
	v.speaker = v.strictest()
}

// least is what the limits granted the request, all of them: units, of which a
// place is none unless nothing else is counted.
func (v *verdict) least() int64 {
	units, places := int64(math.MaxInt64), int64(math.MaxInt64)
	for i := range v.limits {
		r := &v.limits[i]
		switch {
		case r.applied.Rule.Shadow || r.applied.Act.Err != nil:
		case r.applied.Limit.Algorithm == weir.Concurrency:
			places = min(places, r.decision.Granted)
		default:
			units = min(units, r.decision.Granted)
		}
	}
	switch {
	case units < math.MaxInt64:
		return units
	case places < math.MaxInt64 && v.request.Kind != weir.KindTake && v.request.Kind != weir.KindSettle:
		return places
	}
	return max(v.request.Cost, v.request.UpTo)
}

// strictest finds the limit that speaks for the request. A limit that is only
// being watched does not: its clients are not to notice it.
func (v *verdict) strictest() *ruling {
	var best *ruling
	for i := range v.limits {
		if r := &v.limits[i]; !r.applied.Rule.Shadow && (best == nil || r.speaksBefore(best)) {
			best = r
		}
	}
	return best
}

// speaksBefore reports whether a limit, and not an earlier one, speaks for both.
func (r *ruling) speaksBefore(earlier *ruling) bool {
	return weir.Strictest(
		[]weir.Charge{{Limit: earlier.limit()}, {Limit: r.limit()}}, []weir.Decision{earlier.decision, r.decision},
	) == 1
}

// limit is the one that decided.
func (r *ruling) limit() *weir.Limit { return r.applied.Act.Charges[r.applied.Charge].Limit }

// violated names the limits that refused, as the headers name them.
func (v *verdict) violated() []string {
	var names []string
	for i := range v.limits {
		r := &v.limits[i]
		if r.decision.Outcome != weir.Refused {
			continue
		}
		if name := ratelimitheader.PolicyName(r.applied.Limit); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// roundUp returns d in whole units, no shorter than d.
func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
