// Package acts has what stores and layers need of acts, and programs do not.
package acts

import (
	"slices"

	"github.com/weirlimit/weir"
)

// Optional reports whether the Group of the i-th charge has another alternative.
func Optional(a *weir.Act, i int) bool {
	c := &a.Charges[i]
	return slices.ContainsFunc(a.Charges, func(o weir.Charge) bool { return o.Group == c.Group && o.Alt != c.Alt })
}

// PassedOver reports whether the decisions on an act say that the i-th charge was not evaluated
// because another alternative of its Group was.
func PassedOver(a *weir.Act, i int) bool {
	c := &a.Charges[i]
	for j := range a.Charges {
		if o, d := &a.Charges[j], a.Decisions[j]; o.Group == c.Group && o.Alt != c.Alt && (d.Outcome != weir.NotEvaluated || d.Allowed()) {
			return a.Decisions[i].Outcome == weir.NotEvaluated
		}
	}
	return false
}

// AltEnd returns the end of the alternative that begins with the i-th charge: the index
// after its last one.
func AltEnd(a *weir.Act, i int) int {
	first, end := &a.Charges[i], i+1
	for end < len(a.Charges) && a.Charges[end].Group == first.Group && a.Charges[end].Alt == first.Alt {
		end++
	}
	return end
}

// GroupEnd returns the end of the Group that begins with the i-th charge: the index after
// its last one.
func GroupEnd(a *weir.Act, i int) int {
	end := i + 1
	for end < len(a.Charges) && a.Charges[end].Group == a.Charges[i].Group {
		end++
	}
	return end
}

// Peeks reports whether no charge from the i-th to the one before end costs anything.
func Peeks(a *weir.Act, i, end int) bool {
	return !slices.ContainsFunc(a.Charges[i:end], func(c weir.Charge) bool { return c.Cost > 0 })
}

// ChooseFirst keeps the first granted alternative of each Group and marks the others as
// not evaluated, except for peeks without an ID. For layers that grant without a store.
func ChooseFirst(a *weir.Act) {
	for i := 0; i < len(a.Charges); {
		end := GroupEnd(a, i)
		if a.ID == "" && Peeks(a, i, end) {
			i = end
		}
		for found := false; i < end; {
			next := AltEnd(a, i)
			if found || slices.ContainsFunc(a.Decisions[i:next], func(d weir.Decision) bool { return !d.Allowed() }) {
				clear(a.Decisions[i:next])
			} else {
				found = true
			}
			i = next
		}
	}
}

// Buckets returns the total number of buckets of the limits of an act's charges.
func Buckets(a *weir.Act) int {
	buckets := 0
	for i := range a.Charges {
		buckets += int(a.Charges[i].Limit.Rule().Buckets)
	}
	return buckets
}
