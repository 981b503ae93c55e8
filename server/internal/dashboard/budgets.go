package dashboard

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/server/internal/traffic"
)

const (
	maxBudgets = 12
	// maxClasses is how many rules of a budget a page shows. Further ones are one more.
	maxClasses = 6
)

// A budgetState is what the rules on one budget were granted in the last minute.
type budgetState struct {
	Domain  string       `json:"domain"`
	Budget  string       `json:"budget"`
	Classes []classState `json:"classes"`
}

// A classState is the part of one rule, or of all further ones if Rule is empty.
type classState struct {
	Rule  string   `json:"rule"`
	Units []uint32 `json:"units"` // granted, each second
}

// budgets returns the budgets of which units were granted, and the rules that were granted
// most of each, in the order of their names.
func budgets(classes []traffic.Class) (all []budgetState, left int) {
	all = []budgetState{}
	at := map[[2]string]int{}
	for _, c := range classes {
		name := [2]string{c.Domain, c.Budget}
		i, known := at[name]
		if !known {
			i = len(all)
			at[name], all = i, append(all, budgetState{Domain: c.Domain, Budget: c.Budget})
		}
		all[i].Classes = append(all[i].Classes, classState{c.Rule, c.Units})
	}
	for i := range all {
		all[i].bound()
	}
	slices.SortStableFunc(all, func(a, b budgetState) int { return cmp.Compare(b.units(), a.units()) })
	left = max(0, len(all)-maxBudgets)
	all = all[:len(all)-left]
	slices.SortFunc(all, func(a, b budgetState) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Budget, b.Budget))
	})
	return all, left
}

// bound adds up the rules that were granted least, if there are too many.
func (b *budgetState) bound() {
	slices.SortStableFunc(b.Classes, func(x, y classState) int { return cmp.Compare(y.units(), x.units()) })
	if len(b.Classes) > maxClasses {
		rest := classState{}
		for _, c := range b.Classes[maxClasses:] {
			rest.Units = sum(rest.Units, c.Units)
		}
		b.Classes = append(b.Classes[:maxClasses:maxClasses], rest)
	}
	slices.SortStableFunc(b.Classes, func(x, y classState) int {
		if x.Rule == "" || y.Rule == "" {
			return -cmp.Compare(x.Rule, y.Rule) // further ones last
		}
		return cmp.Compare(x.Rule, y.Rule)
	})
}

func (b *budgetState) units() (n uint64) {
	for i := range b.Classes {
		n += b.Classes[i].units()
	}
	return n
}

func (c *classState) units() (n uint64) {
	for _, k := range c.Units {
		n += uint64(k)
	}
	return n
}
