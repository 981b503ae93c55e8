package keylimit

import (
	"cmp"
	"slices"
)

// Stats is how one budget does.
type Stats struct {
	// Budget is the budget as it was last asked for.
	Budget
	// Limit is the name of a limit that has it.
	Limit string
	// Keys is how many keys are known.
	Keys int
	// Overflowed is how many charges came under the Overflow.
	Overflowed uint64
}

// Full reports whether new keys share the Overflow.
func (s Stats) Full() bool { return s.Keys >= s.MaxKeys }

// Stats returns one for each budget that keys were asked for of, in the order of
// their Overflow.
func (t *Taker) Stats() []Stats {
	now := t.now()
	var all []Stats
	for overflow, k := range t.limits.list() {
		k.age(now)
		all = append(all, Stats{
			Budget: Budget{MaxKeys: int(k.most.Load()), Overflow: overflow}, Limit: k.limit,
			Keys: int(k.size.Load()), Overflowed: k.overflowed.Load(),
		})
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Overflow, b.Overflow) })
	return all
}
