package httpapi

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/rules"
)

// A verdict is the answer to a request, before it is put into words.
type verdict struct {
	request *rules.Request
	allowed bool
	granted int64
	limits  []ruling
	// speaker is the limit that speaks for the request in the headers, nil if
	// none does.
	speaker *ruling
}

// A ruling is what one limit said.
type ruling struct {
	applied  *rules.Applied
	decision weir.Decision
}

// judge reads the decisions of a plan that was taken.
func judge(req *rules.Request, plan *rules.Plan) *verdict {
	v := &verdict{request: req, allowed: true, granted: max(req.Cost, req.UpTo)}
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Limit == nil {
			continue
		}
		v.add(ruling{applied: a, decision: a.Decision()})
	}
	if !v.allowed {
		v.granted = 0
	}
	v.speaker = v.strictest()
	return v
}

func (v *verdict) add(r ruling) {
	v.limits = append(v.limits, r)
	if r.applied.Rule.Shadow {
		return
	}
	v.allowed = v.allowed && r.decision.Allowed()
	v.granted = min(v.granted, r.decision.Granted)
}

// strictest finds the limit that speaks for the request. A limit that is only
// being watched does not: its clients are not to notice it.
func (v *verdict) strictest() *ruling {
	live := make([]*ruling, 0, len(v.limits))
	charges := make([]weir.Charge, 0, len(v.limits))
	decisions := make([]weir.Decision, 0, len(v.limits))
	for i := range v.limits {
		r := &v.limits[i]
		if r.applied.Rule.Shadow {
			continue
		}
		live = append(live, r)
		charges = append(charges, r.applied.Act.Charges[r.applied.Charge])
		decisions = append(decisions, r.decision)
	}
	best := weir.Strictest(charges, decisions)
	if best < 0 {
		return nil
	}
	return live[best]
}

// violated names the limits that refused, as the headers name them.
func (v *verdict) violated() []string {
	var names []string
	seen := map[string]bool{}
	for _, r := range v.limits {
		name := ratelimitheader.PolicyName(r.applied.Limit)
		if r.decision.Outcome == weir.Refused && !seen[name] {
			seen[name] = true
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
