package rls

import (
	"time"

	"github.com/weirlimit/weir/server/internal/rules"
)

// An Answer is what Envoy is told.
type Answer struct {
	Over     bool     // the request is over its limits
	Statuses []Status // one for each descriptor, in their order
	Headers  []Header // to add to the response
	// Metadata is nil unless the mode asks for it.
	Metadata map[string]any
}

// A Header is the name and value of a response header.
type Header struct{ Name, Value string }

// A Status is what one descriptor was told.
type Status struct {
	Over bool
	// Limit is nil where no limit applied.
	Limit     *CurrentLimit
	Remaining uint32
	// Reset is how long until the window ends, in whole seconds; of rules with
	// an algorithm, how long until the request could pass, or else until the
	// limit is as new. It means nothing without a Limit.
	Reset time.Duration
}

// A CurrentLimit is a limit as answers tell it: Requests in so many units.
type CurrentLimit struct {
	Name       string
	Requests   uint32
	Unit       Unit
	Multiplier uint32
}

// judgement is an answer while it is put together.
type judgement struct {
	*Answer
	*call
	limits []CurrentLimit // one for each descriptor, whether it is told or not
}

// quota says how a descriptor counts for the whole.
type quota uint8

const (
	always   quota = iota // it refuses by itself
	together              // it refuses if all of its kind do
	never                 // it has no say
)

// judge puts the decisions of a plan into an answer.
func (s *Service) judge(req *Request, plan *rules.Plan, c *call) *Answer {
	j := judgement{call: c}
	j.Answer, j.limits = newAnswer(len(req.Descriptors))
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Rule.OnTrial {
			continue
		}
		d := a.Descriptor
		r := s.rule(a, c.asked.Each[d].Cost)
		if j.rules[d] == nil || r.stricterThan(&j.rulings[d]) {
			j.rulings[d] = r
			r.tell(a, &j.Statuses[d], &j.limits[d])
		}
		j.rules[d] = a.Rule
	}
	for i := range j.Statuses {
		j.over[i] = j.Statuses[i].Over
	}
	j.Over = j.refused() && !s.options.Shadow
	if s.options.Headers != nil {
		j.Headers = j.headers(s.options.Headers)
	}
	if s.options.Metadata {
		j.Metadata = j.metadata(req)
	}
	return j.Answer
}

// quotaOf says how a descriptor of a rule counts; nil is none.
func (o *Options) quotaOf(r *rules.Rule) quota {
	switch {
	case r != nil && r.Unlimited:
		return never
	case o.Quota || r != nil && r.Quota:
		return together
	}
	return always
}

// refused reports whether descriptors refuse the whole request: one that is over its
// limits and refuses by itself, or all that refuse together.
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
