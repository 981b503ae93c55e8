package weir

import (
	"math"
	"slices"
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

// Optional reports whether the Group of the i-th charge has another alternative.
func (a *Act) Optional(i int) bool {
	c := &a.Charges[i]
	return slices.ContainsFunc(a.Charges, func(o Charge) bool { return o.Group == c.Group && o.Alt != c.Alt })
}

// AltEnd returns the end of the alternative that begins with the i-th charge: the index
// after its last one.
func (a *Act) AltEnd(i int) int { return altEnd(a.Charges, i) }

// GroupEnd returns the end of the Group that begins with the i-th charge: the index after
// its last one.
func (a *Act) GroupEnd(i int) int { return groupEnd(a.Charges, i) }

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
		most, evaluated, end := int64(0), false, a.GroupEnd(i)
		for i < end {
			alternative := int64(math.MaxInt64)
			for next := a.AltEnd(i); i < next; i++ {
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

// Peeks reports whether no charge from the i-th to the one before end costs anything.
func (a *Act) Peeks(i, end int) bool {
	for ; i < end; i++ {
		if a.Charges[i].Cost > 0 {
			return false
		}
	}
	return true
}

// ChooseFirst keeps the first granted alternative of each Group and marks the others as
// not evaluated, except for peeks. For layers that grant without a store.
func (a *Act) ChooseFirst() {
	for i := 0; i < len(a.Charges); {
		end := a.GroupEnd(i)
		if a.Peeks(i, end) {
			i = end
		}
		for found := false; i < end; {
			next := a.AltEnd(i)
			if found || !granted(a.Decisions, i, next) {
				clear(a.Decisions[i:next])
			} else {
				found = true
			}
			i = next
		}
	}
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
		end, some := a.GroupEnd(i), false
		for i < end {
			next := a.AltEnd(i)
			some = some || granted(a.Decisions, i, next)
			i = next
		}
		if !some {
			return false
		}
	}
	return true
}

// deniedAlternatives reports whether a group has no alternative without a limit whose
// count is 0.
func (a *Act) deniedAlternatives() bool {
	for i := 0; i < len(a.Charges); {
		end, every := a.GroupEnd(i), true
		for i < end {
			next, denied := a.AltEnd(i), false
			for ; i < next; i++ {
				denied = denied || a.Charges[i].denied()
			}
			every = every && denied
		}
		if every {
			return true
		}
	}
	return false
}
