package weir

import "slices"

// A Scope says to whom the ID of an act belongs. Acts with equal Owners and IDs are about
// one take, whichever limits they list: after a change of the limits, an act about the take
// still changes what the take was charged, and a repeat of the take gets the first answer.
// The zero value is no scope: the ID belongs to the keys of the act.
type Scope struct {
	// Owner names the caller and what it asks about, but none of its limits. Empty: no
	// scope.
	Owner string
	// Asks is what the caller asks for, in any form: another text is other content. Without
	// a scope, the costs of the charges are.
	Asks string
	// Cost is the number of units that a settlement or a refund gives to limits that the
	// take was charged under and that the act does not list. Costs, if not nil, has a number
	// for each meter instead, and 0 for those that it lacks.
	Cost  int64
	Costs Costs
}

// costOf returns the cost of a limit that the act does not list.
func (a *Act) costOf(l *Limit) int64 {
	n := a.Scope.Cost
	if a.Scope.Costs != nil {
		n, _ = a.Scope.Costs.of(l)
	}
	switch {
	case !l.Algorithm.Traits().HoldsSlots:
		return n
	case a.Kind == KindSettle:
		return 0
	}
	return min(1, n)
}

// Follow returns an act that does to the charges of a take what a does to its own. A charge
// that same finds in both has the limit and the cost that a has for it. The act uses the
// slice. A [KindAmend] becomes a repeat of the take. For stores and layers.
func (a *Act) Follow(taken []Charge, same func(own, taken int) bool) *Act {
	b := *a
	b.Charges, b.Decisions, b.Err = taken, make([]Decision, len(taken)), nil
	if b.Kind == KindAmend {
		b.Kind = KindTake
	}
	for j := range taken {
		c := &taken[j]
		c.Cost = a.costOf(c.Limit)
		for i := range a.Charges {
			if same(i, j) {
				c.Limit, c.Cost, c.Keep = a.Charges[i].Limit, a.Charges[i].Cost, a.Charges[i].Keep
				break
			}
		}
	}
	return &b
}

// AnswerFrom sets the decisions of a to those of b, which Follow returned for it, once b is
// decided. A charge that the take did not have is [NotEvaluated], by [SourceStore] if the
// take was granted without it. For stores and layers.
func (a *Act) AnswerFrom(b *Act, same func(own, taken int) bool) {
	if a.Err = b.Err; a.Err != nil {
		return
	}
	used := make([]bool, len(b.Charges))
	for i := range a.Charges {
		best := -1
		for j := range b.Charges {
			// Of a key under several alternatives, the one that was granted counts.
			if !used[j] && same(i, j) && (best < 0 || b.Decisions[best].Outcome == NotEvaluated && b.Decisions[j].Outcome != NotEvaluated) {
				best = j
			}
		}
		if a.Decisions[i] = (Decision{}); best >= 0 {
			used[best], a.Decisions[i] = true, b.Decisions[best]
		}
	}
	if b.Allowed() {
		a.allowRest()
	} else {
		a.refuseAs(b)
	}
}

// allowRest marks the charges that were no part of a granted take, in the alternative of
// each group that was a part of it, or else in the first one.
func (a *Act) allowRest() {
	for i := 0; i < len(a.Charges); {
		chosen, end := i, groupEnd(a.Charges, i)
		for ; i < end; i = altEnd(a.Charges, i) {
			if slices.ContainsFunc(a.Decisions[i:altEnd(a.Charges, i)], Decision.Allowed) {
				chosen = i
				break
			}
		}
		for j := chosen; j < altEnd(a.Charges, chosen); j++ {
			if a.Decisions[j].Outcome == NotEvaluated {
				a.Decisions[j] = Decision{Source: SourceStore}
			}
		}
		i = end
	}
}

// refuseAs refuses the act as b was, if none of the limits that refused b is listed.
func (a *Act) refuseAs(b *Act) {
	refused := func(d Decision) bool { return d.Outcome == Refused }
	if slices.ContainsFunc(a.Decisions, refused) || !slices.ContainsFunc(b.Decisions, refused) {
		return
	}
	j := Strictest(b.Charges, b.Decisions)
	a.Decisions[0] = b.Decisions[j]
	a.Decisions[0].Limit = b.LimitOf(j)
}
