package promises

import (
	"fmt"
	"time"
)

// A model is GCRA in whole numbers, with the bounds that a caller's clock gives: a decision was
// made at some instant between the call and its return. Times are in units of 1/count of a
// nanosecond, so that one unit of cost is exactly the period.
type model struct {
	burst, count, period int64
	// The instant at which the key is fresh lies between these.
	earliest, latest int64
}

func newModel(s Setting) *model {
	return &model{burst: int64(s.Burst), count: int64(s.Count), period: int64(s.Period), earliest: -1 << 60}
}

// A call is one take: when it began and returned, in nanoseconds of a clock, and its answer.
type call struct {
	began, returned int64
	cost            int64
	granted         bool
}

// judge returns why an answer is wrong whenever the decision was made, or "" if it may be right.
func (m *model) judge(c call) string {
	began, returned := c.began*m.count, c.returned*m.count
	cost, room := c.cost*m.period, m.burst*m.period
	switch {
	case c.granted:
		wrong := ""
		if over := m.earliest + cost - room - returned; over > 0 {
			wrong = fmt.Sprintf("granted %v too early", time.Duration(over/m.count))
		} else {
			m.latest = min(max(m.latest, returned), returned+room-cost)
		}
		m.earliest = max(m.earliest, began) + cost
		m.latest = max(m.latest+cost, m.earliest)
		return wrong
	case c.cost > m.burst:
		return ""
	}
	if late := began - m.latest - cost + room; late >= 0 {
		return fmt.Sprintf("refused %v after it fits", time.Duration(late/m.count))
	}
	m.earliest = max(m.earliest, min(m.latest, began+room-cost))
	return ""
}

// mostIn returns the most units that were certainly granted within one span of time.
func mostIn(calls []call, span time.Duration) int64 {
	var granted []call
	for _, c := range calls {
		if c.granted {
			granted = append(granted, c)
		}
	}
	most := int64(0)
	for i := range granted {
		sum := int64(0)
		for j := i; j < len(granted) && granted[j].returned-granted[i].began < int64(span); j++ {
			sum += granted[j].cost
		}
		most = max(most, sum)
	}
	return most
}
