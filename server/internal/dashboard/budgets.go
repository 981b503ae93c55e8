package dashboard

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const (
	maxBudgets = 12
	// maxClasses is how many rules of a budget a page shows. Further ones are one more.
	maxClasses = 6
)

// A budgetState is a budget, and what the rules on it were granted in the last minute.
type budgetState struct {
	Domain string `json:"domain"`
	Budget string `json:"budget"`
	Limit  string `json:"limit"`
	// Count is what the budget counts; empty: requests. Units of usd are millionths of a dollar.
	Count string `json:"count,omitempty"`
	// Rate is how many units per second it grants in the long run; 0 if they are slots.
	Rate float64 `json:"rate"`
	// PerKey says that requested values tell several budgets of the name apart, so that
	// the Rate is not that of all rules together.
	PerKey bool `json:"per_key,omitempty"`
	// Shares says that rules have guarantees and borrow from one another.
	Shares  bool         `json:"shares,omitempty"`
	Classes []classState `json:"classes"`
}

// A classState is the part of one rule, or of all further ones if Rule is empty.
type classState struct {
	Rule string `json:"rule"`
	// Alternative is the one of a rule with otherwise; empty for others.
	Alternative string   `json:"alternative,omitempty"`
	Units       []uint32 `json:"units"` // granted, each second, but for the Borrowed
	// Borrowed is what was granted beyond a guarantee, each second; nil if nothing was.
	Borrowed []uint32 `json:"borrowed,omitempty"`
	// Guarantee is what shares guarantee to the rule in the long run; empty: nothing.
	Guarantee string `json:"guarantee,omitempty"`
}

// budgets returns the budgets of which units were granted, and the rules that were granted
// most of each, in the order of their names.
func budgets(classes []traffic.Class, set *rules.Set) (all []budgetState, left int) {
	all = group(classes)
	for i := range all {
		all[i].bound()
	}
	slices.SortStableFunc(all, func(a, b budgetState) int { return cmp.Compare(b.units(), a.units()) })
	left = max(0, len(all)-maxBudgets)
	all = all[:len(all)-left]
	describe(all, set)
	for i := range all {
		all[i].sort()
	}
	slices.SortFunc(all, func(a, b budgetState) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Budget, b.Budget))
	})
	return all, left
}

// group puts the classes of one budget together, and what one class was guaranteed and
// borrowed.
func group(classes []traffic.Class) []budgetState {
	type id struct{ domain, budget, rule, alternative string }
	all, budgetAt, classAt := []budgetState{}, map[id]int{}, map[id]int{}
	for _, c := range classes {
		of := id{domain: c.Domain, budget: c.Budget}
		i, known := budgetAt[of]
		if !known {
			i = len(all)
			budgetAt[of], all = i, append(all, budgetState{Domain: c.Domain, Budget: c.Budget})
		}
		shared := c.Alternative == rules.Guaranteed || c.Alternative == rules.Borrowed
		of.rule, of.alternative = c.Rule, c.Alternative
		if shared {
			of.alternative = ""
		}
		b := &all[i]
		j, known := classAt[of]
		if !known {
			j = len(b.Classes)
			classAt[of], b.Classes = j, append(b.Classes, classState{Rule: c.Rule, Alternative: of.alternative, Units: make([]uint32, len(c.Units))})
		}
		b.Shares = b.Shares || shared
		if to := &b.Classes[j]; c.Alternative == rules.Borrowed {
			to.Borrowed = sum(to.Borrowed, c.Units)
		} else {
			to.Units = sum(to.Units, c.Units)
		}
	}
	return all
}

// describe sets what the rules say about the budgets and their classes.
func describe(all []budgetState, set *rules.Set) {
	at := map[[2]string]*budgetState{}
	for i := range all {
		at[[2]string{all[i].Domain, all[i].Budget}] = &all[i]
	}
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			b := at[[2]string{r.Domain, l.Budget.String()}]
			if l.Budget == nil || b == nil {
				continue
			}
			b.Limit, b.Count, b.Rate, b.PerKey = admin.LimitText(l.Limit), l.Limit.Meter, rate(l.Limit), r.PerKey(l.Budget)
			guarantee := r.Guarantee()
			if j := slices.IndexFunc(b.Classes, func(c classState) bool { return c.Rule == l.Name }); j >= 0 && guarantee != nil {
				b.Classes[j].Guarantee = config.LimitText(&weir.Limit{Algorithm: guarantee.Algorithm, Count: guarantee.Count, Period: guarantee.Period, Meter: b.Count})
			}
		}
	}
}

// rate returns how many units per second a limit grants in the long run; 0 if its units
// are slots.
func rate(l *weir.Limit) float64 {
	if algo.TraitsOf(l.Algorithm).HoldsSlots {
		return 0
	}
	return float64(l.Count) / l.Period.Seconds()
}

// bound adds up the rules that were granted least, if there are too many.
func (b *budgetState) bound() {
	slices.SortStableFunc(b.Classes, func(x, y classState) int { return cmp.Compare(y.units(), x.units()) })
	if len(b.Classes) <= maxClasses {
		return
	}
	rest := classState{}
	for _, c := range b.Classes[maxClasses:] {
		rest.Units = sum(rest.Units, c.Units)
		if c.Borrowed != nil {
			rest.Borrowed = sum(rest.Borrowed, c.Borrowed)
		}
	}
	b.Classes = append(b.Classes[:maxClasses:maxClasses], rest)
}

// sort orders the classes by name: first those with a guarantee, last all further ones.
func (b *budgetState) sort() {
	rank := func(c classState) int {
		switch {
		case c.Guarantee != "":
			return 0
		case c.Rule != "":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(b.Classes, func(x, y classState) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Alternative, y.Alternative))
	})
}

func (b *budgetState) units() (n uint64) {
	for i := range b.Classes {
		n += b.Classes[i].units()
	}
	return n
}

func (c *classState) units() (n uint64) {
	for _, list := range [][]uint32{c.Units, c.Borrowed} {
		for _, k := range list {
			n += uint64(k)
		}
	}
	return n
}
