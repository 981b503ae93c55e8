package weir

import (
	"math"
)

// Alternatives reports whether a Group of the act has more than one alternative.
func (a *Act) Alternatives() bool {
	for i := 1; i < len(a.Charges); i++ {
		if p, c := &a.Charges[i-1], &a.Charges[i]; p.Alt != c.Alt && p.Group == c.Group {
			return true
		}
	}
	return false
}

func altEnd(charges []Charge, i int) int {
	end := i + 1
	for end < len(charges) && charges[end].Group == charges[i].Group && charges[end].Alt == charges[i].Alt {
		end++
	}
	return end
}

func groupEnd(charges []Charge, i int) int {
	end := i + 1
	for end < len(charges) && charges[end].Group == charges[i].Group {
		end++
	}
	return end
}

// Remaining returns the most units that one more charge of each key could take now: the
// smallest number of all groups, where a group counts with its alternative that has most.
// Groups that were not evaluated do not count.
func (a *Act) Remaining() int64 {
	least := int64(math.MaxInt64)
	for i := 0; i < len(a.Charges); {
		most, evaluated, end := int64(0), false, groupEnd(a.Charges, i)
		for i < end {
			alternative := int64(math.MaxInt64)
			for next := altEnd(a.Charges, i); i < next; i++ {
				d := &a.Decisions[i]
				alternative, evaluated = min(alternative, d.Remaining), evaluated || d.Outcome != NotEvaluated
			}
			most = max(most, alternative)
		}
		if evaluated {
			least = min(least, most)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// granted reports whether every charge from the i-th to the one before end was granted.
func granted(decisions []Decision, i, end int) bool {
	for ; i < end; i++ {
		if !decisions[i].Allowed() {
			return false
		}
	}
	return true
}

// allowed reports whether every group was granted one of its alternatives.
func (a *Act) allowed() bool {
	for i := 0; i < len(a.Charges); {
		end, some := groupEnd(a.Charges, i), false
		for i < end {
			next := altEnd(a.Charges, i)
			some = some || granted(a.Decisions, i, next)
			i = next
		}
		if !some {
			return false
		}
	}
	return true
}
