package acts

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Follow returns an act that does to the charges of a take what a does to its own. A charge
// that same finds in both has the limit and the cost that a has for it. The act uses the
// slice. A [KindAmend] becomes a repeat of the take.
func Follow(a *weir.Act, taken []weir.Charge, same func(own, taken int) bool) *weir.Act {
	b := *a
	b.Charges, b.Decisions, b.Err = taken, make([]weir.Decision, len(taken)), nil
	if b.Kind == KindAmend {
		b.Kind = KindTake
	}
	for j := range taken {
		c := &taken[j]
		c.Cost = costOf(a, c.Limit)
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
// decided. A charge that the take did not have is [weir.NotEvaluated], by [SourceStore]
// if the take was granted without it.
func AnswerFrom(a, b *weir.Act, same func(own, taken int) bool) {
	if a.Err = b.Err; a.Err != nil {
		return
	}
	used := make([]bool, len(b.Charges))
	for i := range a.Charges {
		best := -1
		for j := range b.Charges {
			// Of a key under several alternatives, the one that was granted counts.
			if !used[j] && same(i, j) && (best < 0 || b.Decisions[best].Outcome == weir.NotEvaluated && b.Decisions[j].Outcome != weir.NotEvaluated) {
				best = j
			}
		}
		if a.Decisions[i] = (weir.Decision{}); best >= 0 {
			used[best], a.Decisions[i] = true, b.Decisions[best]
		}
	}
	if b.Allowed() {
		allowRest(a)
	} else {
		refuseAs(a, b)
	}
}

// allowRest marks the charges that were no part of a granted take, in the alternative of
// each group that was a part of it, or else in the first one.
func allowRest(a *weir.Act) {
	for i := 0; i < len(a.Charges); {
		chosen, end := i, GroupEnd(a, i)
		for ; i < end; i = AltEnd(a, i) {
			if slices.ContainsFunc(a.Decisions[i:AltEnd(a, i)], weir.Decision.Allowed) {
				chosen = i
				break
			}
		}
		for j := chosen; j < AltEnd(a, chosen); j++ {
			if a.Decisions[j].Outcome == weir.NotEvaluated {
				a.Decisions[j] = weir.Decision{Source: SourceStore}
			}
		}
		i = end
	}
}

// refuseAs refuses the act as b was, if none of the limits that refused b is listed.
func refuseAs(a, b *weir.Act) {
	refused := func(d weir.Decision) bool { return d.Outcome == weir.Refused }
	if slices.ContainsFunc(a.Decisions, refused) || !slices.ContainsFunc(b.Decisions, refused) {
		return
	}
	j := weir.Strictest(b.Charges, b.Decisions)
	a.Decisions[0] = b.Decisions[j]
	a.Decisions[0].Limit = b.LimitOf(j)
}

// costOf returns the cost of a limit that the act does not list.
func costOf(a *weir.Act, l *weir.Limit) int64 {
	n := a.Scope.Cost
	if a.Scope.Costs != nil {
		n = metered(a.Scope.Costs, l.Meter)
	}
	switch {
	case !algo.TraitsOf(l.Algorithm).HoldsSlots:
		return n
	case a.Kind == KindSettle:
		return 0
	}
	return min(1, n)
}

// metered returns the number that costs have for a meter, 1 for requests if there is none.
func metered(costs map[string]int64, meter string) int64 {
	const requests = "requests"
	meter = cmp.Or(meter, requests)
	n, given := costs[meter]
	switch {
	case !given && meter == requests:
		return 1
	case n < 0 || n > weir.MaxCost:
		return 0
	}
	return n
}
