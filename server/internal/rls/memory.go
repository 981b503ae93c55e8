package rls

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/server/internal/rules"
)

// few is how many descriptors most requests have at most.
const few = 4

// A call is what deciding one request needs, kept for further ones. Its slices have
// an element for each descriptor.
type call struct {
	asked   rules.Request
	rulings []ruling
	quota   []quota
	over    []bool        // the descriptor is over its limits, as far as is known
	rules   []*rules.Rule // nil where no rule is for the descriptor
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(descriptors int) *call {
	c := calls.Get().(*call)
	c.asked.Descriptors = slices.Grow(c.asked.Descriptors, descriptors)[:descriptors]
	c.asked.Each = slices.Grow(c.asked.Each, descriptors)[:descriptors]
	c.rulings = slices.Grow(c.rulings, descriptors)[:descriptors]
	c.quota = slices.Grow(c.quota, descriptors)[:descriptors]
	c.over = slices.Grow(c.over, descriptors)[:descriptors]
	c.rules = slices.Grow(c.rules, descriptors)[:descriptors]
	return c
}

// free gives the memory to further calls, without what it refers to.
func (c *call) free() {
	clear(c.asked.Descriptors)
	clear(c.asked.Each)
	clear(c.rulings)
	clear(c.over)
	clear(c.rules)
	*c = call{
		asked:   rules.Request{Descriptors: c.asked.Descriptors[:0], Each: c.asked.Each[:0]},
		rulings: c.rulings[:0], quota: c.quota[:0], over: c.over[:0], rules: c.rules[:0],
	}
	calls.Put(c)
}

// newAnswer is an answer, and the limits that it may tell, in one piece.
func newAnswer(descriptors int) (*Answer, []CurrentLimit) {
	if descriptors > few {
		return &Answer{Statuses: make([]Status, descriptors)}, make([]CurrentLimit, descriptors)
	}
	whole := new(struct {
		Answer
		statuses [few]Status
		limits   [few]CurrentLimit
	})
	whole.Statuses = whole.statuses[:descriptors:descriptors]
	return &whole.Answer, whole.limits[:descriptors]
}
