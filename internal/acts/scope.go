package acts

import (
	"slices"

	"github.com/weirlimit/weir"
)

// Fills reports whether [FillRest] completes the answer to an act. Call it before the act is decided.
// It does not complete the amendment of a take that was refused.
func Fills(a *weir.Act) bool { return a.Kind != KindAmend || a.Allowed() }

// FillRest completes the decisions on a granted take, or on what ends it, if the act lists
// charges that were no part of the take: they are [weir.NotEvaluated], by [SourceStore], in the
// alternative of each group that was a part of it, or else in the first one.
func FillRest(a *weir.Act) {
	if a.ID == "" || a.Err != nil || a.Kind == KindWithdraw || slices.ContainsFunc(a.Decisions, func(d weir.Decision) bool { return d.Outcome != weir.NotEvaluated && !d.Allowed() }) {
		return
	}
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
